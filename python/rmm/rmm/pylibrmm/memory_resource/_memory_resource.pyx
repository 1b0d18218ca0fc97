# SPDX-License-Identifier: Apache-2.0
"""Memory resources, and which of them serves which device."""

cimport cython
from cpython.object cimport PyObject
from cuda.bindings.cyruntime cimport cudaMemPool_t, cudaStream_t
from libc.stddef cimport ptrdiff_t, size_t
from libc.stdint cimport int8_t, int64_t, uint32_t, uint64_t, uintptr_t
from libcpp cimport bool
from libcpp.memory cimport shared_ptr
from libcpp.optional cimport make_optional, optional
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from rmm.librmm cimport memory_resource as librmm
from rmm.librmm._device_memory_resource cimport device_memory_resource, use_unrounded_sizes as c_use_unrounded_sizes
from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.librmm.memory_resource cimport (
    CppExcept,
    allocation_handle_type,
    cuda_async_managed_memory_resource,
    cuda_async_memory_resource,
    cuda_async_view_memory_resource,
    leak_report,
    limiting_resource_adaptor,
    logging_resource_adaptor,
    percent_of_free_device_memory,
    statistics_resource_adaptor,
    tracking_resource_adaptor,
    translate_python_except_to_cpp,
)
from rmm.librmm.tag_scope cimport tag as cpp_tag
from rmm.pylibrmm.helper cimport parse_bytes
from rmm.pylibrmm.logger cimport connect_log
from rmm.pylibrmm.scopes cimport tag
from rmm.pylibrmm.stream cimport Stream
from rmm.pylibrmm.utils cimport as_stream

import atexit
import errno
import os
import threading

from rmm._cuda._runtime import device_count
from rmm.pylibrmm._attributes import describe_attribute
from rmm.pylibrmm.stream import DEFAULT_STREAM


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "pylibrmm/memory_resource/_raise.hpp" namespace "rmm_python":
    cdef struct exception_makers:
        object (*reported_memory_error)(const char* text, const void* report)
        object (*file_error)(const void* error)

    void raise_current(const exception_makers& make)


cdef void raise_error() noexcept:
    """Raises the C++ exception that is being handled, with the report that it has.

    Each module has a function like this: another one may have a C++ runtime of its own, which knows of no exception.
    """
    raise_current(makers)


cdef extern from "rmm/detail/base/file_error.hpp" namespace "rmm::detail" nogil:
    cdef cppclass file_error:
        const char* path()
        const char* reason()
        int number()


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


cdef extern from "rmm/mr/pool_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass growing_pool "rmm::mr::detail::growing_pool"(device_memory_resource):
        size_t pool_size()
        void track_tags(bool on) except +
        vector[holder] live_by_tag_name() except +
        recovery_order get_recovery_order() except +
        void set_check_capture(bool on)
        bool check_capture()


cdef extern from "rmm/mr/elastic_pool_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef enum class paused_contents:
        dropped
        kept_pageable
        kept_pinned

    cdef cppclass elastic_pool_memory_resource(device_memory_resource):
        size_t tick()
        void pause(paused_contents contents) except +raise_error
        void resume() except +raise_error
        bool is_paused()
        void set_pausable(cpp_tag which) except +raise_error
        void pause(cpp_tag which, paused_contents contents) except +raise_error
        void resume(cpp_tag which) except +raise_error
        bool is_paused(cpp_tag which) except +
        size_t mapped_bytes()
        size_t chunk_bytes()
        bool has_virtual_memory()


cdef extern from "rmm/mr/registered_host_memory_resource.hpp" namespace "rmm::mr" nogil:
    cdef cppclass registered_host_memory_resource(device_memory_resource):
        optional[int] numa_node()


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


cdef extern from "pylibrmm/memory_resource/_snapshots.hpp" namespace "rmm_python" nogil:
    string c_snapshot_of "rmm_python::snapshot_of"(device_memory_resource*) except +


cdef extern from "pylibrmm/memory_resource/_python_frames.hpp" namespace "rmm_python":
    void offer_python_frames() noexcept
    void c_end_python_frames "rmm_python::end_python_frames"() noexcept


cdef extern from *:
    immediate_resource* as_immediate "dynamic_cast<rmm::mr::detail::immediate_resource*>"(device_memory_resource*)


cdef extern from "pylibrmm/memory_resource/_lent_callables.hpp" namespace "rmm_python":
    cdef cppclass lent_functions "rmm_python::lent_callables":
        PyObject* first()
        PyObject* second()
        void own()
        void note_allocated()
        void note_deallocated()

    ctypedef shared_ptr[lent_callables] lent_ptr
    lent_ptr lend(PyObject* first, PyObject* second) except +


ctypedef device_memory_resource base
ctypedef shared_ptr[device_memory_resource] resource_ptr


cdef extern from "pylibrmm/memory_resource/_environment_trace.hpp" namespace "rmm_python" nogil:
    resource_ptr make_environment_trace(resource_ptr, int) except +
    void c_flush_environment_trace "rmm_python::flush_environment_trace"(device_memory_resource*)
    string c_file_of_environment_trace "rmm_python::file_of_environment_trace"(device_memory_resource*) except +


cdef extern from "pylibrmm/memory_resource/_python_exception.hpp" namespace "rmm_python":
    cdef cppclass python_error:
        void note(PyObject* exception, CppExcept kind_and_text)


ctypedef void* (*python_allocate)(lent_callables&, size_t, cudaStream_t, python_error&) noexcept
ctypedef void (*python_deallocate)(lent_callables&, void*, size_t, cudaStream_t) noexcept
ctypedef bool (*python_failure_callback)(lent_callables&, size_t, python_error&) noexcept
ctypedef void (*python_guard_handler)(void*, const guard_violation&) noexcept


cdef extern from "pylibrmm/memory_resource/_owned_resources.hpp" namespace "rmm_python" nogil:
    int c_current_device "rmm_python::current_device"() except +
    resource_ptr make_cuda "rmm_python::make_resource<rmm::mr::cuda_memory_resource>"() except +
    resource_ptr make_managed "rmm_python::make_resource<rmm::mr::managed_memory_resource>"() except +
    resource_ptr make_system "rmm_python::make_resource<rmm::mr::system_memory_resource>"() except +
    resource_ptr make_pinned_host "rmm_python::make_resource<rmm::mr::pinned_host_memory_resource>"() except +
    resource_ptr make_sam_headroom "rmm_python::make_resource<rmm::mr::sam_headroom_memory_resource>"(size_t) except +
    resource_ptr make_cuda_async "rmm_python::make_resource<rmm::mr::cuda_async_memory_resource>"(
        optional[size_t], optional[size_t], allocation_handle_type) except +raise_error
    resource_ptr make_cuda_async_view "rmm_python::make_resource<rmm::mr::cuda_async_view_memory_resource>"(
        cudaMemPool_t) except +
    resource_ptr make_cuda_async_managed "rmm_python::make_resource<rmm::mr::cuda_async_managed_memory_resource>"() except +
    resource_ptr make_pool "rmm_python::make_resource_over<rmm::mr::pool_memory_resource>"(
        resource_ptr, size_t, optional[size_t]) except +raise_error
    resource_ptr make_arena "rmm_python::make_resource_over<rmm::mr::arena_memory_resource>"(
        resource_ptr, optional[size_t], bool) except +raise_error
    resource_ptr make_fixed_size "rmm_python::make_resource_over<rmm::mr::fixed_size_memory_resource>"(
        resource_ptr, size_t, size_t) except +raise_error
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
    resource_ptr make_cached "rmm_python::make_resource_over<rmm::mr::cached_memory_resource>"(
        resource_ptr, size_t, optional[size_t], size_t) except +raise_error
    resource_ptr make_elastic_pool(size_t, optional[size_t], size_t, int64_t, bool, bool, bool, bool) except +raise_error
    cdef struct exported_block:
        size_t offset_bytes
        size_t bytes
        size_t chunk_bytes
        vector[int] descriptors
        vector[string] fabric_handles

    exported_block c_export_descriptors "rmm_python::export_descriptors"(
        const elastic_pool_memory_resource&, const void*, size_t) except +
    exported_block c_export_fabric "rmm_python::export_fabric"(
        const elastic_pool_memory_resource&, const void*, size_t) except +
    resource_ptr make_pinned_pool(size_t, optional[size_t], bool, int, unsigned) except +raise_error
    resource_ptr make_registered_host(bool, int, unsigned) except +
    resource_ptr make_guard(resource_ptr, size_t, size_t, bool, python_guard_handler, PyObject*) except +
    resource_ptr make_trace(resource_ptr, string) except +
    resource_ptr make_configured(string, string&) except +raise_error
    size_t c_trim_to "rmm_python::trim_to"(device_memory_resource*, size_t) except +
    heap_figures c_figures_of "rmm_python::figures_of"(device_memory_resource*) except +
    growing_pool* c_pool_behind "rmm_python::pool_behind"(device_memory_resource*)
    vector[rung_figures] c_rung_figures "rmm_python::rung_figures_of"(const heap_figures&) except +
    void c_set_recovery_order "rmm_python::set_recovery_order"(growing_pool*, const vector[string]&) except +
    void c_set_failure_callback "rmm_python::set_failure_callback"(
        growing_pool*, python_failure_callback, lent_ptr) except +
    resource_ptr c_reserve "rmm_python::reserve"(resource_ptr, size_t, cuda_stream_view, bool) except +raise_error
    const char* c_name_of_violation "rmm_python::name_of"(const guard_violation&)
    resource_ptr make_binning(resource_ptr, int, int) except +raise_error
    void add_bin_to(resource_ptr, size_t, resource_ptr) except +raise_error
    void register_resource(int device, device_memory_resource*, PyObject*) except +
    void unregister_resource(int device) except +
    resource_ptr make_callback_resource(python_allocate, python_deallocate, lent_ptr) except +
    resource_ptr make_failure_callback_resource(resource_ptr, python_failure_callback, lent_ptr) except +


cdef extern from "pylibrmm/memory_resource/_reserved_resource.hpp" namespace "rmm_python" nogil:
    cdef cppclass reserved_resource(device_memory_resource):
        size_t bytes() except +
        size_t used_bytes() except +
        size_t shrink_to(size_t bytes) except +
        void release()


ctypedef exported_block (*export_function)(const elastic_pool_memory_resource&, const void*, size_t) except + nogil


cdef extern from "rmm/mr/device_memory_resource.hpp" namespace "rmm::mr" nogil:
    # allocate() of device_memory_resource, whose declaration others use knows no reports
    cdef cppclass reporting_resource "rmm::mr::device_memory_resource":
        void* allocate(size_t bytes, cuda_stream_view stream) except +raise_error


connect_log()


cdef size_t size_of(object size) except? 0:
    """A number of bytes, given as int or string."""
    return parse_bytes(size) if isinstance(size, str) else size


cdef optional[size_t] optional_size(object size) except *:
    """A number of bytes, given as int or string, that may be missing."""
    if size is None:
        return optional[size_t]()
    return make_optional[size_t](<size_t>parse_bytes(size))


cdef size_t pool_size_of(object size) except? 0:
    """The size of a pool, of which a string is rounded up to whole granules of 256 bytes; numbers have to be multiples of that."""
    number = parse_bytes(size)
    return -(-number // 256) * 256 if isinstance(size, str) else number


cdef optional[size_t] optional_pool_size(object size) except *:
    """The same for a size that may be missing."""
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


cdef heap_figures figures_of(resource) except *:
    cdef device_memory_resource* mr = (<DeviceMemoryResource?>resource).usable()
    cdef heap_figures figures
    with nogil:
        figures = c_figures_of(mr)
    return figures


cdef growing_pool* pool_of(resource) except NULL:
    """The pool that a resource is, or is made of behind adaptors. TypeError for one that has none."""
    cdef growing_pool* pool = c_pool_behind((<DeviceMemoryResource?>resource).usable())
    if pool == NULL:
        raise TypeError(f"{resource!r} has no pool in it")
    return pool


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
    """The report of an allocation that failed, a `rmm::memory_report` of C++, as Python has it."""
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
    """What stands for a rmm::out_of_memory of C++ that has a report."""
    from rmm._errors import ReportedMemoryError

    return ReportedMemoryError((<bytes>text).decode("utf-8", "replace"), report_of(report))


cdef object log_file_error(const void* failed):
    """What stands for a rmm::detail::file_error of C++."""
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


# The garbage collector may not clear resources: C++ calls the functions that they hold, and buffers that it collects with a resource
# still need all that the resource is made of. Nor need it: functions, lists and dictionaries of a cycle are cleared.
@cython.no_gc_clear
cdef class DeviceMemoryResource:
    """Base of the classes that allocate device memory.

    A resource lives as long as anything that was allocated from it through this package, or that was made over it.
    """

    def __dealloc__(self):
        self.keep_lent()
        with nogil:
            self.c_obj.reset()

    cdef void keep_lent(self) noexcept:
        """Before functions that C++ was lent may go: it keeps them itself if the resource goes on, as when one is made over it."""
        if self._lent.get() != NULL and self.c_obj.use_count() > 1:
            (<lent_functions*>self._lent.get()).own()

    cdef void lend_from_now(self, lent_ptr lent) noexcept:
        """Lets go of the functions that C++ was lent before: threads that are about to call them still do."""
        if self._lent.get() != NULL:
            (<lent_functions*>self._lent.get()).own()
        self._lent = lent

    cdef device_memory_resource* get_mr(self) noexcept nogil:
        return self.c_obj.get()

    def allocate(self, size_t nbytes, Stream stream=DEFAULT_STREAM):
        """Allocates `nbytes` bytes, for use on `stream` at once. Returns the address.

        MemoryError where there is not enough memory; where a pool lacks it `rmm.ReportedMemoryError`, whose `report` is a
        `rmm.memory_report.MemoryReport`.
        """
        cdef cuda_stream_view c_stream = as_stream(stream).view()
        cdef void* ptr
        with nogil:
            ptr = (<reporting_resource*>self.usable())[0].allocate(nbytes, c_stream)
        return <uintptr_t>ptr

    def deallocate(self, uintptr_t ptr, size_t nbytes, Stream stream=DEFAULT_STREAM):
        """Gives back what `allocate` returned for the same `nbytes`, in the order of `stream`."""
        cdef cuda_stream_view c_stream = as_stream(stream).view()
        with nogil:
            self.usable()[0].deallocate(<void*>ptr, nbytes, c_stream)

    cdef device_memory_resource* usable(self) except NULL nogil:
        """The resource, or TypeError for an object of this class itself, which has none."""
        if self.c_obj.get() == NULL:
            with gil:
                raise TypeError(f"{type(self).__name__} is not a resource: use one of the classes derived from it")
        return self.c_obj.get()

    cdef immediate_resource* immediate(self) noexcept:
        """The resource as one that serves calls without waiting, for which the GIL may be held; NULL if it is none. Asked once."""
        cdef device_memory_resource* mr = self.c_obj.get()
        if self._asked != mr:
            self._immediate = as_immediate(mr)
            self._asked = mr
        return self._immediate

    def __repr__(self):
        return f"{type(self).__name__}()"


@cython.no_gc_clear
cdef class UpstreamResourceAdaptor(DeviceMemoryResource):
    """Base of the resources that take their memory from another one, which they keep alive.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, *args, **kwargs):
        if upstream_mr is None:
            raise Exception("Argument `upstream_mr` must not be None")
        upstream_mr.usable()
        self.upstream_mr = upstream_mr

    def __dealloc__(self):
        with nogil:
            self.c_obj.reset()  # before the upstream, which may be the Python object's to end

    cpdef DeviceMemoryResource get_upstream(self):
        """Where memory comes from."""
        return self.upstream_mr

    def __repr__(self):
        return f"{type(self).__name__}({self.upstream_mr!r})"


describe_attribute(UpstreamResourceAdaptor, "upstream_mr", "Where memory comes from.")


# --- what several resources can do -----------------------------------------------------------------------------------


class _Suballocator:
    """A resource that divides what it takes."""

    __slots__ = ()

    def figures(self):
        """What the resource holds and how it served, by name: `live_bytes`, `free_bytes`, `largest_free_bytes`, ..."""
        return dict_of(figures_of(self))

    def snapshot(self):
        """All memory of the resource now, range by range: a `rmm.memory_snapshot.MemorySnapshot`.

        That is a dictionary, and a picture in notebooks. Other threads may allocate meanwhile.

        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> pool.snapshot()
        <MemorySnapshot: 1 KiB live, 1023 KiB free, 1 MiB reserved in 1 blocks, fragmentation 0%>
        """
        from rmm.memory_snapshot import MemorySnapshot

        cdef device_memory_resource* mr = (<DeviceMemoryResource?>self).usable()
        cdef string text
        with nogil:
            text = c_snapshot_of(mr)
        return MemorySnapshot.from_json(text.decode(errors="replace"))


class _Binned(_Suballocator):
    """A resource of several; this is outside of it, for as its attribute C code would read it from an object that was never made."""

    __slots__ = ()

    @property
    def _bin_mrs(self):
        return self.bin_mrs


class _Trimmable:
    """A resource that holds memory and can give it back."""

    __slots__ = ()

    def trim_to(self, nbytes):
        """Gives memory that is not in use back until at most `nbytes` bytes stay, where possible. Returns how many went.

        Waits for the work that used it. Other threads may allocate meanwhile.
        """
        cdef device_memory_resource* mr = (<DeviceMemoryResource?>self).usable()
        cdef size_t kept = size_of(nbytes)
        cdef size_t given_back
        with nogil:
            given_back = c_trim_to(mr, kept)
        return given_back

    def release_unused(self):
        """Gives all memory back that is not in use, where possible. Returns how many bytes went."""
        return self.trim_to(0)


class _Reservable:
    """A resource parts of which can be set aside."""

    __slots__ = ()

    def reserve(self, nbytes, Stream stream=DEFAULT_STREAM):
        """Sets `nbytes` bytes, an int or a string, aside: a `MemoryReservation`, which may serve as context manager.

        MemoryError where there is not so much. `stream` is that in whose order the memory goes back at the end.

        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB")
        >>> with pool.reserve("1MiB") as task:
        ...     buffer = rmm.DeviceBuffer(size=1000, mr=task)
        ...     task.used_bytes
        1024
        """
        return reservation_of(<DeviceMemoryResource?>self, nbytes, stream, False)

    def try_reserve(self, nbytes, Stream stream=DEFAULT_STREAM):
        """The same, or None where there is not so much; the failure callback is not asked."""
        return reservation_of(<DeviceMemoryResource?>self, nbytes, stream, True)


class _Pool(_Suballocator, _Reservable):
    """A resource that keeps what is freed, grows, and has things to try before it fails; docs/out-of-memory.md has more."""

    __slots__ = ()

    def pool_size(self):
        """Bytes that the pool holds, allocated or not."""
        cdef growing_pool* pool = pool_of(self)
        cdef size_t size
        with nogil:
            size = pool[0].pool_size()
        return size

    def track_tags(self, bool on=True):
        """Whether the pool notes under which `rmm.tag` each allocation is made, from now on. Off at first, and then of no cost."""
        cdef growing_pool* pool = pool_of(self)
        with nogil:
            pool[0].track_tags(on)

    def live_by_tag(self):
        """What is live under each tag, those with most bytes first: a list of `rmm.memory_report.Holder`.

        Empty unless tags are tracked.
        """
        cdef growing_pool* pool = pool_of(self)
        cdef vector[holder] holders
        with nogil:
            holders = pool[0].live_by_tag_name()
        return list_of(holders)

    def recovery_figures(self):
        """What the pool tried when no free memory fitted, by name: `rmm.memory_report.RungFigures`."""
        from rmm.memory_report import RungFigures

        cdef vector[rung_figures] rungs = c_rung_figures(figures_of(self))
        return {name_of_rung(<recovery_rung>i): RungFigures(rungs[i].tried, rungs[i].served) for i in range(rungs.size())}

    @property
    def recovery_order(self):
        """What the pool tries, in order, when no free memory fits; may be set, for allocations that begin to try later.

        A list out of "reclaim", "grow", "remap", "trim", "synchronize", "callback". ValueError for one that is no such thing
        or is there twice, RuntimeError for one that the pool does not have.
        """
        cdef recovery_order order = pool_of(self)[0].get_recovery_order()
        return [name_of_rung(order[i]) for i in range(order.size())]

    @recovery_order.setter
    def recovery_order(self, rungs):
        if isinstance(rungs, str):
            raise TypeError(f"the order is a list of names, not {rungs!r}")
        cdef growing_pool* pool = pool_of(self)
        cdef vector[string] names = [rung.encode() for rung in rungs]
        with nogil:
            c_set_recovery_order(pool, names)

    def set_failure_callback(self, callback):
        """Has `callback(nbytes: int)` called when the pool is out of memory: True to try again, once it has freed something.

        The last thing that it tries. None for no callback. A MemoryError or RuntimeError in it reaches the caller; any other
        exception is the `__cause__` of a RuntimeError with its text.
        What the callback itself allocates from the pool does not call it again.
        """
        cdef growing_pool* pool = pool_of(self)
        cdef DeviceMemoryResource resource = self
        cdef lent_ptr lent
        if callback is not None:
            expect_callable(callback)
            lent = lend(<PyObject*>callback, NULL)
        resource.lend_from_now(lent)
        resource._failure_callback = callback
        c_set_failure_callback(pool, call_failure_callback, lent)

    @property
    def check_capture(self):
        """Whether each call asks the driver if its stream captures a CUDA graph that no `rmm.capture_scope` announces.

        On at first: then such a capture is an exception. It costs 22 ns a call on an H200, but on the legacy default
        stream, which cannot capture; may be turned off where nothing is captured, or all is announced.
        """
        return pool_of(self)[0].check_capture()

    @check_capture.setter
    def check_capture(self, bool on):
        pool_of(self)[0].set_check_capture(on)


# --- resources that take memory from the runtime ---------------------------------------------------------------------


cdef class CudaMemoryResource(DeviceMemoryResource):
    """Memory of `cudaMalloc`. What a device has if nothing else is set."""

    def __cinit__(self):
        self.c_obj = make_cuda()


cdef class ManagedMemoryResource(DeviceMemoryResource):
    """Managed memory: host and devices use the same addresses, and pages migrate to who touches them."""

    def __cinit__(self):
        self.c_obj = make_managed()


cdef class SystemMemoryResource(DeviceMemoryResource):
    """Memory of the host's own allocator, on devices that can use it. RuntimeError on others."""

    def __cinit__(self):
        self.c_obj = make_system()


cdef class PinnedHostMemoryResource(DeviceMemoryResource):
    """Page-locked memory of the host, which devices can use."""

    def __cinit__(self):
        self.c_obj = make_pinned_host()


cdef class RegisteredHostMemoryResource(DeviceMemoryResource):
    """Page-locked memory of the host in large blocks, ready soon: several threads make its pages. Meant for a pool over it.

    Parameters
    ----------
    near_device:
        Whether to take memory of the NUMA node that is nearest to the current device.
    numa_node:
        The node to take memory of instead.
    threads:
        How many threads make the pages at most; 0 is as many as is worth it.
    """

    def __cinit__(self, *, bool near_device=False, numa_node=None, unsigned threads=0):
        self.c_obj = make_registered_host(near_device, checked_numa_node(numa_node), threads)

    @property
    def numa_node(self):
        """The node that memory is taken from; None if that is left to the system."""
        cdef optional[int] node = (<registered_host_memory_resource*>self.usable())[0].numa_node()
        return node.value() if node.has_value() else None


cdef int checked_numa_node(node) except -2:
    """-1 for None."""
    cdef int number = -1 if node is None else node
    if node is not None and number < 0:
        raise ValueError(f"there is no NUMA node {node}")
    return number


cdef class SamHeadroomMemoryResource(DeviceMemoryResource):
    """Memory of the host's own allocator, placed on the device as long as `headroom` bytes of its memory stay free."""

    def __cinit__(self, headroom):
        self.c_obj = make_sam_headroom(size_of(headroom))


cdef class CudaAsyncMemoryResource(DeviceMemoryResource, _Trimmable):
    """A pool of the driver's (`cudaMallocAsync`), made for this resource.

    Parameters
    ----------
    initial_pool_size:
        Bytes that the pool takes at once, as int or string.
    release_threshold:
        Bytes that it keeps when it is synchronised; all of the device's if None.
    enable_ipc:
        Whether its memory can be exported by file descriptor. RuntimeError where that is not supported.
    enable_fabric:
        Whether it can be exported by fabric handle.
    """

    def __cinit__(self, initial_pool_size=None, release_threshold=None, bool enable_ipc=False, bool enable_fabric=False):
        cdef optional[size_t] c_initial = optional_size(initial_pool_size)
        cdef optional[size_t] c_threshold = optional_size(release_threshold)
        cdef int handles = 0
        if enable_ipc:
            handles |= <int>allocation_handle_type.posix_file_descriptor
        if enable_fabric:
            handles |= <int>allocation_handle_type.fabric
        try:
            self.c_obj = make_cuda_async(c_initial, c_threshold, <allocation_handle_type>handles)
        except RuntimeError as error:
            # the texts of several releases: callers look at the end of it
            text = str(error).removesuffix(" by the device")
            raise RuntimeError(text) from None

    def pool_handle(self):
        """Handle of the driver's pool."""
        return <uintptr_t>(<cuda_async_memory_resource*>self.usable())[0].pool_handle()


cdef class CudaAsyncViewMemoryResource(DeviceMemoryResource):
    """A pool of the driver's that someone else owns.

    Parameters
    ----------
    pool_handle:
        A `cudaMemPool_t` or `CUmemoryPool` of CUDA Python. ValueError for anything else.
    """

    def __cinit__(self, pool_handle):
        if type(pool_handle).__name__ not in ("cudaMemPool_t", "CUmemoryPool"):
            raise ValueError(f"pool_handle must be a cudaMemPool_t or a CUmemoryPool of CUDA Python, not {type(pool_handle)}")
        cdef uintptr_t handle = pool_handle.__int__()
        self._owner = pool_handle
        self.c_obj = make_cuda_async_view(<cudaMemPool_t>handle)

    def pool_handle(self):
        """Handle of the driver's pool."""
        return <uintptr_t>(<cuda_async_view_memory_resource*>self.usable())[0].pool_handle()


cdef class CudaAsyncManagedMemoryResource(DeviceMemoryResource):
    """The driver's pool of managed memory. RuntimeError where there is none (it needs CUDA 13)."""

    def __cinit__(self):
        self.c_obj = make_cuda_async_managed()

    def pool_handle(self):
        """Handle of the driver's pool."""
        return <uintptr_t>(<cuda_async_managed_memory_resource*>self.usable())[0].pool_handle()


@cython.no_gc_clear
cdef class CallbackMemoryResource(DeviceMemoryResource):
    """Memory from two functions of yours.

    Parameters
    ----------
    allocate_func:
        Called as `allocate_func(nbytes: int, stream: Stream)`, returns an address. A MemoryError or RuntimeError in it arrives
        where memory was asked for; any other exception is the `__cause__` of a RuntimeError with its text. Below a pool, all
        are the `__cause__` of the pool's MemoryError.
    deallocate_func:
        Called as `deallocate_func(ptr: int, nbytes: int, stream: Stream)`. An exception in it is reported
        (`sys.unraisablehook`) and goes no further.

    Both are called by whichever thread allocates or deallocates. The resource keeps them, and so does whatever is allocated: if
    they refer to the resource, all of that is collected once everything allocated was given back.
    """

    def __cinit__(self, allocate_func, deallocate_func):
        expect_callable(allocate_func)
        expect_callable(deallocate_func)
        self._allocate_func = allocate_func
        self._deallocate_func = deallocate_func
        self._lent = lend(<PyObject*>allocate_func, <PyObject*>deallocate_func)
        self.c_obj = make_callback_resource(call_allocate, call_deallocate, self._lent)

    def __dealloc__(self):
        self.keep_lent()  # that of the base comes when the attributes have gone


cdef void* call_allocate(lent_callables& lent, size_t nbytes, cudaStream_t stream, python_error& error) noexcept with gil:
    cdef lent_functions* functions = <lent_functions*>&lent
    cdef void* ptr = NULL
    try:
        ptr = <void*><uintptr_t>(<object>functions.first())(nbytes, Stream._from_cudaStream_t(stream))
        if ptr != NULL:
            functions.note_allocated()
    except BaseException as exception:
        (&error).note(<PyObject*>exception, translate_python_except_to_cpp(exception))
    return ptr


cdef void call_deallocate(lent_callables& lent, void* ptr, size_t nbytes, cudaStream_t stream) noexcept with gil:
    cdef lent_functions* functions = <lent_functions*>&lent
    try:
        # an exception that leaves a noexcept function is reported as unraisable
        (<object>functions.second())(<uintptr_t>ptr, nbytes, Stream._from_cudaStream_t(stream))
    finally:
        if ptr != NULL:
            functions.note_deallocated()


# --- resources that divide what they take ----------------------------------------------------------------------------


cdef class PoolMemoryResource(UpstreamResourceAdaptor, _Pool):
    """A pool: large blocks of `upstream_mr`, cut to size, reused in the order of streams.

    Parameters
    ----------
    upstream_mr:
        Where the blocks come from.
    initial_pool_size:
        Bytes to take at once, as int or string; half of the free memory of the device if None. A string is rounded up to a
        multiple of 256, which an int has to be.
    maximum_pool_size:
        Bytes that it takes at most, likewise; no limit if None.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, initial_pool_size=None, maximum_pool_size=None):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_pool_size)
        cdef size_t c_initial
        if initial_pool_size is None:
            c_initial = percent_of_free_device_memory(50)
        else:
            c_initial = pool_size_of(initial_pool_size)
        with nogil:
            self.c_obj = make_pool(upstream, c_initial, c_maximum)


cdef class ArenaMemoryResource(UpstreamResourceAdaptor, _Suballocator):
    """One block of `upstream_mr`, taken at once and never grown.

    Parameters
    ----------
    upstream_mr:
        Where the block comes from.
    arena_size:
        Bytes, as int or string; half of the free memory of the device if None.
    dump_log_on_failure:
        Whether to write what the arena holds to a file, `rmm_arena_memory_dump.log`, when it is out of memory.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, arena_size=None, bool dump_log_on_failure=False):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef optional[size_t] c_size = optional_size(arena_size)
        with nogil:
            self.c_obj = make_arena(upstream, c_size, dump_log_on_failure)


cdef class FixedSizeMemoryResource(UpstreamResourceAdaptor, _Suballocator):
    """Blocks of one size.

    Parameters
    ----------
    upstream_mr:
        Where they come from, many at a time.
    block_size:
        Bytes of each; larger allocations fail.
    blocks_to_preallocate:
        How many to take at once, and whenever there is none left.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, block_size=1 << 20, size_t blocks_to_preallocate=128):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef size_t c_block_size = size_of(block_size)
        with nogil:
            self.c_obj = make_fixed_size(upstream, c_block_size, blocks_to_preallocate)


@cython.no_gc_clear
cdef class BinningMemoryResource(UpstreamResourceAdaptor, _Binned):
    """Blocks of several sizes, each from a resource of its own; larger ones from `upstream_mr`.

    Its figures are those of the bins without a resource of their own.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    min_size_exponent, max_size_exponent:
        Bins of 2**min_size_exponent to 2**max_size_exponent bytes; none if one of them is -1.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, int8_t min_size_exponent=-1, int8_t max_size_exponent=-1):
        cdef resource_ptr upstream = upstream_mr.c_obj
        self._bin_mrs = []
        if min_size_exponent != -1 and max_size_exponent != -1 and min_size_exponent > max_size_exponent:
            raise ValueError(f"min_size_exponent, {min_size_exponent}, is above max_size_exponent, {max_size_exponent}: "
                             "there would be no bin")
        with nogil:
            self.c_obj = make_binning(upstream, min_size_exponent, max_size_exponent)

    cpdef add_bin(self, object allocation_size, DeviceMemoryResource bin_resource=None):
        """Serves sizes up to `allocation_size`, down to the next smaller bin, from `bin_resource`, which is kept alive.

        Without one, from blocks of that size of the upstream. Not while other threads allocate.
        """
        cdef resource_ptr resource
        cdef size_t size = size_of(allocation_size)
        self.usable()
        if bin_resource is not None:
            bin_resource.usable()
            resource = bin_resource.c_obj
        with nogil:
            add_bin_to(self.c_obj, size, resource)
        if bin_resource is not None:
            self._bin_mrs.append(bin_resource)

    @property
    def bin_mrs(self):
        """The resources that were given to `add_bin`."""
        self.usable()  # else there is no list
        return self._bin_mrs


cdef inline elastic_pool_memory_resource* elastic_pool(DeviceMemoryResource resource) except NULL nogil:
    return <elastic_pool_memory_resource*>resource.usable()


cdef class ElasticPoolMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    """A pool over CUDA's virtual memory: it grows in place, has no fragmentation above its chunks, and gives memory back.

    Parameters
    ----------
    initial_pool_size:
        Bytes that it takes at once, as int or string. A string is rounded up to a multiple of 256, which an int has to be.
    maximum_pool_size:
        Bytes that it takes at most, likewise; all of the device's if None.
    chunk_size:
        Bytes of a chunk; the smallest that the device has if None.
    decay_seconds:
        After how long memory that is not in use goes back, in calls that grow the pool and in `tick`; only on request if None.
    peer_access:
        Whether other devices may use the memory.
    share_descriptors, share_fabric:
        Whether it can be exported by file descriptor, and by fabric handle.
    gpu_direct_rdma:
        Whether network adapters may use it.
    """

    def __cinit__(
        self,
        initial_pool_size=0,
        maximum_pool_size=None,
        *,
        chunk_size=None,
        decay_seconds=None,
        bool peer_access=False,
        bool share_descriptors=False,
        bool share_fabric=False,
        bool gpu_direct_rdma=False,
    ):
        cdef size_t c_initial = pool_size_of(initial_pool_size)
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_pool_size)
        cdef size_t c_chunk = 0 if chunk_size is None else parse_bytes(chunk_size)
        cdef int64_t c_decay = -1
        if decay_seconds is not None:
            if not decay_seconds >= 0:
                raise ValueError(f"decay_seconds is {decay_seconds}, below 0")
            c_decay = round(decay_seconds * 1000)
        with nogil:
            self.c_obj = make_elastic_pool(
                c_initial, c_maximum, c_chunk, c_decay, peer_access, share_descriptors, share_fabric, gpu_direct_rdma)

    def tick(self):
        """Gives back what was not in use for `decay_seconds`. Returns how many bytes went."""
        cdef size_t given_back
        with nogil:
            given_back = elastic_pool(self)[0].tick()
        return given_back

    def set_pausable(self, tag tag not None):
        """Lets what is allocated under a tag from now on lie in memory of its own, so that it can be paused alone."""
        cdef cpp_tag c_tag = tag._tag
        with nogil:
            elastic_pool(self)[0].set_pausable(c_tag)

    def pause(self, contents="pageable", *, tag tag=None):
        """Gives all memory back, and keeps the addresses of what is allocated, which may not be used until `resume`.

        Parameters
        ----------
        contents:
            What becomes of the contents: "dropped", or kept in "pageable" or "pinned" memory of the host.
        tag:
            Only what was allocated under that tag, since `set_pausable`.

        No other thread may allocate meanwhile. RuntimeError for a pool that is paused, or that has no virtual memory.
        """
        cdef paused_contents kept
        cdef cpp_tag c_tag
        if contents == "dropped":
            kept = paused_contents.dropped
        elif contents == "pageable":
            kept = paused_contents.kept_pageable
        elif contents == "pinned":
            kept = paused_contents.kept_pinned
        else:
            raise ValueError(f'contents is {contents!r}; it takes "dropped", "pageable" or "pinned"')
        if tag is None:
            with nogil:
                elastic_pool(self)[0].pause(kept)
        else:
            c_tag = tag._tag
            with nogil:
                elastic_pool(self)[0].pause(c_tag, kept)

    def resume(self, *, tag tag=None):
        """Puts memory behind the addresses again. MemoryError if there is not enough; then the pool is still paused."""
        cdef cpp_tag c_tag
        if tag is None:
            with nogil:
                elastic_pool(self)[0].resume()
        else:
            c_tag = tag._tag
            with nogil:
                elastic_pool(self)[0].resume(c_tag)

    def export_descriptors(self, uintptr_t ptr, size_t nbytes):
        """The `nbytes` bytes at `ptr` for other processes of this machine: a `rmm.mr.ExportedMemory`; takes `share_descriptors`.

        They have to stay allocated as long as others use them. Whole chunks are shared, with what else lies in them. The pool
        can not be paused any more.
        """
        return export_by(c_export_descriptors, self, ptr, nbytes)

    def export_fabric(self, uintptr_t ptr, size_t nbytes):
        """The same for processes on the same fabric, on other machines too; takes `share_fabric`."""
        return export_by(c_export_fabric, self, ptr, nbytes)

    @property
    def is_paused(self):
        """Whether the pool is between `pause` and `resume`."""
        return elastic_pool(self)[0].is_paused()

    @property
    def mapped_bytes(self):
        """Bytes of the device that the pool holds now; `pool_size()` goes on to count what is paused."""
        return elastic_pool(self)[0].mapped_bytes()

    @property
    def chunk_bytes(self):
        """Bytes that are taken and given back at a time; 0 where the device has no virtual memory."""
        return elastic_pool(self)[0].chunk_bytes()

    @property
    def has_virtual_memory(self):
        """Whether the device has virtual memory; else this is a plain pool."""
        return elastic_pool(self)[0].has_virtual_memory()


cdef object export_by(export_function export, ElasticPoolMemoryResource pool, uintptr_t ptr, size_t nbytes):
    """The `nbytes` bytes at `ptr`, which belong to `pool`, as an `ExportedMemory`."""
    from rmm.mr._exported_memory import ExportedMemory

    cdef exported_block block
    with nogil:
        block = export(elastic_pool(pool)[0], <const void*>ptr, nbytes)
    return ExportedMemory(
        block.offset_bytes,
        block.bytes,
        block.chunk_bytes,
        tuple(block.descriptors),
        tuple(block.fabric_handles),
    )


cdef class CachedMemoryResource(UpstreamResourceAdaptor, _Pool, _Trimmable):
    """A front cache: as fast as a pool, over a resource that shares its memory, such as `CudaAsyncMemoryResource`.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    initial_size:
        Bytes that it takes at once, as int or string. A string is rounded up to a multiple of 256, which an int has to be.
    maximum_size:
        Bytes that it takes at most, likewise; as much as there is if None.
    block_size:
        Bytes that it takes at a time.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, initial_size=0, maximum_size=None, block_size=64 << 20):
        cdef resource_ptr upstream = upstream_mr.c_obj
        cdef size_t c_initial = pool_size_of(initial_size)
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_size)
        cdef size_t c_block = parse_bytes(block_size)
        with nogil:
            self.c_obj = make_cached(upstream, c_initial, c_maximum, c_block)


cdef class PinnedPoolMemoryResource(DeviceMemoryResource, _Pool):
    """A pool of page-locked memory of the host that is ready soon: several threads make its pages.

    Parameters
    ----------
    initial_pool_size:
        Bytes that it takes at once, as int or string. A string is rounded up to a multiple of 256, which an int has to be.
    maximum_pool_size:
        Bytes that it takes at most, likewise; no limit if None.
    near_device:
        Whether to take memory of the NUMA node that is nearest to the current device.
    numa_node:
        The node to take memory of instead.
    threads:
        How many threads make the pages at most; 0 is as many as is worth it.
    """

    def __cinit__(
        self, initial_pool_size, maximum_pool_size=None, *, bool near_device=False, numa_node=None, unsigned threads=0
    ):
        cdef size_t c_initial = pool_size_of(initial_pool_size)
        cdef optional[size_t] c_maximum = optional_pool_size(maximum_pool_size)
        cdef int c_node = checked_numa_node(numa_node)
        with nogil:
            self.c_obj = make_pinned_pool(c_initial, c_maximum, near_device, c_node, threads)


cdef class ConfiguredMemoryResource(DeviceMemoryResource, _Pool, _Trimmable):
    """The resource that a configuration describes, with all that it is made over.

    Parameters
    ----------
    configuration:
        For instance "pool,initial=1GiB,max=80%" or "recommended"; docs/configuration.md has all. ValueError, with a mark at
        the place, if it cannot be understood.
    """

    def __cinit__(self, str configuration not None):
        cdef string c_configuration = configuration.encode()
        cdef string c_explanation
        with nogil:
            self.c_obj = make_configured(c_configuration, c_explanation)
        self.configuration = configuration
        self.explanation = c_explanation.decode()

    def __repr__(self):
        return f"ConfiguredMemoryResource({self.configuration!r})"


describe_attribute(ConfiguredMemoryResource, "configuration", "The text that the resource was made from.")
describe_attribute(ConfiguredMemoryResource, "explanation", "What was made of the configuration, and why, in lines.")


@cython.no_gc_clear
cdef class MemoryReservation(DeviceMemoryResource, _Suballocator, _Reservable):
    """Memory of a pool that is kept for who reserved it: `pool.reserve("1GiB")`. A resource that gives that and no more.

    None of its allocations fails as long as the live ones together are not more than was reserved, and one piece that is free
    is large enough. Ends with `release`, or the block of code that it is the context manager of: what is free goes back to the pool
    then. What is live stays valid, and goes back when it is freed.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("reservations are made by reserve() of a pool")

    def __dealloc__(self):
        with nogil:
            self.c_obj.reset()  # before the stream, in whose order its memory goes back

    @property
    def size(self):
        """Bytes that are reserved; 0 if the reservation has ended."""
        return (<reserved_resource*>self.usable())[0].bytes()

    @property
    def used_bytes(self):
        """The part of that which is in use: live blocks, rounded up, and reservations of this one."""
        return (<reserved_resource*>self.usable())[0].used_bytes()

    def shrink_to(self, nbytes):
        """Gives back what is not in use, until at most `nbytes` bytes are reserved, or what is in use. Returns how many went."""
        cdef size_t c_size = parse_bytes(nbytes)
        cdef reserved_resource* mr = <reserved_resource*>self.usable()
        cdef size_t given_back
        with nogil:
            given_back = mr[0].shrink_to(c_size)
        return given_back

    def release(self):
        """Ends the reservation."""
        cdef reserved_resource* mr = <reserved_resource*>self.usable()
        with nogil:
            mr[0].release()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.release()

    def __repr__(self):
        return f"MemoryReservation({self.size} bytes of {self.source!r})"


describe_attribute(MemoryReservation, "source", "The resource whose memory is reserved.")


cdef reservation_of(DeviceMemoryResource source, nbytes, Stream stream, bool only_try):
    cdef size_t c_size = parse_bytes(nbytes)
    cdef cuda_stream_view c_stream = as_stream(stream).view()
    source.usable()
    if not isinstance(source, MemoryReservation):
        pool_of(source)
    cdef resource_ptr c_source = source.c_obj
    cdef resource_ptr made
    with nogil:
        made = c_reserve(c_source, c_size, c_stream, only_try)
    if made.get() == NULL:
        return None
    cdef MemoryReservation reservation = MemoryReservation.__new__(MemoryReservation)
    reservation.c_obj = made
    reservation.source = source
    reservation._stream = stream
    return reservation


# --- adaptors --------------------------------------------------------------------------------------------------------


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


@cython.no_gc_clear
cdef class FailureCallbackResourceAdaptor(UpstreamResourceAdaptor):
    """Asks a function what to do when `upstream_mr` is out of memory.

    Parameters
    ----------
    upstream_mr:
        Where memory comes from.
    callback:
        Called as `callback(nbytes: int)`: True to try again, once it has freed something; False to give up. A MemoryError or
        RuntimeError in it reaches the caller; any other exception is the `__cause__` of a RuntimeError with its text.
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, callback):
        expect_callable(callback)
        self._callback = callback
        self._lent = lend(<PyObject*>callback, NULL)
        self.c_obj = make_failure_callback_resource(upstream_mr.c_obj, call_failure_callback, self._lent)

    def __dealloc__(self):
        self.keep_lent()  # that of the base comes when the attributes have gone


cdef bool call_failure_callback(lent_callables& lent, size_t nbytes, python_error& error) noexcept with gil:
    try:
        return True if (<object>(<lent_functions*>&lent).first())(nbytes) else False
    except BaseException as exception:
        (&error).note(<PyObject*>exception, translate_python_except_to_cpp(exception))
    return False


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


# --- the registry ----------------------------------------------------------------------------------------------------

# The resource of each device, which it keeps alive. Never cleared, not even when the interpreter ends: the registry of the C++
# library names the same resources, and others may use it until the process ends.
def _end_python_frames():
    """Traces have no stacks of Python from here on: the interpreter ends."""
    c_end_python_frames()


offer_python_frames()
atexit.register(_end_python_frames)

cdef dict _per_device_mrs = {}
_is_traced = os.environ.get("RMM_TRACE_FILE", "") != ""  # from the beginning, so that each free has its allocation
_changes = threading.Lock()  # held while the two registries are made to agree; resources end after it is free


# The same for the first devices, where finding them costs a load. The dict keeps them alive; who changes it changes these.
cdef PyObject* _first_mrs[64]


cdef void note_registered(int device, object mr) noexcept:
    if 0 <= device < 64:
        _first_mrs[device] = <PyObject*>mr


cpdef DeviceMemoryResource get_per_device_resource(int device):
    """The resource of `device`; a `CudaMemoryResource` if none was set."""
    if 0 <= device < 64 and _first_mrs[device] != NULL:
        return <DeviceMemoryResource>_first_mrs[device]
    mr = _per_device_mrs.get(device)
    if mr is None:
        expect_device(device)
        if _is_traced:
            set_per_device_resource(device, CudaMemoryResource())
        mr = _per_device_mrs.setdefault(device, CudaMemoryResource())
        note_registered(device, mr)
    return mr


cdef object _device_count = device_count  # as a C variable it is there until the end of the process


cdef expect_device(int device):
    """ValueError for a number that no device has, if the runtime says how many there are."""
    status, count = _device_count()
    if device < 0 or (status == 0 and device >= count):
        raise ValueError(f"there is no device {device}")


def _has_trace(mr):
    """Whether one of the resources that `mr` is made over is an `EnvironmentTrace`, or it is one."""
    while isinstance(mr, UpstreamResourceAdaptor) and not isinstance(mr, EnvironmentTrace):
        mr = mr.get_upstream()
    return isinstance(mr, EnvironmentTrace)


cpdef set_per_device_resource(int device, DeviceMemoryResource mr):
    """Makes `mr` the resource of `device`, from which whatever is given no other resource allocates, in Python and in C++."""
    if mr is None:
        raise TypeError("mr cannot be None: give a resource")
    expect_device(device)
    mr.usable()
    if _is_traced and not _has_trace(mr):
        mr = EnvironmentTrace(mr, device)
    with _changes:
        before = _per_device_mrs.get(device)
        register_resource(device, mr.get_mr(), <PyObject*>mr)
        _per_device_mrs[device] = mr
        note_registered(device, mr)
    del before


cpdef DeviceMemoryResource get_current_device_resource():
    """The resource of the current device; a `CudaMemoryResource` if none was set."""
    return get_per_device_resource(c_current_device())


cpdef set_current_device_resource(DeviceMemoryResource mr):
    """Makes `mr` the resource of the current device; see `set_per_device_resource`."""
    set_per_device_resource(c_current_device(), mr)


def registered_resources():
    """The resource of each device that one was set for, or asked of."""
    return dict(_per_device_mrs)


def forget_registered_resources():
    """Gives all devices the resource back that they have if nothing is set."""
    with _changes:
        before = dict(_per_device_mrs)
        for device in before:
            unregister_resource(device)
            if 0 <= device < 64:
                _first_mrs[<int>device] = NULL
        _per_device_mrs.clear()
    del before


def current_device():
    """Number of the current device."""
    return c_current_device()


def available_device_memory():
    """Bytes of memory of the current device: `(free, total)`."""
    cdef pair[size_t, size_t] memory
    with nogil:
        memory = librmm.available_device_memory()
    return (memory.first, memory.second)


def use_unrounded_sizes(bool enabled=True):
    """Counts sizes as they were asked for, in the whole process, as RMM does since 25.12; False: in multiples of 16, as before.

    Statistics, limits, tracking and logs show it. So does RMM_UNROUNDED_SIZES in the environment (0 or 1). Has to be called before
    the first allocation: RuntimeError if the process has made the other choice already.
    """
    c_use_unrounded_sizes(enabled)


_FUNCTIONS_OF_MR = frozenset(
    ("_flush_logs", "_initialize", "disable_logging", "enable_logging", "get_log_filenames", "is_initialized")
)


def __getattr__(name):
    """What later releases have here of rmm.mr: functions over the resources of all devices."""
    if name not in _FUNCTIONS_OF_MR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rmm.mr import _registry  # which imports this module

    return getattr(_registry, name)
