// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/stream_cache_validation.hpp>

#include <cstddef>
#include <cstdint>

/// @file
/// The checks of shared_free_lists, which includes the file if RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined. Tests that call
/// check_invariants() of a heap include it themselves.

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the cost of a check, for is_check_due().
std::size_t shared_free_lists::check_steps() const noexcept
{
  auto steps = idle_.ranges().count() + limits_.reserve.waiting();
  for (auto const& store : stores_) { steps += 1 + store->ranges().count() + store->unfenced().size(); }
  return steps;
}

/// Whether no stream with this identity has a store.
bool shared_free_lists::has_none_of(std::uint64_t identity) const noexcept
{
  for (auto const& store : stores_) {
    if (store->identity() == identity) { return false; }
  }
  return true;
}

/// Whether take_from_other() would find `bytes` bytes in one piece.
bool shared_free_lists::can_serve(std::size_t bytes, free_store const* left_out) const noexcept
{
  return detail::any_of(stores_.begin(), stores_.end(), [&](auto const& store) {
    return store.get() != left_out && store->ranges().good_fit(bytes) != 0;
  });
}

inline bool shared_free_lists::check_invariants() const noexcept
{
  if (limits_.reserve.waiting() != 0 && lost_devices_ == 0) { return false; }                                      // L3
  if (idle_.identity() != 0 || idle_.has_fences() || !idle_.unfenced().empty()) { return false; }                  // L5
  if (spare_events_.size() > most_spare_events || spare_events_.capacity() < most_spare_events) { return false; }  // L6

  collected_ranges all{check_steps()};
  auto const collect = [&](free_store const& store) {
    store.ranges().for_each([&](address_range range, std::uint64_t) { all.add(range); });
    for (auto const range : store.unfenced()) { all.add(range); }
    return store.check_invariants() && store.ranges().validate(limits_.seams());
  };
  if (!collect(idle_)) { return false; }
  if (identities_.size() != stores_.size()) { return false; }
  for (std::size_t at = 0; at != stores_.size(); ++at) {
    auto const identity = stores_[at]->identity();
    if (identity == 0 || identity != identities_[at] || !collect(*stores_[at])) { return false; }  // L5
  }
  limits_.reserve.for_each([&](address_range range) { all.add(range); });
  return limits_.reserve.check_invariants() && all.are_disjoint();  // L4
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
