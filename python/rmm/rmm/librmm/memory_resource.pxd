# SPDX-License-Identifier: Apache-2.0

from libc.stddef cimport size_t
from libc.stdint cimport int8_t
from libcpp cimport bool
from libcpp.optional cimport optional
from libcpp.pair cimport pair

from rmm.librmm._asked_adaptors cimport (  # noqa: F401
    leak_report,
    limiting_resource_adaptor,
    logging_resource_adaptor,
    statistics_resource_adaptor,
    tracking_resource_adaptor,
)
from rmm.librmm._device_memory_resource cimport device_async_resource_ref, device_memory_resource  # noqa: F401
from rmm.librmm._driver_pools cimport (  # noqa: F401
    allocation_handle_type,
    cuda_async_managed_memory_resource,
    cuda_async_memory_resource,
    cuda_async_view_memory_resource,
)
from rmm.librmm._python_exceptions cimport (  # noqa: F401
    CppExcept,
    throw_cpp_except,
    translate_python_except_to_cpp,
)
from rmm.librmm.cuda_stream_view cimport cuda_stream_view


cdef extern from "rmm/cuda_device.hpp" namespace "rmm" nogil:
    pair[size_t, size_t] available_device_memory() except +
    size_t percent_of_free_device_memory(int percent) except +


cdef extern from "rmm/mr/cuda_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass cuda_memory_resource(device_memory_resource):
        cuda_memory_resource() except +


cdef extern from "rmm/mr/managed_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass managed_memory_resource(device_memory_resource):
        managed_memory_resource() except +


cdef extern from "rmm/mr/system_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass system_memory_resource(device_memory_resource):
        system_memory_resource() except +


cdef extern from "rmm/mr/sam_headroom_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass sam_headroom_memory_resource(device_memory_resource):
        sam_headroom_memory_resource(size_t headroom) except +


cdef extern from "rmm/mr/pinned_host_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass pinned_host_memory_resource(device_memory_resource):
        pinned_host_memory_resource() except +


cdef extern from "rmm/mr/pool_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass pool_memory_resource[Upstream](device_memory_resource):
        pool_memory_resource(Upstream* upstream_mr, size_t initial_pool_size) except +
        pool_memory_resource(Upstream* upstream_mr, size_t initial_pool_size, optional[size_t] maximum_pool_size) except +
        size_t pool_size()


cdef extern from "rmm/mr/arena_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass arena_memory_resource[Upstream](device_memory_resource):
        arena_memory_resource(Upstream* upstream_mr) except +
        arena_memory_resource(Upstream* upstream_mr, optional[size_t] arena_size, bool dump_log_on_failure) except +


cdef extern from "rmm/mr/fixed_size_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass fixed_size_memory_resource[Upstream](device_memory_resource):
        fixed_size_memory_resource(Upstream* upstream_mr, size_t block_size, size_t block_to_preallocate) except +
        size_t get_block_size()


cdef extern from "rmm/mr/binning_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass binning_memory_resource[Upstream](device_memory_resource):
        binning_memory_resource(Upstream* upstream_mr) except +
        binning_memory_resource(Upstream* upstream_mr, int8_t min_size_exponent, int8_t max_size_exponent) except +
        void add_bin(size_t allocation_size) except +
        void add_bin(size_t allocation_size, device_memory_resource* bin_resource) except +


cdef extern from "rmm/mr/callback_memory_resource.hpp" namespace "rmm::mr" nogil:
    # In C++ they are std::function; what is declared here converts to it.
    ctypedef void* (*allocate_callback_t)(size_t, cuda_stream_view, void*)
    ctypedef void (*deallocate_callback_t)(void*, size_t, cuda_stream_view, void*)

    cdef cppclass callback_memory_resource(device_memory_resource):
        callback_memory_resource(
            allocate_callback_t allocate_callback,
            deallocate_callback_t deallocate_callback,
            void* allocate_callback_arg,
            void* deallocate_callback_arg) except +


cdef extern from "rmm/mr/failure_callback_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    ctypedef bool (*failure_callback_t)(size_t, void*)

    cdef cppclass failure_callback_resource_adaptor[Upstream](device_memory_resource):
        failure_callback_resource_adaptor(Upstream* upstream_mr, failure_callback_t callback, void* callback_arg) except +


cdef extern from "rmm/mr/prefetch_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass prefetch_resource_adaptor[Upstream](device_memory_resource):
        prefetch_resource_adaptor(Upstream* upstream_mr) except +


cdef extern from "rmm/mr/aligned_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass aligned_resource_adaptor[Upstream](device_memory_resource):
        aligned_resource_adaptor(Upstream* upstream_mr, size_t alignment, size_t alignment_threshold) except +


cdef extern from "rmm/mr/thread_safe_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass thread_safe_resource_adaptor[Upstream](device_memory_resource):
        thread_safe_resource_adaptor(Upstream* upstream_mr) except +
