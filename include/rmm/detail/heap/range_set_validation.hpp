// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

/// @file
/// The checks of range_set: its invariants, and the results of its searches. range_set.hpp includes the file if
/// RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined; tests that call validate() include it themselves.

namespace RMM_NAMESPACE {
namespace detail {

/// Ranges of addresses that a check compares. Does not use operator new, because checks must not throw, and tests that count allocations
/// must not count these. If host memory runs out, it has no ranges, and the check succeeds.
class collected_ranges {
 public:
  explicit collected_ranges(std::size_t most) noexcept
    : memory_{static_cast<address_range*>(std::malloc((most + 1) * sizeof(address_range)))},
      most_{memory_ != nullptr ? most : 0}
  {}

  /// Adds a range. Ignores ranges beyond the number that was passed to the constructor.
  void add(address_range range) noexcept
  {
    if (count_ != most_) { begin()[count_++] = range; }
  }

  /// Sorts the ranges. Returns whether none is empty and no two overlap.
  [[nodiscard]] bool are_disjoint() noexcept
  {
    detail::sort(begin(), end(), [](address_range a, address_range b) { return a.begin < b.begin; });
    for (auto const* each = begin(); each != end(); ++each) {
      if (each->bytes == 0 || (each != begin() && each->begin < (each - 1)->end())) { return false; }
    }
    return true;
  }

  [[nodiscard]] bool has_no_memory() const noexcept { return memory_ == nullptr; }
  [[nodiscard]] address_range* begin() const noexcept { return memory_.get(); }
  [[nodiscard]] address_range* end() const noexcept { return begin() + count_; }

 private:
  struct give_back {
    void operator()(address_range* memory) const noexcept { std::free(memory); }
  };

  detail::owned_ptr<address_range, give_back> memory_;
  std::size_t most_;
  std::size_t count_{};
};

/// Returns the cost of a check, for is_check_due(). It includes empty slots, many of which are checked at a time.
std::size_t range_set::check_steps() const noexcept { return count_ + capacity_ / 32; }

/// Whether I1 and I2 hold, and those parts of I3 and I5 that concern only nodes. If `are_seams_known` is false, ranges may touch anywhere.
/// True if host memory for the sort runs out.
bool range_set::check_ranges(bool are_seams_known, seam_list const* seams) const noexcept
{
  collected_ranges ranges{count_};
  if (ranges.has_no_memory()) { return true; }
  std::size_t count{};
  std::size_t bytes{};
  for (auto at = first_node; at != unused_; at += node_units) {
    if (node_at(at).bytes == 0) { continue; }
    if (count == count_) { return false; }  // I5
    ranges.add(range_at(at));
    ++count;
    bytes += node_at(at).bytes;
    if (find_beginning_at(node_at(at).begin) != at || find_ending_at(node_at(at).end()) != at) { return false; }  // I3
  }
  if (count != count_ || bytes != total_bytes_ || count_ > capacity_) { return false; }  // I5

  if (!ranges.are_disjoint()) { return false; }  // I1
  std::uintptr_t end{};
  for (auto const range : ranges) {
    if (range.begin == 0 || range.bytes % heap_granule != 0) { return false; }                                   // I1
    if (are_seams_known && range.begin == end && (seams == nullptr || !seams->contains(end))) { return false; }  // I2
    end = range.end();
  }
  return true;
}

/// Whether a part of an array is all zero. Most bins and slots are empty, and memcmp() is fast even without optimization.
struct range_set::empty_words {
  static constexpr std::array<index, 64> words{};

  [[nodiscard]] static bool begin_at(void const* at) noexcept
  {
    return std::memcmp(at, words.data(), sizeof words) == 0;
  }
};

/// Whether I3, I4 and I6 hold.
bool range_set::check_lists() const noexcept
{
  auto const is_zero = [](std::uint64_t bits) { return bits == 0; };
  if (filled_bins_[end_word] != 1 ||
      !detail::all_of(filled_bins_.begin() + end_word + 1, filled_bins_.end(), is_zero)) {
    return false;  // I4
  }
  if (capacity_ == 0) {
    return count_ == 0 && filled_words_ == 0 &&
           detail::all_of(filled_bins_.begin(), filled_bins_.begin() + end_word, is_zero);
  }
  std::size_t in_chains{};
  return slot_count() >= least_slots(capacity_) &&  // I6
         check_bins() && check_slots(0, unsplit(), in_chains) && check_slots(2 * unsplit(), slots_end(), in_chains) &&
         in_chains == 2 * count_;  // I3
}

/// Whether all ranges are in the lists of their sizes, and the bits tell which lists are empty.
bool range_set::check_bins() const noexcept
{
  static_assert(bin_count % 64 == 0);
  std::size_t in_bins{};
  for (std::size_t bin = 0; bin != bin_count; ++bin) {
    auto const bits = filled_bins_[bin / 64];
    if (bin % 64 == 0) {
      if ((((filled_words_ >> (bin / 64)) & 1U) != 0) != (bits != 0)) { return false; }  // I4
      if (bits == 0 && empty_words::begin_at(&word_at(bin))) {
        bin += 63;
        continue;
      }
    }
    auto const first = head_of(bin);
    if ((((bits >> (bin % 64)) & 1U) != 0) != (first != none)) { return false; }  // I4
    auto link = word_of_head(bin);
    for (auto at = first; at != none; link = word_of_next(at), at = node_at(at).next) {
      if (bin_of(node_at(at).bytes) != bin || node_at(at).link != link || ++in_bins > count_) { return false; }  // I3
    }
  }
  return in_bins == count_;
}

/// Whether these slots have the chains of the addresses that belong there, and how many ranges are in them.
bool range_set::check_slots(std::size_t first, std::size_t last, std::size_t& in_chains) const noexcept
{
  constexpr std::size_t at_once = sizeof empty_words::words / sizeof(slot);
  for (auto i = first; i != last; ++i) {
    if (i % at_once == 0 && i + at_once <= last && empty_words::begin_at(&slots()[i])) {
      i += at_once - 1;
      continue;
    }
    auto const& chains = slots()[i];
    for (auto at = chains.by_begin; at != none; at = node_at(at).next_by_begin) {
      if (&slot_of(node_at(at).begin) != &chains || ++in_chains > 2 * count_) { return false; }
    }
    for (auto at = chains.by_end; at != none; at = node_at(at).next_by_end) {
      if (&slot_of(node_at(at).end()) != &chains || ++in_chains > 2 * count_) { return false; }
    }
  }
  return true;
}

inline bool range_set::validate(seam_list const* seams) const noexcept
{
  return check_ranges(true, seams) && check_lists();
}

/// Whether all invariants hold except I2, for callers that do not know the seams.
bool range_set::is_sound() const noexcept { return check_ranges(false, nullptr) && check_lists(); }

/// Whether no address of `range` is free.
bool range_set::has_none_of(address_range range) const noexcept
{
  for (auto at = first_node; at != unused_; at += node_units) {
    auto const& each = node_at(at);
    if (each.bytes != 0 && each.begin < range.end() && range.begin < each.end()) { return false; }
  }
  return true;
}

/// Whether one free range contains `range`, with an epoch of at least `least_epoch`.
bool range_set::has_all_of(address_range range, std::uint64_t least_epoch) const noexcept
{
  for (auto at = first_node; at != unused_; at += node_units) {
    auto const& each = node_at(at);
    if (each.bytes != 0 && each.begin <= range.begin && range.end() <= each.end()) { return each.epoch >= least_epoch; }
  }
  return false;
}

/// Whether no range has all of `range`.
bool range_set::holds_nowhere(address_range range) const noexcept { return !has_all_of(range, 0); }

/// Whether no range has so many bytes.
bool range_set::has_no_fit(std::size_t bytes) const noexcept
{
  for (auto at = first_node; at != unused_; at += node_units) {
    if (node_at(at).bytes >= bytes) { return false; }
  }
  return true;
}

/// Whether `found` is a correct result of take_good(): it fits, and any better fit is in a bin with more ranges than take_good() looks at.
/// None only if none fits.
bool range_set::is_good(index found, std::size_t bytes) const noexcept
{
  if (found == none) { return has_no_fit(bytes); }
  if (node_at(found).bytes < bytes) { return false; }
  for (auto at = first_node; at != unused_; at += node_units) {
    auto const& each = node_at(at);
    if (each.bytes < bytes || !is_smaller(each, node_at(found))) { continue; }
    unsigned in_bin = 0;
    for (auto other = head_of(bin_of(each.bytes)); other != none; other = node_at(other).next) { ++in_bin; }
    if (in_bin <= good_looks) { return false; }
  }
  return true;
}

/// Whether `found` is a correct result of take(): one of the first two ranges of nearly this size, or, if neither fits, a range of the next
/// bin. Missed ranges have nearly this size.
bool range_set::is_fit(index found, std::size_t bytes) const noexcept
{
  auto const own    = bin_of(bytes);
  auto const bin    = found != none ? bin_of(node_at(found).bytes) : bin_count;
  auto const first  = own < bin_count ? head_of(own) : none;
  auto const second = first != none ? node_at(first).next : none;
  if (found != none && node_at(found).bytes < bytes) { return false; }
  if (bin == own) { return found == first || found == second; }
  if ((first != none && node_at(first).bytes >= bytes) || (second != none && node_at(second).bytes >= bytes)) {
    return false;
  }
  for (auto at = first_node; at != unused_; at += node_units) {
    if (node_at(at).bytes == 0) { continue; }
    auto const other = bin_of(node_at(at).bytes);
    if (other > own && other < bin) { return false; }
  }
  return true;
}

/// Whether `found` is a correct result of take_highest(): a higher range may fit only if there are more than it looks at.
bool range_set::is_highest(index found, std::size_t bytes) const noexcept
{
  if (found == none) { return has_no_fit(bytes); }
  if (node_at(found).bytes < bytes) { return false; }
  std::size_t in_bins = 0;
  bool is_highest     = true;
  for (auto at = first_node; at != unused_; at += node_units) {
    if (node_at(at).bytes == 0) { continue; }
    in_bins += bin_of(node_at(at).bytes) >= bin_of(bytes) ? 1U : 0U;
    is_highest = is_highest && (node_at(at).bytes < bytes || node_at(at).begin <= node_at(found).begin);
  }
  return is_highest || in_bins > high_looks;
}

/// Whether a range is a correct result of take_up_to() and largest(): only ranges of its bin may be larger, if that has more than they look
/// at.
bool range_set::is_largest(index found) const noexcept
{
  if (found == none) { return empty(); }
  auto const bin      = bin_of(node_at(found).bytes);
  std::size_t in_bin  = 0;
  bool is_in_last_bin = true;
  bool has_no_larger  = true;
  for (auto at = first_node; at != unused_; at += node_units) {
    if (node_at(at).bytes == 0) { continue; }
    in_bin += bin_of(node_at(at).bytes) == bin ? 1U : 0U;
    is_in_last_bin = is_in_last_bin && bin_of(node_at(at).bytes) <= bin;
    has_no_larger  = has_no_larger && node_at(at).bytes <= node_at(found).bytes;
  }
  return is_in_last_bin && (has_no_larger || in_bin > largest_looks);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
