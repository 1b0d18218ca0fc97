// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_gil.hpp"

#include <Python.h>

namespace rmm_python {

/// Returns whether the caller has the only reference to `object`, so that nothing else can see a change of it. False without a GIL:
/// another thread could get a reference meanwhile.
[[nodiscard]] inline bool is_only_reference(PyObject* object) noexcept { return has_gil() && Py_REFCNT(object) == 1; }

}  // namespace rmm_python
