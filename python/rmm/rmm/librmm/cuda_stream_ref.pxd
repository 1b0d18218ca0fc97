# SPDX-License-Identifier: Apache-2.0

from cuda.bindings.cyruntime cimport cudaStream_t


cdef extern from "<cuda/stream_ref>" namespace "cuda" nogil:
    cdef cppclass stream_ref:
        stream_ref() noexcept
        stream_ref(cudaStream_t stream) noexcept
        cudaStream_t get() noexcept


ctypedef stream_ref cuda_stream_ref
