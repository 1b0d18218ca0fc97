// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/placement_validation.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>
#include <rmm/detail/stream/capture_memory_validation.hpp>
#include <rmm/detail/stream/shared_free_lists_validation.hpp>
#include <rmm/detail/stream/stream_cache_validation.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/heap_figures.hpp>

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
  mutex_lock const lock{mutex_};
  all_closed const closed{caches_};
  if (!blocks_.check_invariants() || !shared_.check_invariants() || !caches_.check_invariants() ||
      !graphs_.check_invariants()) {
    return false;
  }
  heap_figures now;
  auto pieces = add_up(now);
  graphs_.for_each_chunk([&](address_range) { ++pieces; });
  // Claims of blocks that are not free: D2 of the reserve.
  auto claims = static_cast<std::int64_t>(limits_.reserve.claimed() - limits_.reserve.waiting());
  for (auto const& store : shared_.stores()) { claims -= static_cast<std::int64_t>(store->unfenced().size()); }
  for (auto const& cache : caches_) {
    auto const uncoalesced = cache->free_pieces().first - cache->ranges().count();
    claims -= static_cast<std::int64_t>(cache->spare_claims() + uncoalesced);
  }
  if (claims < 0 || (now.live_bytes == 0 && graphs_.is_empty() && claims != 0)) { return false; }
  if (now.free_bytes + now.live_bytes + now.graph_bytes != blocks_.usable_bytes()) { return false; }  // H1
  collected_ranges all{pieces};
  for_each_free([&](free_piece const& each) { all.add(each.range); });
  graphs_.for_each_chunk([&](address_range range) { all.add(range); });
  if (!all.are_disjoint()) { return false; }  // H1
  for (auto const range : all) {
    if (!blocks_.holds(range)) { return false; }
  }
  return true;
}

/// Whether S4 of the caches holds: compares with a list of everything. Throws std::bad_alloc.
template <class Unused>
bool basic_stream_ordered_heap<Unused>::has_no_run()
{
  auto const bytes = caches_.no_run_of();
  return bytes == range_set::no_limit || !free_pieces{shared_, caches_, seams(), {0, nullptr, true}}.has_run(bytes);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
