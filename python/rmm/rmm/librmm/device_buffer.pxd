# SPDX-License-Identifier: Apache-2.0

from libc.stddef cimport size_t

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.librmm.per_device_resource cimport cuda_device_id


cdef extern from "rmm/cuda_device.hpp" namespace "rmm" nogil:
    cdef cuda_device_id get_current_cuda_device() except +


cdef extern from "rmm/prefetch.hpp" namespace "rmm" nogil:
    cdef void prefetch(const void* ptr, size_t bytes, cuda_device_id device, cuda_stream_view stream) except +


cdef extern from "rmm/device_buffer.hpp" namespace "rmm" nogil:
    cdef cppclass device_buffer:
        device_buffer() except +
        device_buffer(size_t size, cuda_stream_view stream) except +
        device_buffer(size_t size, cuda_stream_view stream, device_memory_resource* mr) except +
        device_buffer(const void* source_data, size_t size, cuda_stream_view stream) except +
        device_buffer(const void* source_data, size_t size, cuda_stream_view stream, device_memory_resource* mr) except +
        device_buffer(const device_buffer buf, cuda_stream_view stream) except +
        device_buffer(const device_buffer buf, cuda_stream_view stream, device_memory_resource* mr) except +
        void reserve(size_t new_capacity, cuda_stream_view stream) except +
        void resize(size_t new_size, cuda_stream_view stream) except +
        void shrink_to_fit(cuda_stream_view stream) except +
        void* data()
        size_t size()
        size_t capacity()
        cuda_stream_view stream()
        void set_stream(cuda_stream_view stream)
        cuda_device_id device() noexcept
