# SPDX-License-Identifier: Apache-2.0

from libcpp.memory cimport shared_ptr

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource
from rmm.pylibrmm.stream cimport Stream


cdef extern from *:
    """
    namespace rmm_python {
    class owning_reservation_queue;  // which others need not know
    }
    """
    cdef cppclass owning_reservation_queue "rmm_python::owning_reservation_queue":
        pass


ctypedef shared_ptr[owning_reservation_queue] queue_ptr


cdef class MemoryReservation(DeviceMemoryResource):
    cdef readonly DeviceMemoryResource source
    cdef Stream _stream


cdef class ReservationQueue:
    cdef readonly DeviceMemoryResource source
    cdef queue_ptr c_queue
    cdef queue_ptr usable(self) except *
