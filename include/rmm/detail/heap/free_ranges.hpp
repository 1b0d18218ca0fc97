// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/node_reserve.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Addresses begin ... begin + bytes - 1.
struct address_range {
  std::uintptr_t begin{};
  std::size_t bytes{};

  [[nodiscard]] std::uintptr_t end() const noexcept { return begin + bytes; }
};

/// Where addresses must not be joined: the first address of each block that upstream gave.
using border_set = std::set<std::uintptr_t>;

/// Free stretches of memory, found by size and joined with their neighbours.
///
/// Invariants:
///  I1  no two ranges overlap
///  I2  two ranges touch only at a border
///  I3  by_size_ holds the ranges of by_address_, as (bytes, begin)
///
/// All functions are O(log ranges). insert() takes its memory from the node reserve and does not throw if the reserve has
/// a node for each of the two sets. Not thread-safe.
class free_ranges {
 public:
  explicit free_ranges(node_reserve& reserve)
    : by_address_(address_map::allocator_type{reserve}), by_size_(size_set::allocator_type{reserve})
  {}

  /// Adds a range that overlaps none, and joins it with those that it touches, except across a border.
  void insert(address_range range, border_set const& borders)
  {
    auto const next = by_address_.lower_bound(range.begin);
    if (next != by_address_.begin()) {
      auto const previous = std::prev(next);
      if (previous->first + previous->second == range.begin && borders.count(range.begin) == 0) {
        range.bytes += previous->second;
        range.begin = previous->first;
        remove(previous);
      }
    }
    if (next != by_address_.end() && range.end() == next->first && borders.count(next->first) == 0) {
      range.bytes += next->second;
      remove(next);
    }
    by_address_.emplace(range.begin, range.bytes);
    by_size_.emplace(range.bytes, range.begin);
  }

  /// Takes the first `bytes` of the smallest range that has so many, the first in memory among equals. Nothing if none has.
  [[nodiscard]] std::optional<std::uintptr_t> take_best_fit(std::size_t bytes)
  {
    auto const fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) { return std::nullopt; }
    auto const [available, begin] = *fit;
    // Both nodes are used again for the rest: taking needs no memory.
    auto size_node    = by_size_.extract(fit);
    auto address_node = by_address_.extract(begin);
    if (available != bytes) {
      size_node.value()     = {available - bytes, begin + bytes};
      address_node.key()    = begin + bytes;
      address_node.mapped() = available - bytes;
      by_size_.insert(std::move(size_node));
      by_address_.insert(std::move(address_node));
    }
    return begin;
  }

  /// Moves all ranges of `other` here.
  void take_all(free_ranges& other, border_set const& borders)
  {
    while (!other.by_address_.empty()) {
      auto const first          = other.by_address_.begin();
      address_range const range = {first->first, first->second};
      other.remove(first);
      insert(range, borders);
    }
  }

  /// Forgets all ranges.
  void clear() noexcept
  {
    by_address_.clear();
    by_size_.clear();
  }

  [[nodiscard]] bool empty() const noexcept { return by_address_.empty(); }
  [[nodiscard]] std::size_t count() const noexcept { return by_address_.size(); }

  /// Bytes of the largest range; 0 if there is none.
  [[nodiscard]] std::size_t largest() const noexcept { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

  /// Bytes of all ranges; O(ranges).
  [[nodiscard]] std::size_t total() const noexcept
  {
    std::size_t sum{};
    for (auto const& [begin, bytes] : by_address_) { sum += bytes; }
    return sum;
  }

  /// Calls visit(address_range) for each range, in order of address.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for (auto const& [begin, bytes] : by_address_) { visit(address_range{begin, bytes}); }
  }

  /// Whether I1 to I3 hold; O(ranges).
  [[nodiscard]] bool check_invariants(border_set const& borders) const
  {
    std::uintptr_t previous_end{};
    for (auto const& [begin, bytes] : by_address_) {
      if (bytes == 0 || begin < previous_end) { return false; }
      if (begin == previous_end && previous_end != 0 && borders.count(begin) == 0) { return false; }
      if (by_size_.count({bytes, begin}) == 0) { return false; }
      previous_end = begin + bytes;
    }
    return by_size_.size() == by_address_.size();
  }

 private:
  using address_map = std::
    map<std::uintptr_t, std::size_t, std::less<>, reserved_allocator<std::pair<std::uintptr_t const, std::size_t>>>;
  using size_set = std::set<std::pair<std::size_t, std::uintptr_t>,
                            std::less<>,
                            reserved_allocator<std::pair<std::size_t, std::uintptr_t>>>;

  void remove(address_map::const_iterator which)
  {
    by_size_.erase({which->second, which->first});
    by_address_.erase(which);
  }

  address_map by_address_;
  size_set by_size_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
