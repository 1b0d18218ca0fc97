# SPDX-License-Identifier: Apache-2.0

# Resources over pools of the driver, whose headers are small. rmm.librmm.memory_resource declares all resources.

from cuda.bindings.cyruntime cimport cudaMemPool_t
from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libcpp.optional cimport optional

from rmm.librmm._device_memory_resource cimport device_memory_resource


cdef extern from "rmm/mr/cuda_async_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef enum class allocation_handle_type "rmm::mr::cuda_async_memory_resource::allocation_handle_type"(int32_t):
        none
        posix_file_descriptor
        win32
        win32_kmt
        fabric

    cdef cppclass cuda_async_memory_resource(device_memory_resource):
        cuda_async_memory_resource() except +
        cuda_async_memory_resource(optional[size_t] initial_pool_size) except +
        cuda_async_memory_resource(optional[size_t] initial_pool_size, optional[size_t] release_threshold) except +
        cuda_async_memory_resource(
            optional[size_t] initial_pool_size,
            optional[size_t] release_threshold,
            optional[allocation_handle_type] export_handle_type) except +
        cudaMemPool_t pool_handle()


cdef extern from "rmm/mr/cuda_async_view_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass cuda_async_view_memory_resource(device_memory_resource):
        cuda_async_view_memory_resource(cudaMemPool_t pool_handle) except +
        cudaMemPool_t pool_handle()


cdef extern from "rmm/mr/cuda_async_managed_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass cuda_async_managed_memory_resource(device_memory_resource):
        cuda_async_managed_memory_resource() except +
        cuda_async_managed_memory_resource(optional[size_t] release_threshold) except +
        cudaMemPool_t pool_handle()
