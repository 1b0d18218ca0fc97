# SPDX-License-Identifier: Apache-2.0

# For modules of this package only: others lack the C++ headers that this file includes.

from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libcpp cimport bool
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.vector cimport vector


cdef extern from "pylibrmm/memory_resource/_raise.hpp" namespace "rmm_python":
    cdef struct exception_makers:
        object (*reported_memory_error)(const char* text, const void* report)
        object (*file_error)(const void* error)

    void raise_current(const exception_makers& make)


# Returns a rmm_python::exception_makers, which makes Python exceptions from C++ exceptions.
cdef const void* makers_of_exceptions() noexcept


cdef inline void raise_error() noexcept:
    """Raises the Python exception for the C++ exception that is being handled, with its report.

    Inline, so that it is compiled into each module: another module may have its own C++ runtime, which does not know the exception.
    """
    raise_current((<const exception_makers*>makers_of_exceptions())[0])


cdef extern from "rmm/recovery.hpp" namespace "rmm" nogil:
    cdef enum class recovery_rung:
        pass

    cdef struct rung_figures:
        uint64_t tried
        uint64_t served

    cdef struct recovery_figures:
        uint64_t failures

    cdef cppclass recovery_order:
        size_t size()
        recovery_rung operator[](size_t)

    const size_t recovery_rung_count
    const char* name_of(recovery_rung rung)


cdef extern from "rmm/heap_figures.hpp" namespace "rmm" nogil:
    cdef struct heap_figures:
        size_t live_bytes
        size_t free_bytes
        size_t graph_bytes
        size_t cached_bytes
        size_t reserved_bytes
        size_t largest_free_bytes
        size_t upstream_blocks
        size_t caches
        uint64_t from_other_streams
        uint64_t from_other_caches
        uint64_t put_together
        uint64_t device_synchronizations
        recovery_figures recovery


cdef extern from "rmm/memory_report.hpp" namespace "rmm" nogil:
    cdef cppclass holder "rmm::memory_report::holder":
        string tag
        size_t bytes
        size_t allocations


cdef size_t size_of(object size) except? 0
cdef optional[size_t] optional_size(object size) except *
cdef size_t pool_size_of(object size) except? 0
cdef optional[size_t] optional_pool_size(object size) except *

cdef dict dict_of(const heap_figures& figures)
cdef str name_of_rung(recovery_rung rung)
cdef list list_of(const vector[holder]& holders)
cdef expect_callable(function)
