// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace rmm::test {

/// Free ranges that are coalesced immediately. Takes the smallest range that fits, at the lowest address.
class best_fit_list {
 public:
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes)
  {
    auto const found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) { return std::nullopt; }
    auto const [available, offset] = *found;
    by_size_.erase(found);
    by_offset_.erase(offset);
    if (available > bytes) { insert(offset + bytes, available - bytes); }
    return offset;
  }

  void add(std::size_t offset, std::size_t bytes)
  {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = erase(next);
    }
    if (next != by_offset_.begin()) {
      auto const previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        offset = previous->first;
        bytes += previous->second;
        erase(previous);
      }
    }
    insert(offset, bytes);
  }

  /// Moves all ranges of `other` to this list.
  void merge(best_fit_list& other)
  {
    for (auto const& [offset, bytes] : other.by_offset_) { add(offset, bytes); }
    other.by_offset_.clear();
    other.by_size_.clear();
  }

 private:
  using map = std::map<std::size_t, std::size_t>;

  void insert(std::size_t offset, std::size_t bytes)
  {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }

  map::iterator erase(map::iterator which)
  {
    by_size_.erase({which->second, which->first});
    return by_offset_.erase(which);
  }

  map by_offset_;  // bytes by offset
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

}  // namespace rmm::test
