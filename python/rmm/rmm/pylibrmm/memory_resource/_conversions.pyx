# SPDX-License-Identifier: Apache-2.0
"""Converts sizes, figures, reports and exceptions between Python and C++."""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uintptr_t
from libcpp cimport bool
from libcpp.optional cimport make_optional, optional
from libcpp.string cimport string
from libcpp.vector cimport vector

from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.pylibrmm.helper cimport parse_bytes

import errno
import os


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "rmm/detail/base/file_error.hpp" namespace "rmm::detail" nogil:
    cdef cppclass file_error:
        const char* path()
        const char* reason()
        int number()


cdef extern from "rmm/memory_report.hpp" namespace "rmm" nogil:
    cdef cppclass device_memory "rmm::memory_report::device_memory":
        size_t free_bytes
        size_t total_bytes

    cdef cppclass memory_report:
        size_t asked_bytes
        size_t alignment_bytes
        cuda_stream_view stream
        int device
        string reason
        heap_figures pool
        optional[size_t] maximum_bytes
        optional[device_memory] device_figures
        recovery_order order
        bool tags_tracked
        vector[holder] holders
        uint32_t tries_of(recovery_rung)
        optional[size_t] held_by_others()


cdef extern from "rmm/detail/checked_size.hpp" namespace "rmm::detail" nogil:
    size_t checked_align_up(size_t value, size_t alignment) except +
    const size_t allocation_alignment "rmm::CUDA_ALLOCATION_ALIGNMENT"


cdef size_t size_of(object size) except? 0:
    """Converts a number of bytes, given as int or str."""
    return parse_bytes(size) if isinstance(size, str) else size


cdef optional[size_t] optional_size(object size) except *:
    """Converts a number of bytes, given as int, str or None."""
    if size is None:
        return optional[size_t]()
    return make_optional[size_t](<size_t>parse_bytes(size))


cdef size_t pool_size_of(object size) except? 0:
    """Converts the size of a pool. A str is rounded up to a multiple of 256. An int is not rounded, and has to be one."""
    return checked_align_up(parse_bytes(size), allocation_alignment) if isinstance(size, str) else parse_bytes(size)


cdef optional[size_t] optional_pool_size(object size) except *:
    """Converts the size of a pool, which may be None."""
    if size is None:
        return optional[size_t]()
    return make_optional[size_t](pool_size_of(size))


cdef dict dict_of(const heap_figures& figures):
    return {
        "live_bytes": figures.live_bytes,
        "free_bytes": figures.free_bytes,
        "graph_bytes": figures.graph_bytes,
        "cached_bytes": figures.cached_bytes,
        "reserved_bytes": figures.reserved_bytes,
        "largest_free_bytes": figures.largest_free_bytes,
        "upstream_blocks": figures.upstream_blocks,
        "caches": figures.caches,
        "from_other_streams": figures.from_other_streams,
        "from_other_caches": figures.from_other_caches,
        "put_together": figures.put_together,
        "device_synchronizations": figures.device_synchronizations,
        "failures": figures.recovery.failures,
    }


cdef expect_callable(function):
    if not callable(function):
        raise TypeError(f"{function!r} cannot be called")


cdef str name_of_rung(recovery_rung rung):
    return (<bytes>name_of(rung)).decode()


cdef list list_of(const vector[holder]& holders):
    from rmm.memory_report import Holder

    return [
        Holder(holders[i].tag.decode("utf-8", "surrogateescape"), holders[i].bytes, holders[i].allocations)
        for i in range(holders.size())
    ]


cdef object report_of(const void* failed):
    """Converts a rmm::memory_report to a MemoryReport."""
    from rmm.memory_report import MemoryReport

    cdef const memory_report* report = <const memory_report*>failed
    cdef optional[size_t] others = report.held_by_others()
    return MemoryReport(
        asked_bytes=report.asked_bytes,
        alignment_bytes=report.alignment_bytes,
        stream=<uintptr_t>report.stream.value(),
        device=report.device,
        reason=report.reason.decode("utf-8", "replace"),
        pool=dict_of(report.pool),
        maximum_bytes=report.maximum_bytes.value() if report.maximum_bytes.has_value() else None,
        device_free_bytes=report.device_figures.value().free_bytes if report.device_figures.has_value() else None,
        device_total_bytes=report.device_figures.value().total_bytes if report.device_figures.has_value() else None,
        held_by_others=others.value() if others.has_value() else None,
        tries={name_of_rung(report.order[i]): report.tries_of(report.order[i]) for i in range(report.order.size())},
        tags_tracked=report.tags_tracked,
        holders=list_of(report.holders),
    )


cdef object reported_memory_error(const char* text, const void* report):
    """Makes the Python exception for a rmm::out_of_memory with a report."""
    from rmm._errors import ReportedMemoryError

    return ReportedMemoryError((<bytes>text).decode("utf-8", "replace"), report_of(report))


cdef object log_file_error(const void* failed):
    """Makes the Python exception for a rmm::detail::file_error."""
    from rmm._errors import LogFileError

    cdef const file_error* error = <const file_error*>failed
    reason = (<bytes>error.reason()).decode("utf-8", "replace")
    number = error.number()
    return LogFileError(number if number else errno.EPERM, f"cannot open for writing: {reason}", os.fsdecode(error.path()))


cdef exception_makers makers
makers.reported_memory_error = reported_memory_error
makers.file_error = log_file_error


cdef const void* makers_of_exceptions() noexcept:
    return &makers
