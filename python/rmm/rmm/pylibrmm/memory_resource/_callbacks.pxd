# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, UpstreamResourceAdaptor


cdef class CallbackMemoryResource(DeviceMemoryResource):
    cdef object _finalizer
    cdef object _allocate_func
    cdef object _deallocate_func


cdef class FailureCallbackResourceAdaptor(UpstreamResourceAdaptor):
    cdef object _callback


cdef class SpillResourceAdaptor(UpstreamResourceAdaptor):
    cdef object _spill
    cdef tuple _watermarks
