// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace rmm::test {

/// A simple model of a range_set, to compare it with.
class shadow_ranges {
 public:
  struct range {
    std::size_t bytes;
    std::uint64_t epoch;
  };

  explicit shadow_ranges(std::set<std::uintptr_t> seams = {}) : seams_{std::move(seams)} {}

  /// Throws std::logic_error if the range overlaps another.
  void insert(detail::address_range added, std::uint64_t epoch)
  {
    auto const next = ranges_.lower_bound(added.begin);
    total_bytes_ += added.bytes;
    if (next != ranges_.begin()) {
      auto const previous = std::prev(next);
      auto const end      = previous->first + previous->second.bytes;
      if (end > added.begin) { throw std::logic_error{"overlaps the previous range"}; }
      if (end == added.begin && seams_.count(added.begin) == 0) {
        added = {previous->first, previous->second.bytes + added.bytes};
        epoch = std::max(epoch, previous->second.epoch);
        ranges_.erase(previous);
      }
    }
    if (next != ranges_.end()) {
      if (next->first < added.end()) { throw std::logic_error{"overlaps the next range"}; }
      if (next->first == added.end() && seams_.count(added.end()) == 0) {
        added.bytes += next->second.bytes;
        epoch = std::max(epoch, next->second.epoch);
        ranges_.erase(next);
      }
    }
    ranges_[added.begin] = {added.bytes, epoch};
  }

  /// Removes these addresses. Returns the range that contained them. Throws std::logic_error if none contains all of them.
  range remove(detail::address_range removed)
  {
    auto const whole = find(removed);
    if (whole == ranges_.end()) { throw std::logic_error{"was not all free"}; }
    auto const [begin, held] = *whole;
    ranges_.erase(whole);
    if (begin != removed.begin) { ranges_[begin] = {removed.begin - begin, held.epoch}; }
    auto const rest = begin + held.bytes - removed.end();
    if (rest != 0) { ranges_[removed.end()] = {rest, held.epoch}; }
    total_bytes_ -= removed.bytes;
    return held;
  }

  /// Returns whether one range contains all these addresses.
  [[nodiscard]] bool holds(detail::address_range wanted) const { return find(wanted) != ranges_.end(); }

  /// Returns the size of the smallest range with at least `bytes` bytes; 0 if there is none.
  [[nodiscard]] std::size_t best_fit(std::size_t bytes) const
  {
    std::size_t best{};
    for (auto const& [begin, held] : ranges_) {
      if (held.bytes >= bytes && (best == 0 || held.bytes < best)) { best = held.bytes; }
    }
    return best;
  }

  /// Returns the range at the highest address that has at least `bytes` bytes; empty if there is none.
  [[nodiscard]] detail::address_range highest_fit(std::size_t bytes) const
  {
    detail::address_range highest{};
    for (auto const& [begin, held] : ranges_) {
      if (held.bytes >= bytes) { highest = {begin, held.bytes}; }
    }
    return highest;
  }

  /// Returns the number of ranges that have at least `bytes` bytes.
  [[nodiscard]] std::size_t count_of(std::size_t bytes) const
  {
    return static_cast<std::size_t>(
      std::count_if(ranges_.begin(), ranges_.end(), [&](auto const& each) { return each.second.bytes >= bytes; }));
  }

  /// Returns whether these addresses are the end of a range.
  [[nodiscard]] bool are_an_end(detail::address_range wanted) const
  {
    auto const whole = find(wanted);
    return whole != ranges_.end() && whole->first + whole->second.bytes == wanted.end();
  }

  [[nodiscard]] std::size_t largest() const
  {
    std::size_t most{};
    for (auto const& [begin, held] : ranges_) { most = std::max(most, held.bytes); }
    return most;
  }

  [[nodiscard]] std::size_t count() const { return ranges_.size(); }
  [[nodiscard]] std::size_t total_bytes() const { return total_bytes_; }

  void clear()
  {
    ranges_.clear();
    total_bytes_ = 0;
  }

  /// Returns whether `set` holds these ranges with these epochs, and its figures are right.
  [[nodiscard]] bool matches(detail::range_set const& set) const
  {
    std::size_t same{};
    std::size_t visited{};
    set.for_each([&](detail::address_range each, std::uint64_t epoch) {
      ++visited;
      auto const found = ranges_.find(each.begin);
      if (found != ranges_.end() && found->second.bytes == each.bytes && found->second.epoch == epoch) { ++same; }
    });
    return visited == count() && same == count() && set.count() == count() && set.empty() == ranges_.empty() &&
           set.total_bytes() == total_bytes_ && set.largest() == largest();
  }

 private:
  [[nodiscard]] std::map<std::uintptr_t, range>::const_iterator find(detail::address_range wanted) const
  {
    auto const after = ranges_.upper_bound(wanted.begin);
    if (after == ranges_.begin()) { return ranges_.end(); }
    auto const whole = std::prev(after);
    return whole->first + whole->second.bytes < wanted.end() ? ranges_.end() : whole;
  }

  std::set<std::uintptr_t> seams_;
  std::map<std::uintptr_t, range> ranges_;
  std::size_t total_bytes_{};
};

}  // namespace rmm::test
