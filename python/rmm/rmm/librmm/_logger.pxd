# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int32_t
from libcpp cimport bool
from libcpp.string cimport string


cdef extern from "rmm/detail/plain_logger.hpp" namespace "rmm::detail::plain_logger" nogil:
    cdef enum class level_enum(int32_t):
        trace
        debug
        info
        warn
        error
        critical
        off
        n_levels

    cdef cppclass logger:
        void set_level(level_enum log_level) except +
        level_enum level() except +
        void flush() except +
        void flush_on(level_enum level) except +
        level_enum flush_level() except +
        bool should_log(level_enum msg_level) except +
