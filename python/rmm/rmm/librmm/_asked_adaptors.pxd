# SPDX-License-Identifier: Apache-2.0

# Adaptors that have more functions than a resource. rmm.librmm.memory_resource declares all resources.

from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libcpp cimport bool
from libcpp.pair cimport pair
from libcpp.string cimport string

from rmm.librmm._device_memory_resource cimport device_memory_resource


cdef extern from "rmm/mr/limiting_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass limiting_resource_adaptor[Upstream](device_memory_resource):
        limiting_resource_adaptor(Upstream* upstream_mr, size_t allocation_limit) except +
        size_t get_allocated_bytes() except +
        size_t get_allocation_limit() except +


cdef extern from "rmm/mr/logging_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass logging_resource_adaptor[Upstream](device_memory_resource):
        logging_resource_adaptor(Upstream* upstream_mr, string filename) except +
        void flush() except +


cdef extern from "rmm/mr/statistics_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass statistics_resource_adaptor[Upstream](device_memory_resource):
        cppclass counter:
            int64_t value
            int64_t peak
            int64_t total

        statistics_resource_adaptor(Upstream* upstream_mr) except +
        counter get_bytes_counter()
        counter get_allocations_counter()
        pair[counter, counter] push_counters() except +
        pair[counter, counter] pop_counters() except +


cdef extern from "rmm/mr/tracking_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef enum class leak_report:
        never
        at_end

    cdef cppclass tracking_resource_adaptor[Upstream](device_memory_resource):
        tracking_resource_adaptor(Upstream* upstream_mr, bool capture_stacks) except +
        size_t get_allocated_bytes() except +
        string get_outstanding_allocations_str() except +
        string get_leak_report() except +
        void log_outstanding_allocations() except +
