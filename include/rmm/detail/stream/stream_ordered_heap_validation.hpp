// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/detail/heap/placement_validation.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>
#include <rmm/detail/stream/capture_memory_validation.hpp>
#include <rmm/detail/stream/shared_free_lists_validation.hpp>
#include <rmm/detail/stream/stream_cache_validation.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>

#include <cstddef>
#include <cstdint>

/// @file
/// The check of a whole heap, and all checks that it is made of. stream_ordered_heap.hpp includes the file where
/// RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined; tests that call check_invariants() include it themselves.

namespace RMM_NAMESPACE {
namespace detail {

template <class Unused>
bool basic_stream_ordered_heap<Unused>::check_invariants() const noexcept
{
  mutex_lock const graphs_stay{graphs_.mutex()};
  spinning_mutex_lock const lock{mutex_};
  all_closed const closed{caches_};
  if (!blocks_.check_invariants() || !shared_.check_invariants() || !caches_.check_invariants() ||
      !graphs_.check_invariants()) {
    return false;
  }
  auto const free = free_.add_up();
  auto const live = static_cast<std::size_t>(caches_.live_bytes()) - graphs_.bytes();
  auto pieces     = free.pieces;
  graphs_.for_each_chunk([&](address_range) { ++pieces; });
  // Claims of blocks that are not free: D2 of the reserve.
  auto claims = static_cast<std::int64_t>(limits_.reserve.claimed() - limits_.reserve.waiting());
  for (auto const& store : shared_.stores()) { claims -= static_cast<std::int64_t>(store->unfenced().size()); }
  for (auto const& cache : caches_) {
    auto const uncoalesced = cache->free_pieces().first - cache->ranges().count();
    claims -= static_cast<std::int64_t>(cache->spare_claims() + uncoalesced);
  }
  if (claims < 0 || (live == 0 && graphs_.is_empty() && claims != 0)) { return false; }
  if (!free_.check_sum()) { return false; }  // H1
  collected_ranges all{pieces};
  std::size_t visited{};
  free_.for_each_piece([&](free_piece const& each) {
    all.add(each.range);
    visited += each.range.bytes;
  });
  if (visited != free.bytes) { return false; }  // K2
  graphs_.for_each_chunk([&](address_range range) { all.add(range); });
  if (!all.are_disjoint()) { return false; }  // H1
  for (auto const range : all) {
    if (!blocks_.holds(range)) { return false; }
  }
  return true;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
