// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/placement.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

/// @file
/// Checks of the results of placement.hpp, which includes this file if RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined.

namespace RMM_NAMESPACE {
namespace detail {

/// Whether a place is allowed and lacks `missing_bytes`, and no place that begins or ends with a range lacks less. If some free range is
/// large enough, the place lies in one that is hardly larger than the smallest of these.
bool is_best_placement(std::vector<address_range> const& free,
                       std::vector<address_range> const& empty,
                       placement const& found,
                       std::size_t bytes,
                       std::size_t chunk_bytes) noexcept
{
  if (free.size() + empty.size() > 256) { return true; }  // O(their number squared)
  auto const most = std::numeric_limits<std::size_t>::max();
  if (found && count_missing(free, empty, found.where, chunk_bytes) != found.missing_bytes) { return false; }
  auto const is_worse = [&](std::uintptr_t begin) {
    return count_missing(free, empty, {begin, bytes}, chunk_bytes).value_or(most) <
           (found ? found.missing_bytes : most);
  };
  bool const any_fits =
    detail::any_of(free.begin(), free.end(), [&](address_range each) { return each.bytes == bytes; });
  bool const is_tight = detail::any_of(free.begin(), free.end(), [&](address_range each) {
    return each.begin <= found.where.begin && found.where.end() <= each.end() && each.bytes - bytes < chunk_bytes / 32;
  });
  if (any_fits && !is_tight) { return false; }
  for (auto const* const ranges : {&free, &empty}) {
    for (auto const range : *ranges) {
      if (is_worse(range.begin) || (range.end() >= bytes && is_worse(range.end() - bytes))) { return false; }
    }
  }
  return true;
}

[[nodiscard]] inline bool do_overlap(address_range a, address_range b) noexcept
{
  return a.bytes != 0 && b.bytes != 0 && a.begin < b.end() && b.begin < a.end();
}

/// Whether one of the ranges holds this one.
[[nodiscard]] inline bool is_in(std::vector<address_range> const& all, address_range range) noexcept
{
  return detail::any_of(
    all.begin(), all.end(), [&](address_range each) { return each.begin <= range.begin && range.end() <= each.end(); });
}

/// Whether the found chunks are ascending, free, coalesced and outside `keep`, and have `bytes` bytes and at most one chunk more, or are
/// all that there are.
template <class VisitChunksDown>
bool are_free_chunks(std::vector<address_range> const& free,
                     std::vector<address_range> const& found,
                     std::size_t bytes,
                     VisitChunksDown&& visit_chunks_down,
                     address_range keep)
{
  std::size_t sum{};
  std::size_t largest{};
  for (std::size_t i = 0; i != found.size(); ++i) {
    auto const range = found[i];
    if (range.bytes == 0 || !is_in(free, range) || do_overlap(range, keep)) { return false; }
    if (i != 0 && range.begin <= found[i - 1].end()) { return false; }
    visit_chunks_down(range, [&](address_range chunk) {
      sum += chunk.bytes;
      largest = detail::max(largest, chunk.bytes);
      return true;
    });
  }
  std::size_t all{};
  for (auto const range : free) {
    visit_chunks_down(range, [&](address_range chunk) {
      all += do_overlap(chunk, keep) ? 0 : chunk.bytes;
      return true;
    });
  }
  return sum >= detail::min(bytes, all) && sum < bytes + detail::max(largest, std::size_t{1});
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
