# SPDX-License-Identifier: Apache-2.0
"""Owners of CUDA streams."""

from cuda.bindings.cyruntime cimport cudaStream_t
from libc.stdint cimport uint32_t
from libcpp cimport bool

from rmm.librmm.cuda_stream cimport cuda_stream, cuda_stream_flags

from rmm.pylibrmm._stream_flags import CudaStreamFlags

__all__ = ["CudaStream", "CudaStreamFlags"]


cdef extern from "pylibrmm/_static_types.hpp" namespace "rmm_python":
    void reference_static_type(object value)


cdef class CudaStream:
    """An owner of a new CUDA stream on the current device. Queued work still completes when the stream ends.

    Parameters
    ----------
    flags : CudaStreamFlags, optional
        The relation of the stream to the legacy default stream.

    Examples
    --------
    >>> from rmm.pylibrmm.cuda_stream import CudaStream
    >>> stream = CudaStream()
    """

    def __cinit__(self, flags=CudaStreamFlags.SYNC_DEFAULT):
        cdef cuda_stream_flags c_flags = <cuda_stream_flags><uint32_t>int(CudaStreamFlags(flags))
        with nogil:
            self.c_obj.reset(new cuda_stream(c_flags))

    def __dealloc__(self):
        reference_static_type(self)
        with nogil:
            self.c_obj.reset()

    cdef cudaStream_t value(self) except * nogil:
        if self.c_obj.get() == NULL:
            with gil:
                raise ValueError("the object has no stream: its constructor raised an exception, or did not run")
        return self.c_obj.get()[0].value()

    cdef bool is_valid(self) except * nogil:
        return self.c_obj.get() != NULL and self.c_obj.get()[0].is_valid()
