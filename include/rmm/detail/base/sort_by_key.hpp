// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Sorts by key(element), which returns a std::uintptr_t, in O(n) for each digit in which keys differ: radix sort. Stable. `scratch`
/// begins as many elements, and is overwritten.
template <class Iterator, class Key>
void sort_by_key(Iterator first, Iterator last, Iterator scratch, Key key)
{
  constexpr unsigned digit_bits = 11;
  constexpr std::size_t digits  = std::size_t{1} << digit_bits;
  if (first == last) { return; }
  auto const count     = last - first;
  std::uintptr_t least = key(*first);
  for (auto at = first; at != last; ++at) { least = detail::min(least, key(*at)); }
  std::uintptr_t differing{};
  for (auto at = first; at != last; ++at) { differing |= key(*at) - least; }
  unsigned shift{};
  while (differing != 0 && (differing >> shift & 1U) == 0) { ++shift; }
  auto from = first;
  auto to   = scratch;
  for (; shift < 8 * sizeof(std::uintptr_t) && differing >> shift != 0; shift += digit_bits) {
    auto const digit_of = [&](auto const& element) { return (key(element) - least) >> shift & (digits - 1); };
    std::array<std::size_t, digits> places{};  // where the next element with each digit goes
    for (std::ptrdiff_t i = 0; i != count; ++i) { ++places[digit_of(from[i])]; }
    std::size_t sum{};
    for (auto& place : places) { sum += std::exchange(place, sum); }
    for (std::ptrdiff_t i = 0; i != count; ++i) {
      to[static_cast<std::ptrdiff_t>(places[digit_of(from[i])]++)] = std::move(from[i]);
    }
    std::swap(from, to);
  }
  if (from == first) { return; }
  for (std::ptrdiff_t i = 0; i != count; ++i) { first[i] = std::move(from[i]); }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
