# SPDX-License-Identifier: Apache-2.0
"""Resources that call functions of Python."""

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
