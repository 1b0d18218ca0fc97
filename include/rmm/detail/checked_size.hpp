// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>

#include <cstddef>
#include <limits>

/// @file
/// Arithmetic on sizes of requests that throws out_of_memory where std::size_t would wrap: no
/// machine has that memory.

namespace RMM_NAMESPACE {
namespace detail {

[[noreturn]] RMM_COLD inline void throw_size_overflow()
{
  throw out_of_memory{"Maximum allocation size exceeded: the requested size is larger than any address space"};
}

/// `lhs + rhs`.
[[nodiscard]] constexpr std::size_t checked_add(std::size_t lhs, std::size_t rhs)
{
  if (lhs > std::numeric_limits<std::size_t>::max() - rhs) { throw_size_overflow(); }
  return lhs + rhs;
}

/// `lhs * rhs`.
[[nodiscard]] constexpr std::size_t checked_multiply(std::size_t lhs, std::size_t rhs)
{
  if (rhs != 0 && lhs > std::numeric_limits<std::size_t>::max() / rhs) { throw_size_overflow(); }
  return lhs * rhs;
}

/// align_up(value, alignment).
[[nodiscard]] constexpr std::size_t checked_align_up(std::size_t value, std::size_t alignment)
{
  return align_down(checked_add(value, alignment - 1), alignment);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
