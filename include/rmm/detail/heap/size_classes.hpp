// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>

/// @file
/// Sizes of small blocks: multiples of 256 up to 2 KiB, then eight sizes to a doubling up to 64 KiB. A block of more than
/// 2 KiB loses less than 1/8 of what was asked for, one of less than a granule.

namespace RMM_NAMESPACE {
namespace detail {

/// All sizes of blocks are multiples of it.
inline constexpr std::size_t heap_granule = 256;

inline constexpr std::size_t largest_small_size = std::size_t{64} << 10;
inline constexpr std::size_t small_class_count  = 48;

/// The position of the highest bit that is set. Requires `value != 0`.
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

/// The class with the smallest blocks that hold `bytes`. Requires 1 <= bytes <= largest_small_size.
[[nodiscard]] constexpr std::size_t small_class_of(std::size_t bytes) noexcept
{
  RMM_ASSERT(bytes - 1 < largest_small_size);
  // Below 2 KiB as if in the first doubling: its eight sizes have the granule's distance too.
  constexpr unsigned lowest = 11;
  auto const last           = bytes - 1;
  auto const doubling       = highest_bit(last | (std::size_t{1} << lowest)) - lowest;
  return (last >> (doubling + 8U)) + 8U * doubling;
}

/// The size of the blocks of a class. Requires `index < small_class_count`.
[[nodiscard]] constexpr std::size_t class_bytes(std::size_t index) noexcept
{
  RMM_ASSERT(index < small_class_count);
  auto const doubling = index < 16 ? 0 : index / 8 - 1;
  return (index - 8 * doubling + 1) << (doubling + 8);
}

/// `bytes` rounded up to the size of its class. Requires 1 <= bytes <= largest_small_size.
[[nodiscard]] constexpr std::size_t round_up_to_class(std::size_t bytes) noexcept
{
  return class_bytes(small_class_of(bytes));
}

static_assert(class_bytes(0) == heap_granule);
static_assert(class_bytes(small_class_count - 1) == largest_small_size);
static_assert(small_class_of(largest_small_size) == small_class_count - 1);

}  // namespace detail
}  // namespace RMM_NAMESPACE
