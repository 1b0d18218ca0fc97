# SPDX-License-Identifier: Apache-2.0
"""Resources that call Python functions."""

cimport cython
from cpython.object cimport PyObject
from cuda.bindings.cyruntime cimport cudaStream_t
from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t
from libcpp cimport bool

from rmm.librmm.memory_resource cimport translate_python_except_to_cpp
from rmm.pylibrmm.memory_resource._base cimport (
    DeviceMemoryResource,
    UpstreamResourceAdaptor,
    lent_callables,
    lent_ptr,
    resource_ptr,
)
from rmm.pylibrmm.memory_resource._conversions cimport expect_callable
from rmm.pylibrmm.memory_resource._lent cimport (
    call_failure_callback,
    lend,
    lent_functions,
    python_error,
    python_failure_callback,
)
from rmm.pylibrmm.stream cimport Stream

__all__ = ["CallbackMemoryResource", "FailureCallbackResourceAdaptor"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


ctypedef void* (*python_allocate)(lent_callables&, size_t, cudaStream_t, python_error&) noexcept
ctypedef void (*python_deallocate)(lent_callables&, void*, size_t, cudaStream_t) noexcept


cdef extern from "pylibrmm/memory_resource/_callbacks.hpp" namespace "rmm_python" nogil:
    resource_ptr make_callback_resource(python_allocate, python_deallocate, lent_ptr) except +
    resource_ptr make_failure_callback_resource(resource_ptr, python_failure_callback, lent_ptr) except +


@cython.no_gc_clear
cdef class CallbackMemoryResource(DeviceMemoryResource):
    """A resource that allocates by calling two functions of yours.

    Any thread that allocates or deallocates calls them. The resource and its live allocations keep the functions alive. If the
    functions refer to the resource, the garbage collector collects all of them once all allocations were freed.

    All memory that a pool has taken from the resource is allocated, whether the pool is in use or not. So if the functions refer
    to the pool, as methods of an object that has it as an attribute do, the garbage collector never collects them, and the memory
    is never freed. Let the functions refer to what they need instead, or remove the attribute when you are done.

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
        self.keep_lent()  # that of the base comes when the attributes have gone
