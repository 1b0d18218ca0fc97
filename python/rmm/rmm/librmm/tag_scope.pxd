# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t
from libcpp.string cimport string


cdef extern from "rmm/tag_scope.hpp" namespace "rmm" nogil:
    cdef cppclass tag:
        tag() noexcept
        tag(string name) noexcept

        @staticmethod
        tag current() noexcept
        @staticmethod
        tag from_id(uint32_t id) noexcept

        uint32_t id() noexcept
        const char* name() noexcept
