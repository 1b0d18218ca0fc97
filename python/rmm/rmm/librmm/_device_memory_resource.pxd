# SPDX-License-Identifier: Apache-2.0

# Only the base class, because its header is small. rmm.librmm.memory_resource declares all resources.

from libc.stddef cimport size_t
from libcpp cimport bool

from rmm.librmm.cuda_stream_view cimport cuda_stream_view


cdef extern from "rmm/mr/device_memory_resource.hpp" namespace "rmm::mr" nogil:
    void use_unrounded_sizes(bool unrounded) except +
    cdef cppclass device_memory_resource:
        void* allocate(size_t bytes) except +
        void* allocate(size_t bytes, cuda_stream_view stream) except +
        void* allocate(cuda_stream_view stream, size_t bytes) except +
        void* allocate(cuda_stream_view stream, size_t bytes, size_t alignment) except +
        void* allocate_async(size_t bytes, cuda_stream_view stream) except +
        void* allocate_sync(size_t bytes) except +
        void* allocate_sync(size_t bytes, size_t alignment) except +
        void deallocate(void* ptr, size_t bytes) except +
        void deallocate(void* ptr, size_t bytes, cuda_stream_view stream) except +
        void deallocate(cuda_stream_view stream, void* ptr, size_t bytes) except +
        void deallocate(cuda_stream_view stream, void* ptr, size_t bytes, size_t alignment) except +
        void deallocate_async(void* ptr, size_t bytes, cuda_stream_view stream) except +
        void deallocate_sync(void* ptr, size_t bytes) except +
        void deallocate_sync(void* ptr, size_t bytes, size_t alignment) except +
        bool is_equal(device_memory_resource other) noexcept


cdef extern from "rmm/resource_ref.hpp" namespace "rmm" nogil:
    cdef cppclass device_async_resource_ref:
        device_async_resource_ref(device_memory_resource* resource) except +
