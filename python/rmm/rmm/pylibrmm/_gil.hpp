// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

/// @file
/// Whether Python has a global interpreter lock (GIL), so that only one thread at a time runs Python.
///
/// A free-threaded Python switches the GIL on for good when it loads a module that does not declare that it can do without, such as
/// those of this package. `PYTHON_GIL=0` forbids that.

namespace rmm_python {

#ifdef Py_GIL_DISABLED

inline bool gil_is_on{};

[[nodiscard]] inline bool has_gil() noexcept { return gil_is_on; }

/// Makes has_gil() tell what Python says. Call it while a module of this package is imported. Until then, has_gil() is false.
inline void learn_gil() noexcept
{
  auto* const question = PySys_GetObject("_is_gil_enabled");
  auto* const answer   = question != nullptr ? PyObject_CallNoArgs(question) : nullptr;
  gil_is_on            = answer == Py_True;
  Py_XDECREF(answer);
  if (answer == nullptr) { PyErr_Clear(); }
}

#else

[[nodiscard]] constexpr bool has_gil() noexcept { return true; }

inline void learn_gil() noexcept {}

#endif

}  // namespace rmm_python
