# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, UpstreamResourceAdaptor


cdef class PoolMemoryResource(UpstreamResourceAdaptor):
    cdef object _finalizer


cdef class ArenaMemoryResource(UpstreamResourceAdaptor):
    pass


cdef class FixedSizeMemoryResource(UpstreamResourceAdaptor):
    pass


cdef class BinningMemoryResource(UpstreamResourceAdaptor):
    cdef list _bin_mrs
    cpdef add_bin(self, object allocation_size, DeviceMemoryResource bin_resource=*)


cdef class ElasticPoolMemoryResource(DeviceMemoryResource):
    pass


cdef class CachedMemoryResource(UpstreamResourceAdaptor):
    cdef object _finalizer


cdef class ConfiguredMemoryResource(DeviceMemoryResource):
    cdef readonly str configuration
    cdef readonly str explanation
