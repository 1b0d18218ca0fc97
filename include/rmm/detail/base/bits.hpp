// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

/// The largest value of an unsigned type, as std::numeric_limits has it. <limits> has nearly 1,000 lines.
template <class Unsigned>
inline constexpr Unsigned max_value = static_cast<Unsigned>(~Unsigned{0});

/// Returns the position of the highest bit that is set, from 0. Requires `value != 0`.
[[nodiscard]] constexpr unsigned highest_bit(std::uint64_t value) noexcept
{
#if defined(__GNUC__)
  return 63U ^ static_cast<unsigned>(__builtin_clzll(value));
#else
  unsigned position = 0;
  while ((value >>= 1U) != 0) { ++position; }
  return position;
#endif
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
