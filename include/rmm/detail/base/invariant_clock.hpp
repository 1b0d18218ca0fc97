// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>

/// @file
/// Says which changes of a data structure are followed by a check of all its invariants. Only for RMM_ASSERT_EXPENSIVE: the file
/// is empty where RMM_ENABLE_EXPENSIVE_ASSERTIONS is not defined.

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)

namespace RMM_NAMESPACE {
namespace detail {

/// Whether a check is due after this change of a `Structure` whose check takes `size` steps.
///
/// A small structure is checked after each change. A check of a large one after each change would take quadratic time. So each
/// change of a large structure earns `always_checked` steps, and a check is due once there are enough of them: after n changes
/// all checks together took at most n * always_checked steps. Each thread counts for itself; structures of one type share a
/// count, so that their layout is the same in all builds.
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
