// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

#include <utility>

/// @file
/// How failures leave the library: as a status, with a text that is kept for the thread. Nothing is thrown across the interface.

namespace rmm_c {

/// Where a failure happened, for what depends on that: a resource that is made answers for its configuration.
enum class activity { making_a_resource, anything_else };

/// Keeps the failure for the calling thread. Returns `status`.
rmm_c_status fail(rmm_c_status status, char const* text) noexcept;

/// The same for the exception that is being handled.
rmm_c_status fail_by_exception(activity during) noexcept;

/// Calls `action()`, which returns a status, and turns what it throws into a failure.
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
