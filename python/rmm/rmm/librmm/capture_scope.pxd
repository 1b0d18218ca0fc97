# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint64_t

from rmm.librmm.cuda_stream_view cimport cuda_stream_view


cdef extern from "rmm/capture_scope.hpp" namespace "rmm" nogil:
    cdef cppclass graph_memory:
        graph_memory() except +
        graph_memory(const graph_memory&) noexcept
        void release(cuda_stream_view stream) noexcept
        uint64_t id() noexcept

    cdef cppclass capture_scope:
        capture_scope(cuda_stream_view stream) except +
        capture_scope(cuda_stream_view stream, graph_memory memory) except +
        const graph_memory& memory() noexcept
