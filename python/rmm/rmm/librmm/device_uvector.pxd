# SPDX-License-Identifier: Apache-2.0

from libc.stddef cimport size_t

from rmm.librmm._device_memory_resource cimport device_async_resource_ref, device_memory_resource
from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.librmm.device_buffer cimport device_buffer


cdef extern from "rmm/device_uvector.hpp" namespace "rmm" nogil:
    cdef cppclass device_uvector[T]:
        device_uvector(size_t size, cuda_stream_view stream) except +
        device_uvector(size_t size, cuda_stream_view stream, device_memory_resource* mr) except +
        T* element_ptr(size_t index)
        void set_element(size_t index, const T& value, cuda_stream_view stream) except +
        void set_element_async(size_t index, const T& value, cuda_stream_view stream) except +
        T front_element(cuda_stream_view stream) except +
        T back_element(cuda_stream_view stream) except +
        void reserve(size_t new_capacity, cuda_stream_view stream) except +
        void resize(size_t new_size, cuda_stream_view stream) except +
        void shrink_to_fit(cuda_stream_view stream) except +
        device_buffer release() except +
        size_t capacity()
        T* data()
        size_t size()
        device_async_resource_ref memory_resource()
