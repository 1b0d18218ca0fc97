// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

#include <utility>

/// @file
/// Failures of the interface: a status and a text, kept for the thread. No exception crosses the interface.

namespace rmm_c {

/// The activity during which a failure happened. While a resource is made, an invalid argument is a bad configuration.
enum class activity { making_a_resource, anything_else };

/// Keeps a failure for the calling thread. Returns `status`.
rmm_c_status fail(rmm_c_status status, char const* text) noexcept;

/// Keeps the exception that is being handled as a failure. Returns its status.
rmm_c_status fail_by_exception(activity during) noexcept;

/// Calls `action()`, which returns a status, and turns its exceptions into failures.
template <class Action>
rmm_c_status guarded(Action&& action, activity during = activity::anything_else) noexcept
{
  try {
    return std::forward<Action>(action)();
  } catch (...) {
    return fail_by_exception(during);
  }
}

}  // namespace rmm_c
