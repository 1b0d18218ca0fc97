# SPDX-License-Identifier: Apache-2.0

# Passes Python exceptions to C++. Apart from rmm.librmm.memory_resource, whose headers take long to compile.

from libcpp.pair cimport pair
from libcpp.string cimport string

# A Python exception for C++ to throw: 0 for none, 1 for a MemoryError, 2 for any other; and its text.
ctypedef pair[int, string] CppExcept


cdef inline CppExcept translate_python_except_to_cpp(object error) noexcept:
    """Returns the argument of throw_cpp_except() for `error`."""
    cdef int kind = 2
    if isinstance(error, MemoryError):
        kind = 1
    try:
        return CppExcept(kind, str(error).encode("utf-8", "backslashreplace"))
    except BaseException:
        return CppExcept(kind, b"an exception that cannot be printed")


cdef extern from * nogil:
    """
    #ifndef RMM_PYTHON_THROW_CPP_EXCEPT
    #define RMM_PYTHON_THROW_CPP_EXCEPT
    #include <rmm/error.hpp>

    #include <stdexcept>
    #include <string>
    #include <utility>

    namespace {
    [[maybe_unused]] void rmm_throw_cpp_except(std::pair<int, std::string> const& error)
    {
      if (error.first == 1) { throw rmm::out_of_memory{error.second}; }
      if (error.first != 0) { throw std::runtime_error{error.second}; }
    }
    }  // namespace
    #endif
    """
    # Throws rmm::out_of_memory or std::runtime_error; does nothing for 0.
    void throw_cpp_except "rmm_throw_cpp_except"(CppExcept error) except +
