// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

/// @file
/// The choice whether sizes are rounded up to their alignment before a resource receives them.
///
/// The process makes one choice, before it rounds the first size, and never changes it, so that a block is freed with the size of its
/// allocation. Each shared object has its own copy of the choice: the hidden functions use that of the calling object.

RMM_PROCESS_WIDE_ANCHOR(rmm_size_rounding_v1, 7);

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The choice of the process.
struct size_rounding {
  bool rounds;
};

/// Whether this shared object knows that sizes are rounded. Most calls read only this.
///
/// Order: relaxed, because it copies a choice that never changes. A thread that does not see it yet looks at the choice itself, and
/// acquires what its address leads to.
RMM_HIDDEN inline std::atomic<bool> sizes_known_as_rounded{false};

/// Makes the choice for the process, or finds the choice that was made before. Returns whether sizes are rounded.
RMM_HIDDEN inline bool choose_size_rounding(bool rounds)
{
  auto const& chosen = rmm::detail::find_or_publish<size_rounding>(
    rmm_size_rounding_v1, 7, [rounds] { return new size_rounding{rounds}; });
  sizes_known_as_rounded.store(chosen.rounds, std::memory_order_relaxed);
  return chosen.rounds;
}

/// Makes the choice that the environment requests, else the choice of the macro RMM_UNROUNDED_SIZES. Throws logic_error if the
/// environment has another value than 0 or 1.
[[nodiscard]] RMM_HIDDEN RMM_COLD inline bool choose_size_rounding_by_environment()
{
  auto const* const value = std::getenv("RMM_UNROUNDED_SIZES");
  auto const equals       = [value](char const* text) { return std::strcmp(value, text) == 0; };
#ifdef RMM_UNROUNDED_SIZES
  constexpr bool usual = false;
#else
  constexpr bool usual = true;
#endif
  if (value == nullptr || equals("")) { return choose_size_rounding(usual); }
  RMM_EXPECTS(
    equals("0") || equals("1"),
    "The environment variable RMM_UNROUNDED_SIZES is " + rmm::detail::quoted(value) + ", but has to be 0 or 1.");
  return choose_size_rounding(equals("0"));
}

/// Returns the choice if this shared object knows it; else null.
[[nodiscard]] RMM_HIDDEN inline size_rounding const* known_size_rounding() noexcept
{
  return static_cast<size_rounding const*>(rmm_size_rounding_v1.load(std::memory_order_acquire));
}

/// Whether sizes are rounded. The first call in a process makes the choice.
[[nodiscard]] RMM_HIDDEN inline bool sizes_are_rounded()
{
  auto const* const chosen = known_size_rounding();
  return chosen != nullptr ? chosen->rounds : choose_size_rounding_by_environment();
}

/// Returns the size that a resource received when `bytes` bytes with `alignment` were allocated.
[[nodiscard]] RMM_HIDDEN inline std::size_t size_when_allocated(std::size_t bytes, std::size_t alignment) noexcept
{
  try {
    return sizes_are_rounded() ? align_up(bytes, alignment) : bytes;
  } catch (...) {  // the choice fails now, so it was not made at the allocation either
    return align_up(bytes, alignment);
  }
}

}  // namespace detail

/// Makes resources receive sizes without rounding, in the whole process, as RAPIDS RMM does since 25.12. With `false`, sizes are rounded up
/// to their alignment, as before 25.12.
///
/// Call it before the first allocation: it throws logic_error if the process has made the other choice already. Without a call,
/// RMM_UNROUNDED_SIZES=1 or 0 in the environment decides. Without that, sizes are unrounded if the macro RMM_UNROUNDED_SIZES is defined.
/// Define it for all files of the program: the linker keeps one copy of the function that reads it, and that may come from any file.
RMM_HIDDEN inline void use_unrounded_sizes(bool unrounded = true)
{
  RMM_EXPECTS(detail::choose_size_rounding(!unrounded) != unrounded,
              "use_unrounded_sizes() comes too late: an earlier allocation or call has made the other choice.");
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
