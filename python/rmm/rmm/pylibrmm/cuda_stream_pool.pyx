# SPDX-License-Identifier: Apache-2.0
"""A fixed set of CUDA streams, handed out in turn."""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from rmm.librmm.cuda_stream cimport cuda_stream_flags
from rmm.librmm.cuda_stream_pool cimport cuda_stream_pool
from rmm.pylibrmm.stream cimport Stream

from rmm.pylibrmm._stream_flags import CudaStreamFlags

__all__ = ["CudaStreamPool"]


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef class CudaStreamPool:
    """Streams on the current device, handed out in turn.

    Parameters
    ----------
    pool_size:
        Number of streams, at least 1.
    flags:
        How they relate to the legacy default stream.
    """

    def __cinit__(self, size_t pool_size=16, flags=CudaStreamFlags.SYNC_DEFAULT):
        cdef cuda_stream_flags c_flags = <cuda_stream_flags><uint32_t>int(CudaStreamFlags(flags))
        if pool_size == 0:
            raise ValueError("Pool size must be greater than zero")
        with nogil:
            self.c_obj.reset(new cuda_stream_pool(pool_size, c_flags))

    def __dealloc__(self):
        with nogil:
            self.c_obj.reset()

    def get_stream(self, stream_id=None):
        """The next stream, or the one with number `stream_id` modulo the size of the pool. It keeps the pool alive."""
        cdef size_t number
        if stream_id is None:
            return Stream._from_cudaStream_t(self.streams().get_stream().value(), self)
        number = stream_id
        return Stream._from_cudaStream_t(self.streams().get_stream(number).value(), self)

    def get_pool_size(self):
        """Number of streams."""
        return self.streams().get_pool_size()

    cdef cuda_stream_pool* streams(self) except NULL:
        """The streams; ValueError where there are none, as in an object whose constructor raised an exception."""
        if self.c_obj.get() == NULL:
            raise ValueError("the pool of streams was not made")
        return self.c_obj.get()
