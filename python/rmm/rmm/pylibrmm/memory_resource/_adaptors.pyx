# SPDX-License-Identifier: Apache-2.0
"""Resources that add a feature to their upstream."""

cimport cython
from cpython.object cimport PyObject
from libc.stddef cimport ptrdiff_t, size_t
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool
from libcpp.string cimport string

from rmm.librmm._asked_adaptors cimport (
    leak_report,
    limiting_resource_adaptor,
    logging_resource_adaptor,
    statistics_resource_adaptor,
    tracking_resource_adaptor,
)
from rmm.librmm._device_memory_resource cimport device_memory_resource
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
    """An adaptor that refuses allocations beyond a limit.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    allocation_limit : int or str
        The most bytes in use at a time. An allocation beyond it raises MemoryError.

    Examples
    --------
    >>> import rmm
    >>> limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), 1 << 20)
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=limited)
    >>> limited.get_allocated_bytes(), limited.get_allocation_limit()
    (1024, 1048576)
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, allocation_limit):
        self.c_obj = make_limiting(upstream_mr.c_obj, upstream_mr.immediate(), self._immediate, size_of(allocation_limit))
        self._asked = self.c_obj.get()

    def get_allocated_bytes(self):
        """Return the bytes in use, as the limit counts them.

        Returns
        -------
        int
            The sum of the sizes of live allocations, each rounded up to 256.

        Examples
        --------
        >>> import rmm
        >>> limiting = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=limiting)
        >>> limiting.get_allocated_bytes()
        1024
        """
        return (<limiting_resource_adaptor[base]*>self.usable())[0].get_allocated_bytes()

    def get_allocation_limit(self):
        """Return the most bytes that may be in use.

        Returns
        -------
        int
            The limit.

        Examples
        --------
        >>> import rmm
        >>> rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), "1MiB").get_allocation_limit()
        1048576
        """
        return (<limiting_resource_adaptor[base]*>self.usable())[0].get_allocation_limit()


def _log_file_name_of_device(name, int device):
    root, extension = os.path.splitext(os.path.abspath(os.fsdecode(name)))
    return f"{root}.dev{device}{extension}"


def name_of_log(log_file_name):
    """Returns the name, or the one in RMM_LOG_FILE if it is None. Raises ValueError if that names no file either."""
    if log_file_name is None:
        log_file_name = os.environ.get("RMM_LOG_FILE")
    if not log_file_name:
        raise ValueError("RMM log file must be specified either using log_file_name= argument or RMM_LOG_FILE environment variable")
    return log_file_name


def encoded_name(name):
    """Returns the bytes of a file's name. Raises ValueError if they contain a null character, at which C++ would end the name."""
    encoded = os.fsencode(name)
    if b"\0" in encoded:
        raise ValueError(f"the name of the file has an embedded null character: {name!r}")
    return encoded


@cython.no_gc_clear
cdef class LoggingResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that writes each allocation and deallocation to a CSV file.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    log_file_name : str, bytes or os.PathLike, optional
        The name of the file. `.dev` and the number of the current device are inserted before its extension. If None, the
        environment variable RMM_LOG_FILE names the file.

    Raises
    ------
    rmm.LogFileError
        If the file cannot be written. This is an OSError.
    ValueError
        If no file is named.

    Examples
    --------
    >>> import os, tempfile
    >>> import rmm
    >>> name = os.path.join(tempfile.mkdtemp(), "log.csv")
    >>> logged = rmm.mr.LoggingResourceAdaptor(rmm.mr.CudaMemoryResource(), name)
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=logged)
    >>> logged.flush()
    >>> os.path.basename(logged.get_file_name())
    'log.dev0.csv'
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, log_file_name=None):
        cdef resource_ptr upstream = upstream_mr.c_obj
        self._log_file_name = _log_file_name_of_device(name_of_log(log_file_name), c_current_device())
        cdef string c_name = encoded_name(self._log_file_name)
        with nogil:
            self.c_obj = make_logging(upstream, c_name)

    cpdef flush(self):
        """Write buffered lines to the file.

        Examples
        --------
        >>> import os
        >>> import tempfile
        >>> import rmm
        >>> name = os.path.join(tempfile.mkdtemp(), "log.csv")
        >>> logging = rmm.mr.LoggingResourceAdaptor(rmm.mr.CudaMemoryResource(), name)
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=logging)
        >>> logging.flush()
        """
        with nogil:
            (<logging_resource_adaptor[base]*>self.usable())[0].flush()

    cpdef get_file_name(self):
        """Return the name of the file.

        Returns
        -------
        str
            The absolute name.

        Examples
        --------
        >>> import os
        >>> import tempfile
        >>> import rmm
        >>> name = os.path.join(tempfile.mkdtemp(), "log.csv")
        >>> logging = rmm.mr.LoggingResourceAdaptor(rmm.mr.CudaMemoryResource(), name)
        >>> os.path.basename(logging.get_file_name())
        'log.dev0.csv'
        """
        self.usable()  # raises TypeError if the constructor failed
        return self._log_file_name


cdef _statistics(statistics_resource_adaptor[base].counter byte_count, statistics_resource_adaptor[base].counter count):
    from rmm.statistics import Statistics

    return Statistics(byte_count.value, count.value, byte_count.peak, count.peak, byte_count.total, count.total)


cdef class StatisticsResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that counts bytes and allocations: in use, at the peak, and in total.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.

    Examples
    --------
    >>> import rmm
    >>> counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    >>> buffer = rmm.DeviceBuffer(size=1024, mr=counted)
    >>> counted.allocation_counts.peak_bytes
    1024
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr):
        self.c_obj = make_statistics(upstream_mr.c_obj, upstream_mr.immediate(), self._immediate)
        self._asked = self.c_obj.get()

    @property
    def allocation_counts(self):
        """The `rmm.statistics.Statistics` since the adaptor was made, or since the last push."""
        cdef statistics_resource_adaptor[base]* mr = <statistics_resource_adaptor[base]*>self.usable()
        return _statistics(mr[0].get_bytes_counter(), mr[0].get_allocations_counter())

    def push_counters(self):
        """Save the counters, and count from zero until `pop_counters` is called.

        Returns
        -------
        rmm.statistics.Statistics
            The statistics until now.

        Examples
        --------
        >>> import rmm
        >>> counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
        >>> before = counted.push_counters()
        >>> buffer = rmm.DeviceBuffer(size=1024, mr=counted)
        >>> counted.pop_counters().total_bytes
        1024
        """
        counters = (<statistics_resource_adaptor[base]*>self.usable())[0].push_counters()
        return _statistics(counters.first, counters.second)

    def pop_counters(self):
        """Restore the counters of the last `push_counters`, and add the counts since then to them.

        Returns
        -------
        rmm.statistics.Statistics
            The statistics since the last push.

        Raises
        ------
        IndexError
            If there was no push.

        Examples
        --------
        >>> import rmm
        >>> resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
        >>> counters = resource.push_counters()
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=resource)
        >>> resource.pop_counters().peak_count
        1
        """
        counters = (<statistics_resource_adaptor[base]*>self.usable())[0].pop_counters()
        return _statistics(counters.first, counters.second)


cdef class TrackingResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that records all live allocations, to find leaks.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    capture_stacks : bool, optional
        Whether to record the stack of C++ functions of each allocation. This is slow.
    report_leaks : bool, optional
        Whether to write memory that has not been freed to standard error, when the adaptor is destroyed or the process ends.

    Examples
    --------
    >>> import rmm
    >>> tracked = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())
    >>> buffer = rmm.DeviceBuffer(size=1024, mr=tracked)
    >>> tracked.get_allocated_bytes()
    1024
    >>> print(tracked.get_leak_report(), end="")
    RMM: 1024 B in 1 allocations have not been freed
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, bool capture_stacks=False, bool report_leaks=False):
        cdef leak_report leaks = leak_report.at_end if report_leaks else leak_report.never
        self.c_obj = make_tracking(upstream_mr.c_obj, capture_stacks, leaks)

    def get_allocated_bytes(self):
        """Return the bytes of all live allocations.

        Returns
        -------
        int
            The sum of the sizes of live allocations.

        Examples
        --------
        >>> import rmm
        >>> tracking = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=tracking)
        >>> tracking.get_allocated_bytes()  # a multiple of 16
        1008
        """
        return (<tracking_resource_adaptor[base]*>self.usable())[0].get_allocated_bytes()

    def get_outstanding_allocations_str(self):
        """Describe each live allocation.

        Returns
        -------
        str
            One line for each allocation, with its stack if that was recorded.

        Examples
        --------
        >>> import rmm
        >>> tracked = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())
        >>> buffer = rmm.DeviceBuffer(size=1024, mr=tracked)
        >>> len(tracked.get_outstanding_allocations_str().splitlines())
        1
        """
        cdef string text
        with nogil:
            text = (<tracking_resource_adaptor[base]*>self.usable())[0].get_outstanding_allocations_str()
        return text.decode("utf-8", "replace")

    def get_leak_report(self):
        """Describe the live allocations by call stack.

        Returns
        -------
        str
            The bytes in use, and the call stacks if they were recorded, in descending order of bytes. Empty if nothing is live.

        Examples
        --------
        >>> import rmm
        >>> tracking = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=tracking)
        >>> report = tracking.get_leak_report()
        """
        cdef string text
        with nogil:
            text = (<tracking_resource_adaptor[base]*>self.usable())[0].get_leak_report()
        return text.decode("utf-8", "replace")

    def log_outstanding_allocations(self):
        """Write the live allocations to the debug log, at level debug.

        Examples
        --------
        >>> import rmm
        >>> tracking = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())
        >>> tracking.log_outstanding_allocations()  # logs nothing: nothing is allocated
        """
        with nogil:
            (<tracking_resource_adaptor[base]*>self.usable())[0].log_outstanding_allocations()


cdef class PrefetchResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that prefetches each allocation to the current device. For managed memory.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.

    Examples
    --------
    >>> import rmm
    >>> prefetched = rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource())
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=prefetched)
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr):
        self.c_obj = make_prefetch(upstream_mr.c_obj)


cdef class AlignedResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that aligns allocations to more than 256 bytes.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    alignment : int or str, optional
        The alignment in bytes, a power of two.
    alignment_threshold : int or str, optional
        The smallest size to align so. Smaller allocations are aligned to 256 bytes.

    Raises
    ------
    RuntimeError
        If `alignment` is not a power of two.

    Examples
    --------
    >>> import rmm
    >>> aligned = rmm.mr.AlignedResourceAdaptor(rmm.mr.CudaMemoryResource(), 4096)
    >>> rmm.DeviceBuffer(size=1000, mr=aligned).ptr % 4096
    0
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, alignment=256, alignment_threshold=0):
        self.c_obj = make_aligned(upstream_mr.c_obj, size_of(alignment), size_of(alignment_threshold))


@cython.no_gc_clear
cdef class GuardResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that finds misuse of memory: writes outside of allocations or after their free, and wrong frees. For debugging.

    Each allocation has a red zone on both sides, which is checked when the allocation is freed. New and freed memory is
    overwritten with patterns. Memory that was freed lately is not allocated again for a while. Each free waits for its stream.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    red_zone_bytes : int, optional
        The bytes before and after each allocation.
    quarantine_bytes : int or str, optional
        The bytes of freed memory that are not allocated again yet.
    capture_stacks : bool, optional
        Whether reports have the stacks of C++ functions of the allocation and the first free.
    handler : callable, optional
        A function that is called with a `rmm.memory_report.GuardViolation`, on the thread that detected it. Its exceptions are
        reported to `sys.unraisablehook` and ignored. If None, the report is written to standard error and the process aborts. A
        handler that refers to the adaptor keeps it alive for ever, because the adaptor owns its handler, and may call it even during
        its own destruction.

    Examples
    --------
    >>> import rmm
    >>> guarded = rmm.mr.GuardResourceAdaptor(rmm.mr.CudaMemoryResource(), handler=lambda found: print(found.what))
    >>> buffer = rmm.DeviceBuffer(size=1024, mr=guarded)
    >>> rmm.pylibrmm.device_buffer.copy_host_to_ptr(b"x", buffer.ptr + 1024)  # behind the end
    >>> del buffer
    overrun
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
    """An adaptor that writes each allocation, failed allocation and deallocation to a binary trace, for replay and reports.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    file_name : str or os.PathLike, optional
        The name of the file. `%p` stands for the id of the process, `%d` for the number of the device. If None, the environment
        variable RMM_TRACE_FILE names the file.

    Raises
    ------
    ValueError
        If no file is named.
    RuntimeError
        If the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import rmm
    >>> name = os.path.join(tempfile.mkdtemp(), "trace.bin")
    >>> traced = rmm.mr.TraceResourceAdaptor(rmm.mr.CudaMemoryResource(), name)
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=traced)
    >>> traced.flush()
    >>> traced.get_lost_events()
    0
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, file_name=None):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef string c_name
        if file_name is not None:
            c_name = encoded_name(os.path.abspath(os.fspath(file_name)))
        elif not os.environ.get("RMM_TRACE_FILE"):
            raise ValueError("the trace has no file name: pass file_name, or set RMM_TRACE_FILE")
        with nogil:
            self.c_obj = make_trace(upstream, c_name)

    def flush(self):
        """Write buffered events to the file.

        Examples
        --------
        >>> import os
        >>> import tempfile
        >>> import rmm
        >>> name = os.path.join(tempfile.mkdtemp(), "program.trace")
        >>> trace = rmm.mr.TraceResourceAdaptor(rmm.mr.CudaMemoryResource(), name)
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=trace)
        >>> trace.flush()
        """
        with nogil:
            (<trace_resource_adaptor[base]*>self.usable())[0].flush()

    def get_file_name(self):
        """Return the name of the first file of the trace.

        Returns
        -------
        str
            The absolute name.

        Examples
        --------
        >>> import os
        >>> import tempfile
        >>> import rmm
        >>> name = os.path.join(tempfile.mkdtemp(), "program.trace")
        >>> rmm.mr.TraceResourceAdaptor(rmm.mr.CudaMemoryResource(), name).get_file_name() == name
        True
        """
        return os.path.abspath(os.fsdecode((<trace_resource_adaptor[base]*>self.usable())[0].get_file_name()))

    def get_lost_events(self):
        """Return the number of events that could not be written, for example because the disk is full.

        Returns
        -------
        int
            The number of events; 0 if all were written.

        Examples
        --------
        >>> import os
        >>> import tempfile
        >>> import rmm
        >>> name = os.path.join(tempfile.mkdtemp(), "program.trace")
        >>> trace = rmm.mr.TraceResourceAdaptor(rmm.mr.CudaMemoryResource(), name)
        >>> trace.get_lost_events()
        0
        """
        return (<trace_resource_adaptor[base]*>self.usable())[0].get_lost_events()


cdef class EnvironmentTrace(UpstreamResourceAdaptor):
    """An adaptor that writes all calls to the trace of its device, which RMM_TRACE_FILE names. All other attributes are its upstream's.

    With RMM_TRACE_FILE set, `set_per_device_resource` puts one over each resource.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, int device):
        self.c_obj = make_environment_trace(upstream_mr.c_obj, device)

    def __getattr__(self, name):
        return getattr(self.upstream_mr, name)

    def flush(self):
        """Write buffered events to the file."""
        with nogil:
            c_flush_environment_trace(self.usable())

    def get_file_name(self):
        """Return the name of the first file of the trace.

        Returns
        -------
        str or None
            The absolute name; None if the file cannot be written, which is logged.
        """
        cdef string name = c_file_of_environment_trace(self.usable())
        return None if name.empty() else os.path.abspath(os.fsdecode(name))


cdef class ThreadSafeResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that lets only one thread at a time call `upstream_mr`.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.

    Examples
    --------
    >>> import rmm
    >>> locked = rmm.mr.ThreadSafeResourceAdaptor(rmm.mr.CudaMemoryResource())
    >>> buffer = rmm.DeviceBuffer(size=1000, mr=locked)
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr):
        self.c_obj = make_thread_safe(upstream_mr.c_obj)
