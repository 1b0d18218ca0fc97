// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/_run_python.hpp"
#include "pylibrmm/memory_resource/_lent_callables.hpp"
#include "pylibrmm/memory_resource/_python_exception.hpp"
#include "pylibrmm/memory_resource/_suballocators.hpp"

#include <Python.h>

#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/mr/failure_callback_t.hpp>

#include <cstddef>
#include <utility>

namespace rmm_python {

/// A function that takes the GIL, calls Python, and does not throw.
using python_failure_callback = bool (*)(lent_callables& lent, std::size_t bytes, python_error& error);

/// Makes a failure callback that calls a Python function.
[[nodiscard]] inline rmm::mr::failure_callback_t make_failure_callback(python_failure_callback callback,
                                                                       lent_ptr const& lent)
{
  return [callback, lent](std::size_t bytes, void*) {
    if (!can_run_python()) { return false; }
    python_error error{};
    bool const retry = run_python([&] { return callback(*lent, bytes, error); });
    error.throw_if_noted();
    return retry;
  };
}

/// Sets the failure callback of a pool to a Python function, or removes it if `lent` is null. The caller holds the GIL; it is released
/// while the function waits for locks.
inline void set_failure_callback(rmm::mr::detail::growing_pool* pool,
                                 python_failure_callback callback,
                                 lent_ptr const& lent)
{
  rmm::mr::failure_callback_t function;
  if (lent != nullptr) { function = make_failure_callback(callback, lent); }
  auto* const state = PyEval_SaveThread();
  rmm::detail::scope_guard const restore{[&]() noexcept { run_python([&] { PyEval_RestoreThread(state); }); }};
  set_failure_callback(pool, std::move(function));
}

}  // namespace rmm_python
