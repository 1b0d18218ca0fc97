# SPDX-License-Identifier: Apache-2.0

from libcpp.memory cimport unique_ptr

from rmm.librmm.cuda_stream_pool cimport cuda_stream_pool


cdef class CudaStreamPool:
    cdef unique_ptr[cuda_stream_pool] c_obj
    cdef cuda_stream_pool* streams(self) except NULL
