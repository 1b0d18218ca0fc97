# SPDX-License-Identifier: Apache-2.0

from libcpp.memory cimport shared_ptr

from rmm.librmm._device_memory_resource cimport device_memory_resource


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


ctypedef device_memory_resource base
ctypedef shared_ptr[device_memory_resource] resource_ptr
ctypedef shared_ptr[lent_callables] lent_ptr


cdef class DeviceMemoryResource:
    # A copy also keeps the Python functions that the resource calls, through lent_callables.
    cdef shared_ptr[device_memory_resource] c_obj
    cdef shared_ptr[lent_callables] _lent
    cdef object __weakref__
    cdef object _failure_callback  # of a pool
    cdef immediate_resource* _immediate
    cdef device_memory_resource* _asked  # the resource for which `_immediate` was looked up
    cdef device_memory_resource* get_mr(self) noexcept nogil
    cdef device_memory_resource* usable(self) except NULL nogil
    cdef void keep_lent(self) noexcept
    cdef void lend_from_now(self, shared_ptr[lent_callables] lent) noexcept
    cdef immediate_resource* immediate(self) noexcept


cdef class UpstreamResourceAdaptor(DeviceMemoryResource):
    cdef readonly DeviceMemoryResource upstream_mr
    cpdef DeviceMemoryResource get_upstream(self)
