# SPDX-License-Identifier: Apache-2.0
"""Resources that call Python functions."""

cimport cython
from cpython.object cimport PyObject
from cuda.bindings.cyruntime cimport cudaStream_t
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool
from libcpp.optional cimport optional
from libcpp.vector cimport vector

from rmm.librmm._device_memory_resource cimport device_memory_resource
from rmm.librmm._python_exceptions cimport translate_python_except_to_cpp
from rmm.pylibrmm.memory_resource._base cimport (
    DeviceMemoryResource,
    UpstreamResourceAdaptor,
    base,
    immediate_resource,
    lent_callables,
    lent_ptr,
    resource_ptr,
)
from rmm.pylibrmm.memory_resource._conversions cimport expect_callable, optional_size
from rmm.pylibrmm.memory_resource._lent cimport (
    call_failure_callback,
    lend,
    lent_functions,
    python_error,
    python_failure_callback,
)
from rmm.pylibrmm.stream cimport Stream

from rmm.pylibrmm.memory_resource._base import _Finalizer

__all__ = ["CallbackMemoryResource", "FailureCallbackResourceAdaptor", "SpillResourceAdaptor"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


ctypedef void* (*python_allocate)(lent_callables&, size_t, cudaStream_t, python_error&) noexcept
ctypedef void (*python_deallocate)(lent_callables&, void*, size_t, cudaStream_t) noexcept
ctypedef size_t (*python_spill_hook)(lent_callables&, size_t, python_error&) noexcept
ctypedef void (*python_watermark)(lent_callables&, size_t, size_t, python_error&) noexcept


cdef extern from "rmm/mr/spill_resource_adaptor.hpp" namespace "rmm::mr" nogil:
    cdef cppclass spill_resource_adaptor[Upstream](device_memory_resource):
        size_t get_allocated_bytes()
        size_t get_maximum()

    cdef struct spill_figures:
        uint64_t calls
        uint64_t asked_bytes
        uint64_t freed_bytes


cdef extern from "pylibrmm/memory_resource/_callbacks.hpp" namespace "rmm_python" nogil:
    resource_ptr make_callback_resource(python_allocate, python_deallocate, lent_ptr) except +
    resource_ptr make_failure_callback_resource(resource_ptr, python_failure_callback, lent_ptr) except +

    cdef struct watermark_shares:
        double above
        double below

    resource_ptr make_spill_resource(
        resource_ptr, immediate_resource*, immediate_resource*&, python_spill_hook, python_watermark, lent_ptr,
        optional[size_t], double, const vector[watermark_shares]&) except +
    spill_figures spill_figures_of(device_memory_resource*)


cdef class _Finalization:
    """Tells C++ that the object which holds the lent functions is being finalized."""

    cdef lent_ptr lent

    def __call__(self):
        if self.lent.get() != NULL:
            (<lent_functions*>self.lent.get()).finalize()


@cython.no_gc_clear
cdef class CallbackMemoryResource(DeviceMemoryResource):
    """A resource that allocates by calling two functions of yours.

    Any thread that allocates or deallocates calls them. The resource keeps the functions alive. If the functions refer to the
    resource, the garbage collector collects all of them once all allocations were freed.

    The functions may refer to a pool over the resource, for example as methods of an object that has the pool as an attribute. The
    garbage collector then lets the pool give its memory back, and collects all of them. It cannot do that while memory of the pool
    is in use, nor for a resource that keeps unused memory, such as `FixedSizeMemoryResource` and `ArenaMemoryResource`. Then none
    of them is collected, and the memory is never freed. Let the functions refer to what they need instead, or remove the attribute
    when you are done.

    Parameters
    ----------
    allocate_func : callable
        Called as `allocate_func(nbytes, stream)`. Returns an address. The caller gets a MemoryError or a RuntimeError of the
        function; other exceptions are the `__cause__` of a RuntimeError with their text. Below a pool, all are the `__cause__` of
        the pool's MemoryError.
    deallocate_func : callable
        Called as `deallocate_func(ptr, nbytes, stream)`. Its exceptions are reported to `sys.unraisablehook` and ignored.

    Examples
    --------
    >>> import rmm
    >>> upstream = rmm.mr.CudaMemoryResource()
    >>> def allocate(nbytes, stream):
    ...     print(f"allocating {nbytes} bytes")
    ...     return upstream.allocate(nbytes, stream)
    >>> mine = rmm.mr.CallbackMemoryResource(allocate, upstream.deallocate)
    >>> buffer = rmm.DeviceBuffer(size=1024, mr=mine)
    allocating 1024 bytes
    """

    def __cinit__(self, allocate_func, deallocate_func):
        expect_callable(allocate_func)
        expect_callable(deallocate_func)
        self._allocate_func = allocate_func
        self._deallocate_func = deallocate_func
        self._lent = lend(<PyObject*>allocate_func, <PyObject*>deallocate_func)
        self.c_obj = make_callback_resource(call_allocate, call_deallocate, self._lent)
        cdef _Finalization action = _Finalization()
        action.lent = self._lent
        self._finalizer = _Finalizer(action)

    def __dealloc__(self):
        self.keep_lent()  # the base class does this when the attributes are gone already
        if self._lent.get() != NULL:
            (<lent_functions*>self._lent.get()).finalize()  # while the functions still exist


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
        # Cython reports an exception that leaves this noexcept function to sys.unraisablehook
        (<object>functions.second())(<uintptr_t>ptr, nbytes, Stream._from_cudaStream_t(stream))
    finally:
        if ptr != NULL:
            functions.note_deallocated()


@cython.no_gc_clear
cdef class FailureCallbackResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that calls a function when `upstream_mr` is out of memory.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    callback : callable
        Called as `callback(nbytes)`. Returns True to try again, after it has freed memory, and False to give up. The caller of
        the allocation gets a MemoryError or a RuntimeError of the function; other exceptions are the `__cause__` of a
        RuntimeError with their text.

    Examples
    --------
    >>> import rmm
    >>> small = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), 4096)
    >>> cache = [rmm.DeviceBuffer(size=4096, mr=small)]
    >>> def spill(nbytes):
    ...     return bool(cache) and cache.pop() is not None
    >>> spilling = rmm.mr.FailureCallbackResourceAdaptor(small, spill)
    >>> buffer = rmm.DeviceBuffer(size=1024, mr=spilling)
    >>> cache
    []
    """

    def __cinit__(self, DeviceMemoryResource upstream_mr, callback):
        expect_callable(callback)
        self._callback = callback
        self._lent = lend(<PyObject*>callback, NULL)
        self.c_obj = make_failure_callback_resource(upstream_mr.c_obj, call_failure_callback, self._lent)

    def __dealloc__(self):
        self.keep_lent()  # the base class does this when the attributes are gone already


@cython.no_gc_clear
cdef class SpillResourceAdaptor(UpstreamResourceAdaptor):
    """An adaptor that asks a function to free memory before the upstream runs out, and calls other functions at watermarks of use.

    Put it over a pool, and move data to memory of the host when it asks.

    Parameters
    ----------
    upstream_mr : DeviceMemoryResource
        The resource to take memory from.
    spill : callable, optional
        Called as `spill(nbytes)`. Frees memory, and returns the bytes that it freed; 0 if it can free nothing. It is called for two
        reasons. Before an allocation that would bring the bytes in use above `spill_above`, it is called with the excess; the
        allocation is made in any case. After the upstream ran out of memory, it is called with the bytes of the allocation, until
        the upstream has the memory, `spill` returns 0, or the freed bytes add up to the maximum.
    maximum : int or str, optional
        The bytes that shares refer to, such as the maximum of the pool; the memory of the current device if None. For an
        allocation above it, `spill` is called only after the upstream failed, and only if at least the bytes of the allocation are
        in use, or the pool can have them by the report of its failure.
    spill_above : float, optional
        A share of the maximum.
    watermarks : iterable of (float, float, callable), optional
        Each has a share of the maximum, a lower share, and a function that is called as `function(nbytes)` with the bytes in use,
        after an allocation that brings them above the first share. It is called again only after the bytes in use were at or below
        the lower share.

    Raises
    ------
    RuntimeError
        If `maximum` is 0, a share is not between 0 and 1, or the lower share of a watermark is above the other one.

    Notes
    -----
    If a function raises an exception, the allocation that called it fails. A MemoryError or a RuntimeError reaches the caller of the
    allocation as it is; any other exception is the `__cause__` of a RuntimeError with its text. The functions may allocate from the
    adaptor; no function is called for these allocations.

    Examples
    --------
    >>> import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "1MiB")
    >>> cached = {}
    >>> def spill(nbytes):
    ...     for name, buffer in cached.items():
    ...         if isinstance(buffer, rmm.DeviceBuffer):
    ...             cached[name] = buffer.tobytes()
    ...             return buffer.size
    ...     return 0
    >>> spilling = rmm.mr.SpillResourceAdaptor(pool, spill, maximum="1MiB")
    >>> cached["first"] = rmm.DeviceBuffer(size=800_000, mr=spilling)
    >>> cached["second"] = rmm.DeviceBuffer(size=800_000, mr=spilling)
    >>> {name: type(data).__name__ for name, data in cached.items()}
    {'first': 'bytes', 'second': 'DeviceBuffer'}
    >>> spilling.figures()
    {'calls': 1, 'asked_bytes': 551424, 'freed_bytes': 800000}
    """

    def __cinit__(
        self, DeviceMemoryResource upstream_mr, spill=None, *, maximum=None, double spill_above=1.0, watermarks=None
    ):
        cdef python_spill_hook hook = NULL
        cdef vector[watermark_shares] shares
        cdef watermark_shares one
        callbacks = []
        for one.above, one.below, callback in watermarks or ():
            expect_callable(callback)
            shares.push_back(one)
            callbacks.append(callback)
        if spill is not None:
            expect_callable(spill)
            hook = call_spill_hook
        self._spill = spill
        self._watermarks = tuple(callbacks)
        self._lent = lend(<PyObject*>self._spill, <PyObject*>self._watermarks)
        self.c_obj = make_spill_resource(
            upstream_mr.c_obj, upstream_mr.immediate(), self._immediate, hook, call_watermark, self._lent,
            optional_size(maximum), spill_above, shares)
        self._asked = self.c_obj.get()

    def __dealloc__(self):
        self.keep_lent()  # the base class does this when the attributes are gone already

    def get_allocated_bytes(self):
        """Return the bytes in use, as the maximum counts them.

        Returns
        -------
        int
            The sum of the sizes of live allocations, each rounded up to 256.

        Examples
        --------
        >>> import rmm
        >>> spilling = rmm.mr.SpillResourceAdaptor(rmm.mr.CudaMemoryResource(), lambda nbytes: 0, maximum="1MiB")
        >>> buffer = rmm.DeviceBuffer(size=1000, mr=spilling)
        >>> spilling.get_allocated_bytes()
        1024
        """
        return (<spill_resource_adaptor[base]*>self.usable())[0].get_allocated_bytes()

    def get_maximum(self):
        """Return the bytes that shares refer to.

        Returns
        -------
        int
            The maximum.

        Examples
        --------
        >>> import rmm
        >>> rmm.mr.SpillResourceAdaptor(rmm.mr.CudaMemoryResource(), lambda nbytes: 0, maximum="1MiB").get_maximum()
        1048576
        """
        return (<spill_resource_adaptor[base]*>self.usable())[0].get_maximum()

    def figures(self):
        """Return how often `spill` was called, and the bytes it was asked for and returned.

        Returns
        -------
        dict of str to int
            `calls`, `asked_bytes`, and `freed_bytes`, the sum of what it returned.

        Examples
        --------
        >>> import rmm
        >>> spilling = rmm.mr.SpillResourceAdaptor(rmm.mr.CudaMemoryResource(), lambda nbytes: 0, maximum="1MiB")
        >>> spilling.figures()["calls"]
        0
        """
        cdef device_memory_resource* mr = self.usable()
        cdef spill_figures figures
        with nogil:
            figures = spill_figures_of(mr)
        return {"calls": figures.calls, "asked_bytes": figures.asked_bytes, "freed_bytes": figures.freed_bytes}


cdef size_t call_spill_hook(lent_callables& lent, size_t nbytes, python_error& error) noexcept with gil:
    try:
        freed = (<object>(<lent_functions*>&lent).first())(nbytes)
        if freed is True or freed is False:
            raise TypeError("the function returned a bool: it has to return the bytes that it freed")
        return <size_t>freed
    except BaseException as exception:
        (&error).note(<PyObject*>exception, translate_python_except_to_cpp(exception))
    return 0


cdef void call_watermark(lent_callables& lent, size_t index, size_t nbytes, python_error& error) noexcept with gil:
    try:
        (<object>(<lent_functions*>&lent).second())[index](nbytes)
    except BaseException as exception:
        (&error).note(<PyObject*>exception, translate_python_except_to_cpp(exception))
