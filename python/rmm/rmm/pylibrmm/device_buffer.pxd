# SPDX-License-Identifier: Apache-2.0

from libc.stddef cimport size_t
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool
from libcpp.memory cimport unique_ptr

from rmm.librmm.device_buffer cimport device_buffer
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource
from rmm.pylibrmm.stream cimport Stream


cdef class DeviceBuffer:
    cdef unique_ptr[device_buffer] c_obj

    # keep the resource and the stream alive
    cdef readonly DeviceMemoryResource mr
    cdef readonly Stream stream

    @staticmethod
    cdef DeviceBuffer c_from_unique_ptr(
        unique_ptr[device_buffer] ptr,
        Stream stream=*,
        DeviceMemoryResource mr=*,
    )

    @staticmethod
    cdef DeviceBuffer c_to_device(const unsigned char[::1] b, Stream stream=*)

    cpdef copy_to_host(self, ary=*, Stream stream=*)
    cpdef copy_from_host(self, ary, Stream stream=*)
    cpdef copy_from_device(self, cuda_ary, Stream stream=*)
    cpdef bytes tobytes(self, Stream stream=*)

    cdef size_t c_size(self) except *
    cpdef void reserve(self, size_t new_capacity, Stream stream=*) except *
    cpdef void resize(self, size_t new_size, Stream stream=*) except *
    cpdef size_t capacity(self) except *
    cdef void* c_data(self) except *

    cdef device_buffer c_release(self) except *
    cdef device_buffer* contents(self) except NULL


cdef DeviceBuffer allocated(size_t size, Stream stream)
cdef DeviceBuffer without_memory(Stream stream)
cdef bool fill_at_once(DeviceBuffer made, size_t size, uint64_t identity) noexcept
cdef int fill_with(DeviceBuffer made, size_t size) except -1

cpdef DeviceBuffer to_device(const unsigned char[::1] b, Stream stream=*)
cpdef void copy_ptr_to_host(uintptr_t db, unsigned char[::1] hb, Stream stream=*) except *
cpdef void copy_host_to_ptr(const unsigned char[::1] hb, uintptr_t db, Stream stream=*) except *
cpdef void copy_device_to_ptr(uintptr_t d_src, uintptr_t d_dst, size_t count, Stream stream=*) except *
