# SPDX-License-Identifier: Apache-2.0
"""Resources that do something beside what their upstream does."""

cimport cython
from cpython.object cimport PyObject
from libc.stddef cimport ptrdiff_t, size_t
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool
from libcpp.string cimport string

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.librmm.memory_resource cimport (
    leak_report,
    limiting_resource_adaptor,
    logging_resource_adaptor,
    statistics_resource_adaptor,
    tracking_resource_adaptor,
)
from rmm.pylibrmm.helper cimport parse_bytes
from rmm.pylibrmm.memory_resource._base cimport (
    DeviceMemoryResource,
    UpstreamResourceAdaptor,
    base,
    immediate_resource,
    resource_ptr,
)
from rmm.pylibrmm.memory_resource._conversions cimport expect_callable, raise_error, size_of

import os

__all__ = [
    "AlignedResourceAdaptor", "GuardResourceAdaptor", "LimitingResourceAdaptor", "LoggingResourceAdaptor",
    "PrefetchResourceAdaptor", "StatisticsResourceAdaptor", "ThreadSafeResourceAdaptor", "TraceResourceAdaptor",
    "TrackingResourceAdaptor",
]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "rmm/mr/guard_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass guard_violation:
        const void* ptr
        size_t bytes
        ptrdiff_t offset
        string report


cdef extern from "rmm/mr/trace_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass trace_resource_adaptor[Upstream](device_memory_resource):
        void flush() except +
        string get_file_name()
        uint64_t get_lost_events()


ctypedef void (*python_guard_handler)(void*, const guard_violation&) noexcept


cdef extern from "pylibrmm/memory_resource/_registry.hpp" namespace "rmm_python" nogil:
    int c_current_device "rmm_python::current_device"() except +


cdef extern from "pylibrmm/memory_resource/_adaptors.hpp" namespace "rmm_python" nogil:
    resource_ptr make_limiting "rmm_python::make_immediate_over<rmm::mr::limiting_resource_adaptor>"(
        resource_ptr, immediate_resource*, immediate_resource*&, size_t) except +
    resource_ptr make_logging "rmm_python::make_resource_over<rmm::mr::logging_resource_adaptor>"(
        resource_ptr, string) except +raise_error
    resource_ptr make_statistics "rmm_python::make_immediate_over<rmm::mr::statistics_resource_adaptor>"(
        resource_ptr, immediate_resource*, immediate_resource*&) except +
    resource_ptr make_tracking "rmm_python::make_resource_over<rmm::mr::tracking_resource_adaptor>"(
        resource_ptr, bool, leak_report) except +
    resource_ptr make_prefetch "rmm_python::make_resource_over<rmm::mr::prefetch_resource_adaptor>"(resource_ptr) except +
    resource_ptr make_aligned "rmm_python::make_resource_over<rmm::mr::aligned_resource_adaptor>"(
        resource_ptr, size_t, size_t) except +
    resource_ptr make_thread_safe "rmm_python::make_resource_over<rmm::mr::thread_safe_resource_adaptor>"(
        resource_ptr) except +
    resource_ptr make_guard(resource_ptr, size_t, size_t, bool, python_guard_handler, PyObject*) except +
    const char* c_name_of_violation "rmm_python::name_of"(const guard_violation&)
    resource_ptr make_trace(resource_ptr, string) except +
    resource_ptr make_environment_trace(resource_ptr, int) except +
    void c_flush_environment_trace "rmm_python::flush_environment_trace"(device_memory_resource*)
    string c_file_of_environment_trace "rmm_python::file_of_environment_trace"(device_memory_resource*) except +


cdef class LimitingResourceAdaptor(UpstreamResourceAdaptor):
    """Takes no more than `allocation_limit` bytes at a time from `upstream_mr`."""

    def __cinit__(self, DeviceMemoryResource upstream_mr, allocation_limit):
        self.c_obj = make_limiting(upstream_mr.c_obj, upstream_mr.immediate(), self._immediate, size_of(allocation_limit))
        self._asked = self.c_obj.get()

    def get_allocated_bytes(self):
        """Bytes in use."""
        return (<limiting_resource_adaptor[base]*>self.usable())[0].get_allocated_bytes()

    def get_allocation_limit(self):
        """The most bytes that may be in use."""
        return (<limiting_resource_adaptor[base]*>self.usable())[0].get_allocation_limit()


def _log_file_name_of_device(name, int device):
    root, extension = os.path.splitext(os.path.abspath(os.fspath(name)))
    return f"{root}.dev{device}{extension}"


@cython.no_gc_clear
cdef class LoggingResourceAdaptor(UpstreamResourceAdaptor):
    """Writes each allocation and deallocation to a CSV file.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    log_file_name:
        Name of the file, into which `.dev` and the number of the current device are put before its extension. The value of
        the environment variable RMM_LOG_FILE if None. `rmm.LogFileError`, an OSError, if it cannot be written.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, log_file_name=None):
        cdef resource_ptr upstream = upstream_mr.c_obj
        if log_file_name is None:
            log_file_name = os.environ.get("RMM_LOG_FILE")
        if not log_file_name:
            raise ValueError("RMM log file must be specified either using log_file_name= argument or RMM_LOG_FILE environment variable")
        self._log_file_name = _log_file_name_of_device(log_file_name, c_current_device())
        cdef string c_name = os.fsencode(self._log_file_name)
        with nogil:
            self.c_obj = make_logging(upstream, c_name)

    cpdef flush(self):
        """Writes what is buffered."""
        with nogil:
            (<logging_resource_adaptor[base]*>self.usable())[0].flush()

    cpdef get_file_name(self):
        """Absolute name of the file."""
        self.usable()  # else there is no name
        return self._log_file_name


cdef _statistics(statistics_resource_adaptor[base].counter byte_count, statistics_resource_adaptor[base].counter count):
    from rmm.statistics import Statistics

    return Statistics(byte_count.value, count.value, byte_count.peak, count.peak, byte_count.total, count.total)


cdef class StatisticsResourceAdaptor(UpstreamResourceAdaptor):
    """Counts the bytes and the allocations that are in use, their peak and their total."""

    def __cinit__(self, DeviceMemoryResource upstream_mr):
        self.c_obj = make_statistics(upstream_mr.c_obj, upstream_mr.immediate(), self._immediate)
        self._asked = self.c_obj.get()

    @property
    def allocation_counts(self):
        """The `rmm.statistics.Statistics` since the adaptor was made, or since the last push."""
        cdef statistics_resource_adaptor[base]* mr = <statistics_resource_adaptor[base]*>self.usable()
        return _statistics(mr[0].get_bytes_counter(), mr[0].get_allocations_counter())

    def push_counters(self):
        """Starts to count from zero; returns the statistics until now. `pop_counters` ends that."""
        counters = (<statistics_resource_adaptor[base]*>self.usable())[0].push_counters()
        return _statistics(counters.first, counters.second)

    def pop_counters(self):
        """Ends what the last `push_counters` started: returns its statistics, and adds them to those before.

        IndexError if there was none.
        """
        counters = (<statistics_resource_adaptor[base]*>self.usable())[0].pop_counters()
        return _statistics(counters.first, counters.second)


cdef class TrackingResourceAdaptor(UpstreamResourceAdaptor):
    """Remembers every allocation that was not given back, to find leaks.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    capture_stacks:
        Whether to remember the stack of C++ functions of each. Slow.
    report_leaks:
        Whether to write to standard error what was never given back, when the adaptor goes or the process ends.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, bool capture_stacks=False, bool report_leaks=False):
        cdef leak_report leaks = leak_report.at_end if report_leaks else leak_report.never
        self.c_obj = make_tracking(upstream_mr.c_obj, capture_stacks, leaks)

    def get_allocated_bytes(self):
        """Bytes in use."""
        return (<tracking_resource_adaptor[base]*>self.usable())[0].get_allocated_bytes()

    def get_outstanding_allocations_str(self):
        """A line for each allocation in use, with its stack if that was captured."""
        cdef string text
        with nogil:
            text = (<tracking_resource_adaptor[base]*>self.usable())[0].get_outstanding_allocations_str()
        return text.decode("utf-8", "replace")

    def get_leak_report(self):
        """How much is in use, and from which call stacks if they were captured, most bytes first. Empty if nothing is."""
        cdef string text
        with nogil:
            text = (<tracking_resource_adaptor[base]*>self.usable())[0].get_leak_report()
        return text.decode("utf-8", "replace")

    def log_outstanding_allocations(self):
        """Writes them to the debug log, at level debug."""
        with nogil:
            (<tracking_resource_adaptor[base]*>self.usable())[0].log_outstanding_allocations()


cdef class PrefetchResourceAdaptor(UpstreamResourceAdaptor):
    """Prefetches what it allocates to the current device. Makes a difference for managed memory."""

    def __cinit__(self, DeviceMemoryResource upstream_mr):
        self.c_obj = make_prefetch(upstream_mr.c_obj)


cdef class AlignedResourceAdaptor(UpstreamResourceAdaptor):
    """Memory at addresses that are multiples of `alignment`.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    alignment:
        Bytes, a power of two.
    alignment_threshold:
        Allocations of fewer bytes are aligned to 256 bytes only.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, alignment=256, alignment_threshold=0):
        self.c_obj = make_aligned(upstream_mr.c_obj, size_of(alignment), size_of(alignment_threshold))


@cython.no_gc_clear
cdef class GuardResourceAdaptor(UpstreamResourceAdaptor):
    """Finds misuse of memory: writes beside an allocation or after it was freed, second frees, frees of wrong pointers and sizes.

    For debugging: each allocation has red zones on both sides, which are checked when it is freed; new and freed memory is
    overwritten; and what was freed last is not allocated again for a while. Each free waits for its stream.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    red_zone_bytes:
        Bytes before and after each allocation.
    quarantine_bytes:
        Bytes of freed memory that are kept from being allocated again, as int or string.
    capture_stacks:
        Whether reports have the stacks of C++ functions of the allocation and the first free.
    handler:
        Called with a `rmm.memory_report.GuardViolation`, by the thread that noticed it. Exceptions in it are reported
        (`sys.unraisablehook`) and go no further. If None the report is written to standard error and the process aborts. One
        that refers to the resource keeps it alive for ever: it may be called while the resource ends.
    """

    def __cinit__(
        self,
        DeviceMemoryResource upstream_mr,
        *,
        size_t red_zone_bytes=256,
        quarantine_bytes="16MiB",
        bool capture_stacks=True,
        handler=None,
    ):
        cdef size_t c_quarantine = parse_bytes(quarantine_bytes)
        if handler is not None:
            expect_callable(handler)
        self._handler = handler
        self.c_obj = make_guard(
            upstream_mr.c_obj, red_zone_bytes, c_quarantine, capture_stacks, call_guard_handler, <PyObject*>handler)


cdef void call_guard_handler(void* function, const guard_violation& found) noexcept with gil:
    from rmm.memory_report import GuardViolation

    (<object><PyObject*>function)(
        GuardViolation(
            (<bytes>c_name_of_violation(found)).decode(),
            <uintptr_t>found.ptr,
            found.bytes,
            found.offset,
            found.report.decode("utf-8", "replace"),
        ))


cdef class TraceResourceAdaptor(UpstreamResourceAdaptor):
    """Writes each allocation, failed allocation and deallocation to a binary trace, for replay and reports.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    file_name:
        The file; `%p` in it is the number of the process, `%d` that of the device. The value of the environment variable
        RMM_TRACE_FILE if None.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, file_name=None):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef string c_name
        if file_name is not None:
            c_name = os.fsencode(os.path.abspath(os.fspath(file_name)))
        elif not os.environ.get("RMM_TRACE_FILE"):
            raise ValueError("the trace needs a file: give file_name, or set RMM_TRACE_FILE")
        with nogil:
            self.c_obj = make_trace(upstream, c_name)

    def flush(self):
        """Writes what is buffered."""
        with nogil:
            (<trace_resource_adaptor[base]*>self.usable())[0].flush()

    def get_file_name(self):
        """Absolute name of the first file of the trace."""
        return os.path.abspath(os.fsdecode((<trace_resource_adaptor[base]*>self.usable())[0].get_file_name()))

    def get_lost_events(self):
        """How many events could not be written. 0 is good."""
        return (<trace_resource_adaptor[base]*>self.usable())[0].get_lost_events()


cdef class EnvironmentTrace(UpstreamResourceAdaptor):
    """Writes what goes through it to the trace of its device, which RMM_TRACE_FILE names; in everything else it is its upstream.

    With RMM_TRACE_FILE set, `set_per_device_resource` puts it around each resource.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, int device):
        self.c_obj = make_environment_trace(upstream_mr.c_obj, device)

    def __getattr__(self, name):
        return getattr(self.upstream_mr, name)

    def flush(self):
        """Writes what is buffered."""
        with nogil:
            c_flush_environment_trace(self.usable())

    def get_file_name(self):
        """Absolute name of the first file of the trace; None if it cannot be written, which is logged."""
        cdef string name = c_file_of_environment_trace(self.usable())
        return None if name.empty() else os.path.abspath(os.fsdecode(name))


cdef class ThreadSafeResourceAdaptor(UpstreamResourceAdaptor):
    """Lets one thread at a time use `upstream_mr`."""

    def __cinit__(self, DeviceMemoryResource upstream_mr):
        self.c_obj = make_thread_safe(upstream_mr.c_obj)
