// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>

/// @file
/// Whether sizes are rounded up to their alignment before a resource gets them.
///
/// One choice a process, made before the first size is rounded and never changed: a block comes back with the size it
/// was allocated with. What is hidden here reads and sets what the shared object knows whose code calls it.

RMM_PROCESS_WIDE_ANCHOR(rmm_size_rounding_v1, 7);

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The choice, once made.
struct size_rounding {
  bool rounds;
};

/// Whether this shared object knows that sizes are rounded, so that most calls need not look further.
RMM_HIDDEN inline std::atomic<bool> sizes_known_as_rounded{false};

/// Makes the choice for the process, or finds the one that was made. Whether sizes are rounded.
RMM_HIDDEN inline bool choose_size_rounding(bool rounds)
{
  auto const* const chosen = static_cast<size_rounding const*>(rmm::detail::find_or_publish(
    rmm_size_rounding_v1,
    7,
    [rounds]() -> void* { return new size_rounding{rounds}; },
    [](void* made) { delete static_cast<size_rounding*>(made); }));
  sizes_known_as_rounded.store(chosen->rounds, std::memory_order_relaxed);
  return chosen->rounds;
}

/// Makes the choice that the environment asks for, else that of who compiled this. Throws logic_error if the environment is unclear.
[[nodiscard]] RMM_HIDDEN RMM_COLD inline bool choose_size_rounding_by_environment()
{
  auto const* const value = std::getenv("RMM_UNROUNDED_SIZES");
  auto const is           = [value](char const* text) { return std::strcmp(value, text) == 0; };
#ifdef RMM_UNROUNDED_SIZES
  constexpr bool usual = false;
#else
  constexpr bool usual = true;
#endif
  if (value == nullptr || is("")) { return choose_size_rounding(usual); }
  RMM_EXPECTS(is("0") || is("1"), "The environment variable RMM_UNROUNDED_SIZES has to be 0 or 1.");
  return choose_size_rounding(is("0"));
}

/// The choice, where this shared object knows it; else null.
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

/// The size that a resource got for `bytes` bytes with `alignment`, when they were allocated.
[[nodiscard]] RMM_HIDDEN inline std::size_t size_when_allocated(std::size_t bytes, std::size_t alignment) noexcept
{
  try {
    return sizes_are_rounded() ? align_up(bytes, alignment) : bytes;
  } catch (...) {  // no choice can be made, so none was made when they were allocated
    return align_up(bytes, alignment);
  }
}

}  // namespace detail

/// Hands sizes to resources as they were asked for, in the whole process, as RMM does since 25.12; `false`: in multiples of their
/// alignment, as it did before. So does RMM_UNROUNDED_SIZES in the environment (0 or 1). Where neither says anything, files that are
/// compiled with the macro RMM_UNROUNDED_SIZES choose the first, and others the second.
///
/// To be called before the first allocation: throws logic_error if the process has made the other choice already.
RMM_HIDDEN inline void use_unrounded_sizes(bool unrounded = true)
{
  RMM_EXPECTS(detail::choose_size_rounding(!unrounded) != unrounded,
              "Whether sizes are rounded was decided by an allocation before, or by another call.");
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
