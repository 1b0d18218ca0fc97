# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource


cdef class SystemMemoryResource(DeviceMemoryResource):
    pass


cdef class SamHeadroomMemoryResource(DeviceMemoryResource):
    pass


cdef class PinnedHostMemoryResource(DeviceMemoryResource):
    pass


cdef class RegisteredHostMemoryResource(DeviceMemoryResource):
    pass


cdef class PinnedPoolMemoryResource(DeviceMemoryResource):
    pass
