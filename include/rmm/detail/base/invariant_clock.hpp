// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>

/// @file
/// Decides after which changes of a data structure RMM_ASSERT_EXPENSIVE checks all its invariants. Empty unless
/// RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined.

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)

namespace RMM_NAMESPACE {
namespace detail {

/// Returns whether a check is due after this change of a `Structure`. The check takes `size` steps.
///
/// A small structure is checked after each change. For a large one this would take quadratic time. So each change of a large structure
/// earns `always_checked` steps, and a check is due when `size` steps have been earned: n changes cost at most n * always_checked
/// steps. The count is per thread and per type, not a member, so that the layout of structures does not depend on the build.
template <class Structure>
[[nodiscard]] inline bool is_check_due(std::size_t size) noexcept
{
  constexpr std::size_t always_checked = 64;
  static thread_local std::size_t earned{};
  if (size <= always_checked) { return true; }
  earned += always_checked;
  if (earned < size) { return false; }
  earned -= size;
  return true;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE

#endif
