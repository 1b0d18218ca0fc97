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


cdef extern from "pylibrmm/_static_types.hpp" namespace "rmm_python":
    void reference_static_type(object value)


cdef class CudaStreamPool:
    """A fixed set of CUDA streams on the current device, handed out in turn.

    Parameters
    ----------
    pool_size : int, optional
        The number of streams, at least 1.
    flags : CudaStreamFlags, optional
        The relation of the streams to the legacy default stream.

    Raises
    ------
    ValueError
        If `pool_size` is 0.

    Examples
    --------
    >>> from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
    >>> streams = CudaStreamPool(4)
    >>> streams.get_stream() == streams.get_stream()
    False
    """

    def __cinit__(self, size_t pool_size=16, flags=CudaStreamFlags.SYNC_DEFAULT):
        cdef cuda_stream_flags c_flags = <cuda_stream_flags><uint32_t>int(CudaStreamFlags(flags))
        if pool_size == 0:
            raise ValueError("Pool size must be greater than zero")
        with nogil:
            self.c_obj.reset(new cuda_stream_pool(pool_size, c_flags))

    def __dealloc__(self):
        reference_static_type(self)
        with nogil:
            self.c_obj.reset()

    def get_stream(self, stream_id=None):
        """Return a stream, which keeps the pool alive.

        Parameters
        ----------
        stream_id : int, optional
            The number of the stream, modulo the size of the pool. If None, the next stream in turn.

        Returns
        -------
        rmm.pylibrmm.stream.Stream
            The stream.

        Examples
        --------
        >>> from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
        >>> streams = CudaStreamPool(4)
        >>> streams.get_stream(1) == streams.get_stream(5)
        True
        """
        cdef size_t number
        if stream_id is None:
            return Stream._from_cudaStream_t(self.streams().get_stream().value(), self)
        number = stream_id
        return Stream._from_cudaStream_t(self.streams().get_stream(number).value(), self)

    def get_pool_size(self):
        """Return the number of streams.

        Returns
        -------
        int
            The number.

        Examples
        --------
        >>> from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
        >>> CudaStreamPool(4).get_pool_size()
        4
        """
        return self.streams().get_pool_size()

    cdef cuda_stream_pool* streams(self) except NULL:
        """Returns the streams. Raises ValueError if there are none, because the constructor raised an exception or did not run."""
        if self.c_obj.get() == NULL:
            raise ValueError("the object has no streams: its constructor raised an exception, or did not run")
        return self.c_obj.get()
