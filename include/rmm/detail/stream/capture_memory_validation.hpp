// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>
#include <rmm/detail/stream/capture_memory.hpp>

#include <cstddef>
#include <cstdint>

/// @file
/// The checks of captured_memory, which includes the file if RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined; tests that call
/// check_invariants() include it themselves.

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the cost of a check, for is_check_due().
template <class Unused>
std::size_t basic_captured_memory<Unused>::check_steps() const noexcept
{
  auto steps = idle_.count() + pending_.size() + kept_.size() + chunks_.size();
  for (auto const& each : freed_) { steps += each->ranges.count(); }
  return steps;
}

/// Whether retire_captures_but() was complete: memory freed in other captures remains only if idle_ has no room for it.
template <class Unused>
bool basic_captured_memory<Unused>::has_retired_captures_but(std::uint64_t capture) const noexcept
{
  for (auto const& each : freed_) {
    bool const has_room = idle_.count() + each->ranges.count() <= idle_.capacity();
    if (each->who.capture != capture && has_room) { return false; }
  }
  return true;
}

template <class Unused>
bool basic_captured_memory<Unused>::check_invariants() const noexcept
{
  auto const seams = seam_addresses();
  collected_ranges all{check_steps()};
  auto const collect = [&](range_set const& ranges) {
    ranges.for_each([&](address_range range, std::uint64_t) { all.add(range); });
    return ranges.validate(&seams);
  };
  bool good = collect(idle_);
  for (auto const& each : freed_) { good = collect(each->ranges) && good; }
  for (auto const& each : pending_) { all.add(each.range); }
  good = good && all.are_disjoint();  // G1
  std::size_t unused{};
  for (auto const range : all) {
    unused += range.bytes;
    auto const in = find_chunk(range.begin);
    good          = good && in != no_chunk && range.end() <= chunks_[in].range.end();  // G1
  }
  std::size_t live{};
  std::size_t total{};
  std::size_t kept{};
  std::uintptr_t end{};
  for (auto const& each : chunks_) {
    std::size_t used{};
    for (auto const range : all) { used += range.begin - each.range.begin < each.range.bytes ? range.bytes : 0; }
    good = good && used + each.live_bytes <= each.range.bytes;                                 // G1
    good = good && each.range.begin != 0 && each.range.bytes != 0 && each.range.begin >= end;  // G6
    end  = each.range.end();
    live += each.live_bytes;
    total += each.range.bytes;
  }
  for (auto const range : kept_) { kept += range.bytes; }
  good = good && live + unused + unnoted_bytes_ == total;                              // G1
  return good && live == live_bytes_ && total == chunk_bytes_ && kept == kept_bytes_;  // G1, G6
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
