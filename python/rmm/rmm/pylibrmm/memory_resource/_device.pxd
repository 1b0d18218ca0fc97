# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource


cdef class CudaMemoryResource(DeviceMemoryResource):
    pass


cdef class ManagedMemoryResource(DeviceMemoryResource):
    pass


cdef class CudaAsyncMemoryResource(DeviceMemoryResource):
    pass


cdef class CudaAsyncViewMemoryResource(DeviceMemoryResource):
    cdef object _owner


cdef class CudaAsyncManagedMemoryResource(DeviceMemoryResource):
    pass
