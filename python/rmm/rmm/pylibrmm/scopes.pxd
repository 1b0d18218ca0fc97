# SPDX-License-Identifier: Apache-2.0

from libcpp.memory cimport unique_ptr

from rmm.librmm.capture_scope cimport capture_scope as cpp_capture_scope, graph_memory
from rmm.librmm.tag_scope cimport tag as cpp_tag
from rmm.pylibrmm.stream cimport Stream


cdef class tag:
    cdef cpp_tag _tag


cdef class GraphMemory:
    cdef graph_memory _memory


cdef class capture_scope:
    cdef unique_ptr[cpp_capture_scope] _scope
    cdef Stream _stream
    cdef readonly GraphMemory memory
