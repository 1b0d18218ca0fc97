# SPDX-License-Identifier: Apache-2.0

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource
from rmm.pylibrmm.stream cimport Stream


cdef class MemoryReservation(DeviceMemoryResource):
    cdef readonly DeviceMemoryResource source
    cdef Stream _stream
