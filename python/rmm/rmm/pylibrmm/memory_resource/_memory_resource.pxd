# SPDX-License-Identifier: Apache-2.0

from libc.stddef cimport size_t
from libcpp.memory cimport shared_ptr

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.pylibrmm.stream cimport Stream


cdef extern from "rmm/mr/detail/immediate_resource.hpp" namespace "rmm::mr::detail" nogil:
    cdef cppclass immediate_resource:
        pass


cdef extern from *:
    """
    namespace rmm_python {
    class lent_callables;  // which others need not know
    }
    """
    cdef cppclass lent_callables "rmm_python::lent_callables":
        pass


cdef class DeviceMemoryResource:
    # Who copies it keeps the object of Python as well, which holds the functions that the resource calls, if there are any.
    cdef shared_ptr[device_memory_resource] c_obj
    cdef shared_ptr[lent_callables] _lent
    cdef object _failure_callback  # that of a pool
    cdef immediate_resource* _immediate
    cdef device_memory_resource* _asked  # that is `_immediate`
    cdef device_memory_resource* get_mr(self) noexcept nogil
    cdef device_memory_resource* usable(self) except NULL nogil
    cdef void keep_lent(self) noexcept
    cdef void lend_from_now(self, shared_ptr[lent_callables] lent) noexcept
    cdef immediate_resource* immediate(self) noexcept


cdef class UpstreamResourceAdaptor(DeviceMemoryResource):
    cdef readonly DeviceMemoryResource upstream_mr
    cpdef DeviceMemoryResource get_upstream(self)


cdef class CudaMemoryResource(DeviceMemoryResource):
    pass


cdef class ManagedMemoryResource(DeviceMemoryResource):
    pass


cdef class SystemMemoryResource(DeviceMemoryResource):
    pass


cdef class PinnedHostMemoryResource(DeviceMemoryResource):
    pass


cdef class RegisteredHostMemoryResource(DeviceMemoryResource):
    pass


cdef class SamHeadroomMemoryResource(DeviceMemoryResource):
    pass


cdef class CudaAsyncMemoryResource(DeviceMemoryResource):
    pass


cdef class CudaAsyncViewMemoryResource(DeviceMemoryResource):
    cdef object _owner


cdef class CudaAsyncManagedMemoryResource(DeviceMemoryResource):
    pass


cdef class PoolMemoryResource(UpstreamResourceAdaptor):
    pass


cdef class ArenaMemoryResource(UpstreamResourceAdaptor):
    pass


cdef class FixedSizeMemoryResource(UpstreamResourceAdaptor):
    pass


cdef class BinningMemoryResource(UpstreamResourceAdaptor):
    cdef list _bin_mrs
    cpdef add_bin(self, object allocation_size, DeviceMemoryResource bin_resource=*)


cdef class CallbackMemoryResource(DeviceMemoryResource):
    cdef object _allocate_func
    cdef object _deallocate_func


cdef class ElasticPoolMemoryResource(DeviceMemoryResource):
    pass


cdef class CachedMemoryResource(UpstreamResourceAdaptor):
    pass


cdef class PinnedPoolMemoryResource(DeviceMemoryResource):
    pass


cdef class ConfiguredMemoryResource(DeviceMemoryResource):
    cdef readonly str configuration
    cdef readonly str explanation


cdef class MemoryReservation(DeviceMemoryResource):
    cdef readonly DeviceMemoryResource source
    cdef Stream _stream


cdef class GuardResourceAdaptor(UpstreamResourceAdaptor):
    cdef object _handler


cdef class TraceResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class LimitingResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class LoggingResourceAdaptor(UpstreamResourceAdaptor):
    cdef object _log_file_name
    cpdef get_file_name(self)
    cpdef flush(self)


cdef class StatisticsResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class TrackingResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class FailureCallbackResourceAdaptor(UpstreamResourceAdaptor):
    cdef object _callback


cdef class PrefetchResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class AlignedResourceAdaptor(UpstreamResourceAdaptor):
    pass


cdef class ThreadSafeResourceAdaptor(UpstreamResourceAdaptor):
    pass


cpdef DeviceMemoryResource get_per_device_resource(int device)
cpdef set_per_device_resource(int device, DeviceMemoryResource mr)
cpdef DeviceMemoryResource get_current_device_resource()
cpdef set_current_device_resource(DeviceMemoryResource mr)

# How an exception of C++ becomes one of this package: a rmm_python::exception_makers.
cdef const void* makers_of_exceptions() noexcept
