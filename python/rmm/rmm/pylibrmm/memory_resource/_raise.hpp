// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"

#include <Python.h>

#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>

#include <exception>
#include <new>
#include <stdexcept>

namespace rmm_python {

/// Raises the C++ exception that is being handled as the one of Python that stands for it. The caller holds the GIL.
///
/// A MemoryError has what `make_report`, which returns a new reference or null, makes of the pool's report as its attribute
/// `report`, if a pool was out of memory.
inline void raise_current(PyObject* (*make_report)(void const*)) noexcept
{
  try {
    throw;
  } catch (rmm::out_of_memory const& error) {
    if (error.report() == nullptr) { return PyErr_SetString(PyExc_MemoryError, error.what()); }
    PyObject* const report = run_python([&] { return make_report(error.report()); });
    if (report == nullptr) { PyErr_Clear(); }  // no memory for it, most likely: the text says the same
    PyObject* const raised = PyObject_CallFunction(PyExc_MemoryError, "s", error.what());
    if (raised != nullptr) {
      if (report != nullptr && PyObject_SetAttrString(raised, "report", report) != 0) { PyErr_Clear(); }
      PyErr_SetObject(PyExc_MemoryError, raised);
    }
    Py_XDECREF(raised);
    Py_XDECREF(report);
  } catch (std::bad_alloc const& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (std::out_of_range const& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (std::invalid_argument const& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (std::domain_error const& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (std::exception const& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of no known type");
  }
}

}  // namespace rmm_python
