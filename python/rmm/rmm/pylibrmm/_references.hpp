// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace rmm_python {

/// Returns whether the caller has the only reference to `object`, so that nothing else can see a change of it. False where other threads
/// run Python at the same time.
[[nodiscard]] inline bool is_only_reference(PyObject* object) noexcept
{
#ifdef Py_GIL_DISABLED
  return false;
#else
  return Py_REFCNT(object) == 1;
#endif
}

}  // namespace rmm_python
