# SPDX-License-Identifier: Apache-2.0

# Functions of Python that C++ calls. For modules of this package only: others lack the C++ headers that this file includes.

from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libcpp cimport bool

from rmm.librmm._python_exceptions cimport CppExcept, translate_python_except_to_cpp
from rmm.pylibrmm.memory_resource._base cimport lent_callables, lent_ptr


cdef extern from "pylibrmm/memory_resource/_python_exception.hpp" namespace "rmm_python":
    cdef cppclass python_error:
        void note(PyObject* exception, CppExcept kind_and_text)


cdef extern from "pylibrmm/memory_resource/_lent_callables.hpp" namespace "rmm_python":
    cdef cppclass lent_functions "rmm_python::lent_callables":
        PyObject* first()
        PyObject* second()
        void note_allocated()
        void finalize()
        bint has_live()
        void note_deallocated()

    lent_ptr lend(PyObject* first, PyObject* second) except +


ctypedef bool (*python_failure_callback)(lent_callables&, size_t, python_error&) noexcept


cdef inline bool call_failure_callback(lent_callables& lent, size_t nbytes, python_error& error) noexcept with gil:
    try:
        return True if (<object>(<lent_functions*>&lent).first())(nbytes) else False
    except BaseException as exception:
        (&error).note(<PyObject*>exception, translate_python_except_to_cpp(exception))
    return False
