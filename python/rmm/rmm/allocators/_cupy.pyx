# SPDX-License-Identifier: Apache-2.0
"""The implementation of rmm.allocators.cupy. Compiled, because CuPy allocates often."""

from cpython.exc cimport PyErr_Clear
from cpython.long cimport PyLong_AsVoidPtr, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF
from cuda.bindings.cyruntime cimport cudaStream_t
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool

from rmm.librmm.device_buffer cimport device_buffer
from rmm.pylibrmm.device_buffer cimport DeviceBuffer, fill_at_once, fill_with, without_memory
from rmm.pylibrmm.stream cimport Stream, stream_of_leaf

from importlib import import_module

from rmm.pylibrmm.stream import DEFAULT_STREAM

__all__ = ["rmm_cupy_allocator"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "Python.h":
    size_t PyLong_AsSize_t(object) except? <size_t>-1  # faster than the conversion that Cython writes for the stable ABI


cdef extern from "allocators/_object_maker.hpp" namespace "rmm_python":
    cdef cppclass object_maker:
        void set(object)
        object make(tuple)


cdef extern from "allocators/_direct_function.hpp" namespace "rmm_python":
    object with_direct_calls "rmm_python::direct_function::make"(object function, object (*shortcut)(object)) except +


cdef extern from "allocators/_stream_records.hpp" namespace "rmm_python":
    cdef cppclass known_stream:
        cudaStream_t handle
        uint64_t identity

    cdef cppclass stream_records:
        known_stream find(PyObject*)
        bool has_place_for(PyObject*)
        known_stream add(PyObject*, cudaStream_t handle, bool owns_handle)


ctypedef PyObject* (*stream_function)(int skip_dispatch, void* optional_arguments) noexcept

# The module cupy.cuda, once the first call has found it.
cdef object _cuda = None
cdef object_maker _unowned_memory
cdef object_maker _memory_pointer
cdef object _null_stream = None
cdef object _stream_class = None
cdef bool _may_be_foreign = False
cdef stream_records _streams
cdef object _current_stream = None
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
    global _cuda, _null_stream, _stream_class, _may_be_foreign, _current_stream, _current_stream_in_c
    found = import_module("cupy.cuda")
    _current_stream_in_c = <stream_function>function_of(
        found.stream,
        "get_current_stream",
        "PyObject *(int __pyx_skip_dispatch, struct __pyx_opt_args_4cupy_4cuda_6stream_get_current_stream *__pyx_optional_args)",
    )
    _unowned_memory.set(found.UnownedMemory)
    _memory_pointer.set(found.MemoryPointer)
    _stream_class = getattr(found, "Stream", None)  # a stand-in for CuPy may have none
    _null_stream = getattr(_stream_class, "null", None)
    _may_be_foreign = hasattr(_stream_class, "from_external")
    _current_stream = found.get_current_stream
    _cuda = found


def _forget_cupy():
    """Makes the next call import CuPy again. For tests."""
    global _cuda
    _cuda = None


cdef Stream current_stream(uint64_t* identity):
    """Returns CuPy's current stream. Sets `identity` to that of the stream; to 0 if only CUDA knows it.

    Asks CuPy for the stream itself, because its function for the handle takes twice as long.
    """
    identity[0] = 0
    stream = current_stream_of_cupy()
    if stream is _null_stream:  # the usual case
        return _default_stream
    cdef known_stream known = _streams.find(<PyObject*>stream)
    if known.handle == NULL:
        known.handle = <cudaStream_t>PyLong_AsVoidPtr(stream.ptr)
        if known.handle == NULL:
            return _default_stream
        if type(stream) is _stream_class and _streams.has_place_for(<PyObject*>stream):
            known = _streams.add(<PyObject*>stream, known.handle, owns_handle(stream))
    identity[0] = known.identity
    return stream_of_leaf(known.handle, stream)


cdef bool owns_handle(object stream):
    """Returns whether an object of CuPy's class Stream made its stream. Those of Stream.from_external() refer to another object instead."""
    return not _may_be_foreign or getattr(stream, "_foreign_stream_ref", stream) is None


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
    return allocate(nbytes)


cdef object allocate(object nbytes):
    cdef size_t size = PyLong_AsSize_t(nbytes) if PyLong_CheckExact(nbytes) else nbytes
    if _cuda is None:
        find_cupy()
    cdef uint64_t identity
    cdef DeviceBuffer buffer = without_memory(current_stream(&identity))
    if not fill_at_once(buffer, size, identity):
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


rmm_cupy_allocator = with_direct_calls(rmm_cupy_allocator, allocate)
