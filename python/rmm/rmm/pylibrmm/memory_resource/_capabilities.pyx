# SPDX-License-Identifier: Apache-2.0
"""Methods that several classes of resources share, and reservations."""

cimport cython
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libcpp cimport bool
from libcpp.limits cimport numeric_limits
from libcpp.string cimport string
from libcpp.vector cimport vector

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.pylibrmm.helper cimport parse_bytes
from rmm.pylibrmm.memory_resource._base cimport DeviceMemoryResource, lent_ptr, resource_ptr
from rmm.pylibrmm.memory_resource._conversions cimport (
    dict_of,
    expect_callable,
    heap_figures,
    holder,
    list_of,
    name_of_rung,
    raise_error,
    recovery_order,
    recovery_rung,
    rung_figures,
    size_of,
)
from rmm.pylibrmm.memory_resource._lent cimport call_failure_callback, lend, python_failure_callback
from rmm.pylibrmm.stream cimport Stream
from rmm.pylibrmm.utils cimport as_stream

from rmm.pylibrmm._attributes import describe_attribute
from rmm.pylibrmm.stream import DEFAULT_STREAM

__all__ = ["MemoryReservation", "ReservationQueue"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "pylibrmm/memory_resource/_owned_resources.hpp" namespace "rmm::mr::detail" nogil:
    cdef cppclass growing_pool:
        pass


cdef extern from "pylibrmm/memory_resource/_failure_callback.hpp" namespace "rmm_python" nogil:
    void c_set_failure_callback "rmm_python::set_failure_callback"(
        growing_pool*, python_failure_callback, lent_ptr) except +


cdef extern from "pylibrmm/memory_resource/_suballocators.hpp" namespace "rmm_python" nogil:
    size_t c_trim_to "rmm_python::trim_to"(device_memory_resource*, size_t) except +
    heap_figures c_figures_of "rmm_python::figures_of"(device_memory_resource*) except +
    size_t c_allocated_bytes_of "rmm_python::allocated_bytes_of"(device_memory_resource*) except +
    size_t c_pool_size_of "rmm_python::pool_size_of"(device_memory_resource*) except +
    string c_snapshot_of "rmm_python::snapshot_of"(device_memory_resource*) except +
    void track_tags(growing_pool*, bool) except +
    vector[holder] live_by_tag_name(const growing_pool*) except +
    recovery_order recovery_order_of(const growing_pool*) except +
    void set_check_capture(growing_pool*, bool)
    bool checks_captures(const growing_pool*)
    growing_pool* c_pool_behind "rmm_python::pool_behind"(device_memory_resource*)
    vector[rung_figures] c_rung_figures "rmm_python::rung_figures_of"(const heap_figures&) except +
    void c_set_recovery_order "rmm_python::set_recovery_order"(growing_pool*, const vector[string]&) except +
    size_t reservation_bytes(const device_memory_resource*) except +
    size_t reservation_used_bytes(const device_memory_resource*) except +
    size_t shrink_reservation(device_memory_resource*, size_t) except +
    void release_reservation(device_memory_resource*)
    resource_ptr c_reserve "rmm_python::reserve"(resource_ptr, size_t, cuda_stream_view, bool) except +raise_error
    queue_ptr make_reservation_queue(resource_ptr, double, double) except +
    resource_ptr c_reserve_or_wait "rmm_python::reserve_or_wait"(
        const queue_ptr&, size_t, int, double, cuda_stream_view) except +raise_error
    void c_notify "rmm_python::notify"(const queue_ptr&) except +
    size_t c_waiting "rmm_python::waiting"(const queue_ptr&) except +


cdef heap_figures figures_of(resource) except *:
    cdef device_memory_resource* mr = (<DeviceMemoryResource?>resource).usable()
    cdef heap_figures figures
    with nogil:
        figures = c_figures_of(mr)
    return figures


cdef growing_pool* pool_of(resource) except NULL:
    """Returns the pool that a resource is, or the pool below its adaptors. Raises TypeError if there is none."""
    cdef growing_pool* pool = c_pool_behind((<DeviceMemoryResource?>resource).usable())
    if pool == NULL:
        raise TypeError(f"{resource!r} has no pool in it: pass a pool, or an adaptor over one")
    return pool


class _Keeper:
    """A resource that keeps freed memory for later allocations."""

    __slots__ = ()

    def get_allocated_bytes(self):
        """Return the bytes in use. For a `BinningMemoryResource` over a pool, these are the pool's.

        Returns
        -------
        int
            The sum of the sizes of live allocations, each rounded up. 0 if a configured resource keeps no memory.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> pool.get_allocated_bytes()
        1024
        """
        cdef device_memory_resource* mr = (<DeviceMemoryResource?>self).usable()
        cdef size_t allocated
        with nogil:
            allocated = c_allocated_bytes_of(mr)
        return allocated

    def pool_size(self):
        """Return the bytes that the resource holds, in use or free. For a `BinningMemoryResource` over a pool, these are the pool's.

        Returns
        -------
        int
            The bytes. 0 if a configured resource keeps no memory.

        Examples
        --------
        >>> import rmm
        >>> rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB").pool_size()
        1048576
        """
        cdef device_memory_resource* mr = (<DeviceMemoryResource?>self).usable()
        cdef size_t size
        with nogil:
            size = c_pool_size_of(mr)
        return size


class _Suballocator(_Keeper):
    """A resource that allocates parts of larger blocks."""

    __slots__ = ()

    def figures(self):
        """Return the memory of the resource, and counts of its calls, by name.

        Returns
        -------
        dict of str to int
            `live_bytes`, `free_bytes`, `largest_free_bytes`, and so on.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> pool.figures()["live_bytes"], pool.figures()["reserved_bytes"]
        (1024, 1048576)
        """
        return dict_of(figures_of(self))

    def snapshot(self):
        """Return all memory of the resource, range by range. Other threads may allocate meanwhile.

        Returns
        -------
        rmm.memory_snapshot.MemorySnapshot
            A dictionary, which notebooks show as a picture.

        Examples
        --------
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
    """Has `_bin_mrs` of BinningMemoryResource: C code would read its own attribute without a check that the constructor ran."""

    __slots__ = ()

    @property
    def _bin_mrs(self):
        return self.bin_mrs


class _TrimmableOnRequest:
    """A resource that can give unused memory back, and which programs that trim whatever they find leave as it is."""

    __slots__ = ()

    def trim_to(self, nbytes):
        """Give unused memory back, until the resource holds at most `nbytes` bytes. Memory that is in use stays.

        Waits on the host for the work that used the memory. Only a pool of the driver does not wait. Other threads may allocate at
        the same time; their calls wait while this one waits for the device.

        Parameters
        ----------
        nbytes : int or str
            The bytes to keep.

        Returns
        -------
        int
            The bytes given back. 0 if a configured resource cannot give memory back.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource("4MiB")
        >>> pool.trim_to("2MiB")
        2097152
        """
        cdef device_memory_resource* mr = (<DeviceMemoryResource?>self).usable()
        cdef size_t kept = size_of(nbytes)
        cdef size_t given_back
        with nogil:
            given_back = c_trim_to(mr, kept)
        return given_back


class _Trimmable(_TrimmableOnRequest):
    """A resource that can give unused memory back."""

    __slots__ = ()

    def release_unused(self):
        """Give all unused memory back.

        Returns
        -------
        int
            The bytes given back.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.ElasticPoolMemoryResource("64MiB")
        >>> pool.release_unused()
        67108864
        """
        return self.trim_to(0)


class _Reservable:
    """A resource that can reserve parts of its memory."""

    __slots__ = ()

    def reserve(self, nbytes, Stream stream=DEFAULT_STREAM):
        """Reserve memory for one user. The result can be used in a `with` statement.

        Parameters
        ----------
        nbytes : int or str
            The bytes to reserve, at least 1.
        stream : rmm.pylibrmm.stream.Stream, optional
            When the reservation ends, its free memory goes back to the pool in the order of this stream.

        Returns
        -------
        MemoryReservation
            The reservation.

        Raises
        ------
        MemoryError
            If there is not enough memory.
        RuntimeError
            If `nbytes` is 0.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB")
        >>> with pool.reserve("1MiB") as task:
        ...     buffer = rmm.DeviceBuffer(size=1000, mr=task)
        ...     task.used_bytes
        1024
        """
        return reservation_of(<DeviceMemoryResource?>self, nbytes, stream, False)

    def try_reserve(self, nbytes, Stream stream=DEFAULT_STREAM):
        """Reserve memory as `reserve` does, without calling the failure callback.

        Parameters
        ----------
        nbytes : int or str
            The bytes to reserve, at least 1.
        stream : rmm.pylibrmm.stream.Stream, optional
            When the reservation ends, its free memory goes back to the pool in the order of this stream.

        Returns
        -------
        MemoryReservation or None
            The reservation; None if there is not enough memory.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB")
        >>> pool.try_reserve("2MiB") is None
        True
        """
        return reservation_of(<DeviceMemoryResource?>self, nbytes, stream, True)


class _Pool(_Suballocator, _Reservable):
    """A resource that keeps freed memory, grows, and tries several ways to find memory before it fails; see docs/out-of-memory.md."""

    __slots__ = ()

    def track_tags(self, bool on=True):
        """Start or stop recording the `rmm.tag` of each allocation. Initially off, which costs nothing.

        Parameters
        ----------
        on : bool, optional
            Whether to record tags. Turning it off erases all records.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> pool.track_tags()
        >>> with rmm.tag("join"):
        ...     buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        """
        cdef growing_pool* pool = pool_of(self)
        with nogil:
            track_tags(pool, on)

    def live_by_tag(self):
        """Return the live memory of each tag, in descending order of bytes.

        Returns
        -------
        list of rmm.memory_report.Holder
            Empty unless the pool tracks tags.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB")
        >>> pool.track_tags()
        >>> with rmm.tag("join"):
        ...     buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> [(holder.tag, holder.bytes) for holder in pool.live_by_tag()]
        [('join', 1008)]
        """
        cdef growing_pool* pool = pool_of(self)
        cdef vector[holder] holders
        with nogil:
            holders = live_by_tag_name(pool)
        return list_of(holders)

    def recovery_figures(self):
        """Return how often the pool tried each rung of recovery, and how often the rung served the allocation.

        Returns
        -------
        dict of str to rmm.memory_report.RungFigures
            The counts, by the name of the rung.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 0)
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> pool.recovery_figures()["grow"]
        RungFigures(tried=1, served=1)
        """
        from rmm.memory_report import RungFigures

        cdef vector[rung_figures] rungs = c_rung_figures(figures_of(self))
        return {name_of_rung(<recovery_rung>i): RungFigures(rungs[i].tried, rungs[i].served) for i in range(rungs.size())}

    @property
    def recovery_order(self):
        """The rungs that the pool tries, in order, when no free memory fits. Setting it affects later allocations.

        A list out of "reclaim", "grow", "remap", "trim", "synchronize" and "callback". Raises ValueError for an unknown or repeated
        name, and RuntimeError for a rung that the pool does not have.
        """
        cdef growing_pool* pool = pool_of(self)
        cdef recovery_order order
        with nogil:  # the owner of this lock may be waiting for the GIL in an upstream that is written in Python
            order = recovery_order_of(pool)
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
        """Set the function that the pool calls when it is out of memory, as the last rung of recovery.

        Parameters
        ----------
        callback : callable or None
            Called as `callback(nbytes)`. Returns True to try again, after it has freed memory, and False to give up. The caller of
            the allocation gets a MemoryError or a RuntimeError of the function; other exceptions are the `__cause__` of a
            RuntimeError with their text. Its own allocations from the pool do not call it again. None removes the callback.

        Raises
        ------
        TypeError
            If `callback` is not callable.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB")
        >>> cache = [rmm.DeviceBuffer(size=1 << 20, mr=pool)]
        >>> pool.set_failure_callback(lambda nbytes: bool(cache) and cache.pop() is not None)
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=pool)
        >>> cache
        []
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
        """Whether each call asks the driver if its stream captures a CUDA graph without a `rmm.capture_scope`.

        Initially on: such a capture raises an exception. It costs 22 ns a call on an H200, except on the legacy default stream, which
        cannot capture. Turn it off if nothing is captured, or if every capture has a scope.
        """
        return checks_captures(pool_of(self))

    @check_capture.setter
    def check_capture(self, bool on):
        cdef growing_pool* pool = pool_of(self)
        with nogil:  # without the GIL: see recovery_order
            set_check_capture(pool, on)


@cython.no_gc_clear
cdef class MemoryReservation(DeviceMemoryResource, _Suballocator, _Reservable):
    """Memory of a pool that is reserved for one user, and a resource that allocates from it. `reserve` of a pool returns one.

    An allocation from it cannot fail if the live allocations together do not exceed the reservation, and a free range is large
    enough. The reservation ends with `release`, or with its `with` statement. Then free memory goes back to the pool; live memory
    stays valid, and goes back when it is freed.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB")
    >>> with pool.reserve("1MiB") as task:
    ...     buffer = rmm.DeviceBuffer(size=1000, mr=task)
    ...     task.size, task.used_bytes
    (1048576, 1024)
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("reservations are made by reserve() of a pool")

    def __dealloc__(self):
        with nogil:
            self.c_obj.reset()  # before the stream, because the memory goes back in its order

    @property
    def size(self):
        """Reserved bytes; 0 if the reservation has ended."""
        return reservation_bytes(self.usable())

    @property
    def used_bytes(self):
        """Bytes in use: live allocations, rounded up, and reservations within this one."""
        return reservation_used_bytes(self.usable())

    def shrink_to(self, nbytes):
        """Give unused memory back, until at most `nbytes` bytes are reserved. Memory that is in use stays.

        Parameters
        ----------
        nbytes : int or str
            The bytes to keep.

        Returns
        -------
        int
            The bytes given back.

        Raises
        ------
        RuntimeError
            If the reservation has ended.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB")
        >>> with pool.reserve("1MiB") as reservation:
        ...     unused = reservation.shrink_to("256KiB")
        """
        cdef size_t c_size = parse_bytes(nbytes)
        cdef device_memory_resource* mr = self.usable()
        cdef size_t given_back
        with nogil:
            given_back = shrink_reservation(mr, c_size)
        return given_back

    def release(self):
        """End the reservation. Its free memory goes back to the pool, and live memory stays valid.

        Later allocations from the reservation, and `figures`, raise RuntimeError; `size` is 0.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB")
        >>> reservation = pool.reserve("1MiB")
        >>> reservation.release()  # as the end of a with block does
        """
        cdef device_memory_resource* mr = self.usable()
        with nogil:
            release_reservation(mr)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.release()

    def __repr__(self):
        return f"MemoryReservation({self.size} bytes of {self.source!r})"


describe_attribute(MemoryReservation, "source", "The resource whose memory is reserved.")


cdef expect_reservable(DeviceMemoryResource source):
    source.usable()
    if not isinstance(source, MemoryReservation):
        pool_of(source)


cdef wrap_reservation(resource_ptr made, DeviceMemoryResource source, Stream stream):
    cdef MemoryReservation reservation = MemoryReservation.__new__(MemoryReservation)
    reservation.c_obj = made
    reservation.source = source
    reservation._stream = stream
    return reservation


cdef reservation_of(DeviceMemoryResource source, nbytes, Stream stream, bool only_try):
    cdef size_t c_size = parse_bytes(nbytes)
    cdef cuda_stream_view c_stream = as_stream(stream).view()
    expect_reservable(source)
    cdef resource_ptr c_source = source.c_obj
    cdef resource_ptr made
    with nogil:
        made = c_reserve(c_source, c_size, c_stream, only_try)
    return wrap_reservation(made, source, stream) if made.get() != NULL else None


cdef double checked_seconds(seconds, double if_none, str name) except? -2:
    if seconds is None:
        return if_none
    if not seconds >= 0:
        raise ValueError(f"{name} is {seconds}, below 0")
    return seconds


cdef extern from "pylibrmm/_static_types.hpp" namespace "rmm_python":
    void reference_static_type(object value)


cdef class ReservationQueue:
    """A queue of requests for reservations. They wait until a pool has the memory, in the order of priority, then of age.

    Use one queue for all tasks that share a pool. Only the request whose turn it is tries to reserve, so a small request does not
    overtake a large one that waits with the same or a higher priority. Allocations from the pool itself are not held back.

    Parameters
    ----------
    source : DeviceMemoryResource
        A pool, or a reservation.
    retry_after : float, optional
        The request whose turn it is tries again after so many seconds. `notify` makes it try at once.
    aging : float or None, optional
        Each time a request has waited for so many seconds, its priority counts one more, so that no request waits for ever behind
        others. None: only priorities count.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB", "4MiB")
    >>> queue = rmm.mr.ReservationQueue(pool)
    >>> with queue.reserve_or_wait("3MiB", timeout=60) as task:  # other tasks call this at the same time
    ...     buffer = rmm.DeviceBuffer(size=1000, mr=task)
    """

    def __cinit__(self, DeviceMemoryResource source not None, *, retry_after=0.001, aging=1.0):
        expect_reservable(source)
        self.source = source
        self.c_queue = make_reservation_queue(
            source.c_obj, checked_seconds(retry_after, 0, "retry_after"), checked_seconds(aging, -1, "aging"))

    def __dealloc__(self):
        reference_static_type(self)

    cdef queue_ptr usable(self) except *:
        """Returns the queue. Raises TypeError if the constructor raised an exception or did not run."""
        if self.c_queue.get() == NULL:
            raise TypeError("the object has no queue: its constructor raised an exception, or did not run")
        return self.c_queue

    def reserve_or_wait(self, nbytes, priority=0, timeout=None, Stream stream=DEFAULT_STREAM):
        """Reserve memory. Waits for the request's turn, and for the memory. Other threads run meanwhile.

        A signal, such as that of Ctrl-C, is handled when the wait is over. The pool does not call its failure callback. A task that
        holds a reservation while it waits for another can wait for ever for tasks that do the same: give it a timeout.

        Parameters
        ----------
        nbytes : int or str
            The bytes to reserve, at least 1.
        priority : int, optional
            A higher one comes first.
        timeout : float, optional
            The most seconds to wait; as long as it takes if None.
        stream : rmm.pylibrmm.stream.Stream, optional
            When the reservation ends, its free memory goes back to the pool in the order of this stream.

        Returns
        -------
        MemoryReservation
            The reservation.

        Raises
        ------
        MemoryError
            After the timeout; at once if `nbytes` is above the maximum of the pool, or the size of the reservation.

        Examples
        --------
        >>> import rmm
        >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "4MiB", "4MiB")
        >>> queue = rmm.mr.ReservationQueue(pool)
        >>> with queue.reserve_or_wait("3MiB", priority=1) as task:
        ...     task.size
        3145728
        """
        cdef size_t c_size = parse_bytes(nbytes)
        cdef int c_priority = priority
        cdef double c_timeout = checked_seconds(timeout, numeric_limits[double].infinity(), "timeout")
        cdef cuda_stream_view c_stream = as_stream(stream).view()
        cdef queue_ptr queue = self.usable()
        cdef resource_ptr made
        with nogil:
            made = c_reserve_or_wait(queue, c_size, c_priority, c_timeout, c_stream)
        return wrap_reservation(made, self.source, stream)

    def notify(self):
        """Make the request whose turn it is try again immediately. Call this after freeing memory of the pool.

        Examples
        --------
        >>> import rmm
        >>> queue = rmm.mr.ReservationQueue(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB"))
        >>> queue.notify()
        """
        cdef queue_ptr queue = self.usable()
        with nogil:
            c_notify(queue)

    @property
    def waiting(self):
        """The number of requests that wait or are being tried."""
        cdef queue_ptr queue = self.usable()
        cdef size_t count
        with nogil:
            count = c_waiting(queue)
        return count

    def __repr__(self):
        return f"ReservationQueue({self.source!r})"


describe_attribute(ReservationQueue, "source", "The resource whose memory is reserved.")
