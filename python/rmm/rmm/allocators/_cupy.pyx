# SPDX-License-Identifier: Apache-2.0
"""What rmm.allocators.cupy is made of. Compiled, for CuPy allocates often."""

from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
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

# Of CuPy, since the first call.
cdef object _cuda = None
cdef object_maker _unowned_memory
cdef object_maker _memory_pointer
cdef object _current_stream = None
cdef handle_function _current_handle = NULL

# As a C variable it costs no look-up.
cdef Stream _default_stream = DEFAULT_STREAM


cdef find_cupy():
    global _cuda, _current_stream, _current_handle
    found = import_module("cupy.cuda")
    functions = getattr(found.stream, "__pyx_capi__", {})
    capsule = functions.get("get_current_stream_ptr")
    _current_handle = NULL
    if capsule is not None and PyCapsule_IsValid(capsule, "intptr_t (void)"):
        _current_handle = <handle_function>PyCapsule_GetPointer(capsule, "intptr_t (void)")
    _unowned_memory.set(found.UnownedMemory)
    _memory_pointer.set(found.MemoryPointer)
    _current_stream = found.get_current_stream
    _cuda = found


def _forget_cupy():
    """Looks for CuPy again in the next call. For tests."""
    global _cuda
    _cuda = None


cdef Stream current_stream():
    """CuPy's current stream; that is made an object only if it is not the default one, which is the usual one."""
    cdef intptr_t handle
    if _current_handle != NULL:
        handle = _current_handle()
        if PyErr_Occurred() != NULL:
            PyErr_Clear()  # the call below raises it again
        elif handle == 0:
            return _default_stream
    stream = _current_stream()
    return Stream(stream) if stream.ptr else _default_stream


def rmm_cupy_allocator(size_t nbytes):
    """Allocates `nbytes` bytes for CuPy, from the resource of the current device, on CuPy's current stream.

    The stream lives as long as the memory. Where there is not enough memory, CuPy's own `OutOfMemoryError` is raised, a
    `MemoryError`, with the report of the resource.

    >>> import cupy  # doctest: +SKIP
    >>> cupy.cuda.set_allocator(rmm_cupy_allocator)  # doctest: +SKIP
    """
    if _cuda is None:
        find_cupy()
    cdef DeviceBuffer buffer = without_memory(current_stream())
    if not fill_at_once(buffer, nbytes):
        try:
            fill_with(buffer, nbytes)
        except MemoryError as error:
            raise out_of_memory(nbytes, error) from error.__cause__
    cdef device_buffer* memory = buffer.c_obj.get()
    # The device is given, for CuPy asks the driver where the memory is if it is not.
    owned = _unowned_memory.make((<uintptr_t>memory.data(), nbytes, buffer, memory.device().value()))
    return _memory_pointer.make((owned, 0))


cdef object out_of_memory(size_t nbytes, error):
    made = _cuda.memory.OutOfMemoryError(nbytes, 0)
    made.args = error.args
    made.__dict__.update(error.__dict__)  # its report
    return made
