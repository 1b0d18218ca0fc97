// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>

#include <cstddef>
#include <string>

/// @file
/// Sums, products and aligned sizes of requests. If a result exceeds std::size_t, throws an out_of_memory that names the sizes.

namespace RMM_NAMESPACE {
namespace detail {

/// `what` describes the request in the message.
[[noreturn]] RMM_COLD inline void throw_size_overflow(std::string const& what)
{
  throw out_of_memory{"Maximum allocation size exceeded (failed to allocate " + what +
                      "): no address space is that large"};
}

[[noreturn]] RMM_COLD inline void throw_sum_overflow(std::size_t lhs, std::size_t rhs)
{
  throw_size_overflow(std::to_string(lhs) + " and " + std::to_string(rhs) + " more bytes");
}

[[noreturn]] RMM_COLD inline void throw_product_overflow(std::size_t lhs, std::size_t rhs)
{
  throw_size_overflow(std::to_string(lhs) + " times " + std::to_string(rhs) + " bytes");
}

[[noreturn]] RMM_COLD inline void throw_alignment_overflow(std::size_t value, std::size_t alignment)
{
  throw_size_overflow(std::to_string(value) + " bytes, rounded up to a multiple of " + std::to_string(alignment));
}

[[nodiscard]] constexpr std::size_t checked_add(std::size_t lhs, std::size_t rhs)
{
  if (lhs > max_value<std::size_t> - rhs) { throw_sum_overflow(lhs, rhs); }
  return lhs + rhs;
}

[[nodiscard]] constexpr std::size_t checked_multiply(std::size_t lhs, std::size_t rhs)
{
  if (rhs != 0 && lhs > max_value<std::size_t> / rhs) { throw_product_overflow(lhs, rhs); }
  return lhs * rhs;
}

[[nodiscard]] constexpr std::size_t checked_align_up(std::size_t value, std::size_t alignment)
{
  if (value > max_value<std::size_t> - (alignment - 1)) { throw_alignment_overflow(value, alignment); }
  return align_up(value, alignment);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
