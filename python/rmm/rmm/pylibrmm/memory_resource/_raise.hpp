// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"
#include "pylibrmm/memory_resource/_python_exception.hpp"

#include <Python.h>

#include <rmm/detail/base/file_error.hpp>
#include <rmm/error.hpp>

#include <exception>
#include <new>
#include <stdexcept>

namespace rmm_python {

/// Functions that make exceptions of the classes of this package.
struct exception_makers {
  PyObject* (*reported_memory_error)(char const* text, void const* report);  // a rmm::memory_report
  PyObject* (*file_error)(void const* error);                                // a rmm::detail::file_error
};

/// Raises `made`, or an exception of `type` with `text` if it is null. `cause` becomes its cause, unless it is null. Takes over both
/// references.
inline void raise(PyObject* made, PyObject* type, char const* text, PyObject* cause = nullptr) noexcept
{
  if (made == nullptr) {
    PyErr_Clear();  // probably out of host memory; `text` has the most important part
    made = PyObject_CallFunction(type, "s", text);
  }
  if (made == nullptr) {
    Py_XDECREF(cause);
    return;  // the exception of the failed call stays raised
  }
  if (cause != nullptr) { PyException_SetCause(made, cause); }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made)), made);
  Py_DECREF(made);
}

/// Raises a Python exception again that passed through C++. A MemoryError or RuntimeError is raised itself. Any other becomes the cause of
/// a RuntimeError with its text, so that `except RuntimeError` catches it.
inline void raise_carried(PyObject* object, char const* text) noexcept
{
  bool const is_itself =
    PyObject_IsInstance(object, PyExc_MemoryError) == 1 || PyObject_IsInstance(object, PyExc_RuntimeError) == 1;
  if (is_itself) {
    raise(Py_NewRef(object), nullptr, nullptr);
  } else {
    // `text` ends at the first NUL of the exception's own
    PyObject* const whole = run_python([&] { return PyObject_Str(object); });
    PyObject* const made =
      whole != nullptr ? PyObject_CallFunctionObjArgs(PyExc_RuntimeError, whole, nullptr) : nullptr;
    Py_XDECREF(whole);
    raise(made, PyExc_RuntimeError, text, Py_NewRef(object));
  }
}

/// Raises the Python exception that corresponds to the C++ exception being handled. The caller holds the GIL.
inline void raise_current(exception_makers const& make) noexcept
{
  try {
    throw;
  } catch (carried_memory_error const& error) {
    raise_carried(error.object(), error.what());
  } catch (carried_failure const& error) {
    raise_carried(error.object(), error.what());
  } catch (rmm::out_of_memory const& error) {
    auto const* const report = error.report();
    PyObject* const made =
      report != nullptr ? run_python([&] { return make.reported_memory_error(error.what(), report); }) : nullptr;
    raise(made, PyExc_MemoryError, error.what(), python_cause_of(error));
  } catch (std::bad_alloc const& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (std::out_of_range const& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (std::invalid_argument const& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (std::domain_error const& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (rmm::detail::file_error const& error) {
    raise(run_python([&] { return make.file_error(&error); }), PyExc_RuntimeError, error.what());
  } catch (std::exception const& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of no known type");
  }
}

}  // namespace rmm_python
