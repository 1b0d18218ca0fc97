// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>
#include <rmm/detail/stream/stream_cache.hpp>

#include <cstddef>

/// @file
/// The checks of stream_cache, which includes the file if RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined; tests that call
/// check_invariants() include it themselves.

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the cost of a check, for is_check_due().
std::size_t stream_cache::check_steps() const noexcept
{
  return ranges_.count() + coalescing_count_ + recent_count_ + entries_used_ / 4;
}

inline bool stream_cache::check_invariants() const noexcept
{
  std::size_t places{};
  for (std::size_t granules = 1; granules <= small_sizes; ++granules) {
    auto const& stack = stacks_[granules];
    if (fenced_[granules] > filled_[granules] || filled_[granules] > stack.places) { return false; }     // C4
    if (stack.places != 0 && stack.first + std::size_t{stack.places} > entries_used_) { return false; }  // C4
    if (fenced_[granules] != 0 && !may_have_fenced_) { return false; }
    places += stack.places;
  }
  if (places != entries_used_ || entries_used_ > entries_capacity_) { return false; }                              // C4
  if (recent_count_ > recent_capacity_ || coalescing_count_ > recent_capacity_) { return false; }                  // C6
  if (spare_claims_ > most_spare_claims + claims_at_a_time) { return false; }                                      // C3
  if (frees_to_fence_ <= 0 || frees_to_fence_ > static_cast<std::int32_t>(most_unfenced_frees)) { return false; }  // C2

  collected_ranges all{free_pieces().first};
  std::size_t frees{};
  std::size_t bytes{};
  for_each_free([&](address_range range, bool fenced) {
    all.add(range);
    frees += fenced ? 0U : 1U;
    bytes += fenced ? 0U : range.bytes;
  });
  auto const [kept, kept_bytes] = unfenced_kept();
  return frees == unfenced_count() + kept && bytes == unfenced_bytes_ + kept_bytes &&  // C2, C7
         all.are_disjoint() && ranges_.validate(seams());                              // C5
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
