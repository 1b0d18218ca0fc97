// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Tells which pieces of free memory can be part of a long run of neighbours, from sums, without sorting them.
///
/// Divides the addresses into regions of a fraction of the run. A long run fills several regions in a row, and no other region
/// matters than these and the two at its ends. So the filter adds up how many bytes of each region are free, in constant time for
/// each piece. There is a sum for each second piece. Where several regions share a sum, more pieces are kept than have to be.
///
/// Invariants:
///  R1  a region that is free from end to end is full: its sum has reached enough_
///  R2  after close(), may_be_in_run() is true for each piece of a run that has least_bytes, or that touches an edge
class run_filter {
 public:
  /// For runs of at least `least_bytes` bytes. Not all pieces have to be added: others, of `gap_bytes` bytes at most, may lie between
  /// two of them, or at the ends of a run. There will be about `pieces` pieces of `total_bytes` bytes. Throws std::bad_alloc.
  run_filter(std::size_t least_bytes, std::size_t gap_bytes, std::size_t pieces, std::size_t total_bytes)
    : least_bytes_{least_bytes},
      gap_bytes_{gap_bytes},
      sums_(std::size_t{1} << highest_bit(detail::clamp(pieces / 2, least_sums, most_sums)))
  {
    RMM_ASSERT(can_tell(least_bytes, gap_bytes));
    // Small regions tell more. But not so small that a piece fills many, that many share a sum, or that gaps alone fill one.
    while (2 * region_bytes() <= least_bytes / 2 &&
           ((total_bytes >> region_bits_) > sums_.size() / 8 || gap_bytes >= region_bytes() / 4)) {
      ++region_bits_;
    }
    unit_bits_ = region_bits_ > 16 ? region_bits_ - 16 : 0;
    enough_    = static_cast<std::uint32_t>((region_bytes() - gap_bytes) >> unit_bits_);
    RMM_ASSERT(enough_ != 0 && enough_ < anchor && 2 * region_bytes() <= least_bytes);
  }

  /// Whether a filter would leave anything out.
  [[nodiscard]] static bool can_tell(std::size_t least_bytes, std::size_t gap_bytes) noexcept
  {
    return least_bytes >= 2 * heap_granule && gap_bytes < least_bytes / 8;
  }

  void add(address_range piece) noexcept
  {
    auto const last = (piece.end() - 1) >> region_bits_;
    auto region     = piece.begin >> region_bits_;
    if (region == last) { return add_bytes(region, piece.bytes); }
    if (piece.bytes >= least_bytes_) {  // a run by itself
      add_anchor(piece.begin);
      return add_anchor(piece.end() - 1);
    }
    add_bytes(region, ((region + 1) << region_bits_) - piece.begin);
    while (++region != last) { add_bytes(region, region_bytes()); }
    add_bytes(last, piece.end() - (last << region_bits_));
  }

  /// Runs that begin or end here are wanted too, however short they are.
  void add_edge(std::uintptr_t address) noexcept
  {
    add_anchor(address);
    add_anchor(address - 1);
  }

  /// There are no more pieces. Returns whether any can be part of a run.
  [[nodiscard]] bool close() noexcept
  {
    auto const sum_count = sums_.size();
    std::size_t first{};
    while (first != sum_count && is_full(first)) { ++first; }
    if (first == sum_count) {
      for (auto& sum : sums_) { sum |= kept; }
      return true;
    }
    auto const needed = (least_bytes_ >> region_bits_) - 1;
    bool any          = false;
    bool is_anchored  = false;
    std::size_t in_row{};
    for (std::size_t at = first + 1; at <= first + sum_count; ++at) {
      if (is_full(at)) {
        ++in_row;
        is_anchored = is_anchored || (sum_of(at) & ~kept) == anchor;
        continue;
      }
      if (in_row >= needed || is_anchored) {
        for (auto region = at - in_row - 1; region <= at; ++region) { sum_of(region) |= kept; }
        any = true;
      }
      in_row      = 0;
      is_anchored = false;
    }
    return any;
  }

  [[nodiscard]] bool may_be_in_run(address_range piece) const noexcept
  {
    return ((sum_of(piece.begin >> region_bits_) | sum_of((piece.end() - 1) >> region_bits_)) & kept) != 0;
  }

 private:
  static constexpr std::size_t least_sums = std::size_t{1} << 12U;
  static constexpr std::size_t most_sums  = std::size_t{1} << 18U;
  static constexpr std::uint32_t anchor   = std::uint32_t{1} << 30U;
  static constexpr std::uint32_t kept     = std::uint32_t{1} << 31U;

  [[nodiscard]] std::size_t region_bytes() const noexcept { return std::size_t{1} << region_bits_; }
  [[nodiscard]] std::uint32_t& sum_of(std::size_t region) noexcept { return sums_[region & (sums_.size() - 1)]; }
  [[nodiscard]] std::uint32_t sum_of(std::size_t region) const noexcept { return sums_[region & (sums_.size() - 1)]; }
  [[nodiscard]] bool is_full(std::size_t region) const noexcept { return (sum_of(region) & ~kept) >= enough_; }

  void add_anchor(std::uintptr_t address) noexcept { sum_of(address >> region_bits_) = anchor; }

  /// Rounds up, so that R1 holds, and stops at enough_, so that a sum cannot wrap.
  void add_bytes(std::size_t region, std::size_t bytes) noexcept
  {
    auto& sum = sum_of(region);
    if (sum < enough_) {
      sum = detail::min(enough_, sum + static_cast<std::uint32_t>((bytes + gap_bytes_) >> unit_bits_) + 1);
    }
  }

  std::size_t least_bytes_;
  std::size_t gap_bytes_;
  unsigned region_bits_{highest_bit(heap_granule)};
  unsigned unit_bits_{};
  std::uint32_t enough_{};
  std::vector<std::uint32_t> sums_;  // in units of 2^unit_bits_ bytes
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
