# SPDX-License-Identifier: Apache-2.0
"""CUDA streams of this package and of other libraries."""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cuda.bindings.cyruntime cimport cudaStream_t
from libc.stdint cimport uintptr_t
from libcpp cimport bool

from rmm.librmm.cuda_stream_view cimport cuda_stream_view
from rmm.pylibrmm.cuda_stream cimport CudaStream

from rmm.pylibrmm._stream_flags import CudaStreamFlags

_OwningStream = CudaStream  # the name in later releases
__all__ = ["DEFAULT_STREAM", "LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM", "CudaStreamFlags", "Stream"]


def _made_by(obj, library):
    """Returns whether the class of `obj` or a base class comes from `library`, which need not be imported."""
    return any((cls.__module__ or "").partition(".")[0] == library for cls in type(obj).__mro__)


def _handle_of(obj):
    """Returns the handle of a stream of another library, as an int."""
    protocol = getattr(obj, "__cuda_stream__", None)
    if protocol is not None:
        answer = protocol() if callable(protocol) else protocol
        version, handle = answer
        if version != 0:
            raise NotImplementedError(f"__cuda_stream__ of {type(obj)} has version: '{version}'; only version 0 is known")
        return int(handle)
    if _made_by(obj, "numba") and hasattr(obj, "handle"):
        handle = obj.handle
        handle = getattr(handle, "value", handle)  # a ctypes pointer, or an object of CUDA's own bindings
        return 0 if handle is None else int(handle)
    if _made_by(obj, "cupy") and hasattr(obj, "ptr"):
        return int(obj.ptr)
    raise TypeError(f"Cannot create stream from {type(obj)}")


cdef extern from "pylibrmm/_static_types.hpp" namespace "rmm_python":
    void reference_static_type(object value)


cdef extern from "pylibrmm/_gil.hpp" namespace "rmm_python":
    void learn_gil()


cdef extern from "pylibrmm/_references.hpp" namespace "rmm_python":
    bool is_only_reference(PyObject* value)


cdef extern from "Python.h":
    bint PyObject_GC_IsTracked(PyObject*)
    void PyObject_GC_Track(PyObject*)
    void PyObject_GC_UnTrack(PyObject*)


learn_gil()


# A Stream without an owner, and the only reference to it; or NULL. To reuse it is faster than to make one for each allocation.
cdef PyObject* _spare = NULL
# Whether the garbage collector may not see the spare Stream.
cdef bool _may_be_untracked = False


cdef Stream unused_stream():
    """Returns a Stream without an owner: the spare one, or a new one."""
    global _spare
    cdef PyObject* spare = _spare
    if spare == NULL or not is_only_reference(spare):  # a caller of gc.get_objects() may have it
        return Stream.__new__(Stream)
    _spare = NULL
    stream = <Stream>spare
    Py_DECREF(stream)
    return stream


cdef void keep_if_unused(PyObject* ending) noexcept:
    """Makes a Stream the spare one, if the caller has the only reference to it, which it is about to drop. Releases its owner."""
    global _spare
    if _spare != NULL or type(<object>ending) is not Stream or not is_only_reference(ending):
        return
    (<Stream>ending)._owner = None  # may run Python code, which may keep another one
    if _spare == NULL:
        Py_INCREF(<object>ending)
        _spare = ending


cdef Stream stream_of_leaf(cudaStream_t s, object owner):
    """Wraps the stream of an `owner` that refers to no memory, such as one of CuPy. The garbage collector does not see the result.

    Otherwise it would end an owner, and thus the stream, before the buffers in the same cycle, which free their memory on the stream.
    """
    global _may_be_untracked
    _may_be_untracked = True
    cdef Stream stream = unused_stream()
    stream._cuda_stream = s
    stream._owner = owner
    PyObject_GC_UnTrack(<PyObject*>stream)
    return stream


@cython.no_gc_clear  # buffers in the same cycle free their memory on the stream later
cdef class Stream:
    """A CUDA stream.

    Parameters
    ----------
    obj : object, optional
        A stream that exists, and that is kept alive: another `Stream`, an object with the method `__cuda_stream__`, or a stream of
        Numba or CuPy. If None, a new stream is made on the current device. It ends with the last object that refers to it.
    flags : CudaStreamFlags, optional
        The relation of a new stream to the legacy default stream.

    Raises
    ------
    TypeError
        If `obj` is not a stream.
    ValueError
        If `flags` is given together with `obj`.

    Examples
    --------
    >>> import rmm
    >>> from rmm.pylibrmm.stream import Stream
    >>> stream = Stream()
    >>> buffer = rmm.DeviceBuffer(size=1000, stream=stream)
    >>> stream.synchronize()
    """

    def __dealloc__(self):
        reference_static_type(self)

    def __init__(self, obj=None, flags=None):
        if obj is None:
            self._init_with_new_cuda_stream(flags)
        elif flags is not None:
            raise ValueError("flags may only be specified when obj is None")
        elif isinstance(obj, Stream):
            self._init_from_stream(obj)
        else:
            self._cuda_stream = <cudaStream_t><uintptr_t>_handle_of(obj)
            self._owner = obj

    @staticmethod
    cdef Stream _from_cudaStream_t(cudaStream_t s, object owner=None):
        """Wraps an existing stream that `owner` keeps alive."""
        cdef Stream stream = unused_stream()
        stream._cuda_stream = s
        stream._owner = owner
        if _may_be_untracked and not PyObject_GC_IsTracked(<PyObject*>stream):
            PyObject_GC_Track(<PyObject*>stream)
        return stream

    cdef cuda_stream_view view(self) noexcept nogil:
        return cuda_stream_view(self._cuda_stream)

    cdef void c_synchronize(self) except * nogil:
        self.view().synchronize()

    cdef bool c_is_default(self) noexcept nogil:
        return self.view().is_default()

    cdef void _init_with_new_cuda_stream(self, object flags=None) except *:
        cdef CudaStream stream = CudaStream() if flags is None else CudaStream(flags)
        self._cuda_stream = stream.value()
        self._owner = stream

    cdef void _init_from_stream(self, Stream stream) except *:
        self._cuda_stream = stream._cuda_stream
        self._owner = stream._owner

    def synchronize(self):
        """Wait until all work of the stream is done. Other Python threads can run meanwhile.

        Examples
        --------
        >>> from rmm.pylibrmm.stream import Stream
        >>> Stream().synchronize()
        """
        with nogil:
            self.c_synchronize()

    def is_default(self):
        """Return whether this is the legacy default stream.

        Returns
        -------
        bool
            Whether it is.

        Examples
        --------
        >>> from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
        >>> DEFAULT_STREAM.is_default(), Stream().is_default()
        (True, False)
        """
        return self.c_is_default()

    def __cuda_stream__(self):
        """Return the version of the protocol, 0, and the handle."""
        return (0, <uintptr_t>self._cuda_stream)

    def __eq__(self, other):
        if not isinstance(other, Stream):
            return NotImplemented
        return self._cuda_stream == (<Stream>other)._cuda_stream

    def __hash__(self):
        return hash(<uintptr_t>self._cuda_stream)

    def __repr__(self):
        return f"Stream(0x{<uintptr_t>self._cuda_stream:x})"


DEFAULT_STREAM = Stream._from_cudaStream_t(<cudaStream_t><uintptr_t>0)
LEGACY_DEFAULT_STREAM = Stream._from_cudaStream_t(<cudaStream_t><uintptr_t>1)
PER_THREAD_DEFAULT_STREAM = Stream._from_cudaStream_t(<cudaStream_t><uintptr_t>2)
