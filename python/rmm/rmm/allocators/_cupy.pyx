# SPDX-License-Identifier: Apache-2.0
"""The implementation of rmm.allocators.cupy. Compiled, because CuPy allocates often."""

from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF
from cuda.bindings.cyruntime cimport cudaStream_t
from libc.stddef cimport size_t
from libc.stdint cimport intptr_t, uintptr_t

from rmm.librmm.device_buffer cimport device_buffer
from rmm.pylibrmm.device_buffer cimport DeviceBuffer, fill_at_once, fill_with, without_memory
from rmm.pylibrmm.stream cimport Stream

from importlib import import_module

from rmm.pylibrmm.stream import DEFAULT_STREAM

__all__ = ["rmm_cupy_allocator"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "allocators/_object_maker.hpp" namespace "rmm_python":
    cdef cppclass object_maker:
        void set(object)
        object make(tuple)


ctypedef intptr_t (*handle_function)() noexcept
ctypedef PyObject* (*stream_function)(int skip_dispatch, void* optional_arguments) noexcept

# The module cupy.cuda, once the first call has found it.
cdef object _cuda = None
cdef object_maker _unowned_memory
cdef object_maker _memory_pointer
cdef object _current_stream = None
cdef handle_function _current_handle = NULL
cdef stream_function _current_stream_in_c = NULL

# A C variable, which needs no look-up.
cdef Stream _default_stream = DEFAULT_STREAM


cdef void* function_of(object module, str name, const char* signature) except? NULL:
    """Returns a C function that a Cython module exports; NULL if it exports none with this name and signature."""
    capsule = getattr(module, "__pyx_capi__", {}).get(name)
    if capsule is None or not PyCapsule_IsValid(capsule, signature):
        return NULL
    return PyCapsule_GetPointer(capsule, signature)


cdef find_cupy():
    global _cuda, _current_stream, _current_handle, _current_stream_in_c
    found = import_module("cupy.cuda")
    _current_handle = <handle_function>function_of(found.stream, "get_current_stream_ptr", "intptr_t (void)")
    _current_stream_in_c = <stream_function>function_of(
        found.stream,
        "get_current_stream",
        "PyObject *(int __pyx_skip_dispatch, struct __pyx_opt_args_4cupy_4cuda_6stream_get_current_stream *__pyx_optional_args)",
    )
    _unowned_memory.set(found.UnownedMemory)
    _memory_pointer.set(found.MemoryPointer)
    _current_stream = found.get_current_stream
    _cuda = found


def _forget_cupy():
    """Makes the next call import CuPy again. For tests."""
    global _cuda
    _cuda = None


cdef Stream current_stream():
    """Returns CuPy's current stream. Makes no Python object for the default stream, which is the usual case."""
    cdef intptr_t handle
    if _current_handle != NULL:
        handle = _current_handle()
        if PyErr_Occurred() != NULL:
            PyErr_Clear()  # the Python call below raises the exception again
        elif handle == 0:
            return _default_stream
        else:
            return Stream._from_cudaStream_t(<cudaStream_t><uintptr_t>handle, current_stream_of_cupy())
    stream = _current_stream()
    return Stream(stream) if stream.ptr else _default_stream


cdef object current_stream_of_cupy():
    if _current_stream_in_c == NULL:
        return _current_stream()
    cdef PyObject* stream = _current_stream_in_c(0, NULL)
    if stream == NULL:
        PyErr_Clear()  # the Python call below raises the exception again
        return _current_stream()
    owned = <object>stream
    Py_DECREF(owned)
    return owned


def rmm_cupy_allocator(nbytes):
    """Allocate memory for CuPy, from the resource of the current device, on CuPy's current stream.

    The memory keeps the stream alive.

    Parameters
    ----------
    nbytes : int
        The bytes.

    Returns
    -------
    cupy.cuda.MemoryPointer
        The memory.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If there is not enough memory. It is a MemoryError, with the report of the resource.

    Examples
    --------
    >>> import cupy  # doctest: +SKIP
    >>> cupy.cuda.set_allocator(rmm_cupy_allocator)  # doctest: +SKIP
    """
    cdef size_t size = nbytes
    if _cuda is None:
        find_cupy()
    cdef DeviceBuffer buffer = without_memory(current_stream())
    if not fill_at_once(buffer, size):
        try:
            fill_with(buffer, size)
        except MemoryError as error:
            raise out_of_memory(nbytes, error) from error.__cause__
    cdef device_buffer* memory = buffer.c_obj.get()
    # CuPy would ask the driver for the device if it was not passed.
    owned = _unowned_memory.make((<uintptr_t>memory.data(), nbytes, buffer, memory.device().value()))
    return _memory_pointer.make((owned, 0))


cdef object out_of_memory(size_t nbytes, error):
    made = _cuda.memory.OutOfMemoryError(nbytes, 0)
    made.args = error.args
    made.__dict__.update(error.__dict__)  # the report
    return made
