// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace tools {

/// The open ranges of a thread, in the order in which they began. They set the thread's current tag, which the
/// program's own tag scopes set, too.
///
/// A pop ends the last range of its domain, so ranges of two domains may overlap. A pop without a range does nothing.
/// Up to `capacity` ranges are kept; beyond that, the oldest ones merge into one entry, which restores the tag before all of them.
///
/// Invariants:
///  S1  size_ <= capacity
///  S2  an entry with `open` 0 is a range that ended while a tag scope had replaced its tag. It waits until the scope
/// restores that tag
///  S3  only the first entry can stand for several ranges; its domain is then any_domain
///
/// Has neither an initialization nor a destructor: it is thread-local, and threads may use it until their very end.
class range_stack {
 public:
  static constexpr std::size_t capacity     = 128;
  static constexpr std::uint32_t any_domain = 0xFFFF'FFFFU;

  /// Begins a range, whose tag becomes `current`. Without a tag (0), the range keeps the current one.
  void push(std::uint32_t& current, std::uint32_t domain, std::uint32_t tag) noexcept
  {
    if (size_ == capacity || (size_ != 0 && entries_[size_ - 1].open == 0)) { make_room(current); }
    if (tag == 0) { tag = current; }
    entries_[size_++] = {tag, current, domain, 1};
    current           = tag;
  }

  /// Ends the last range of the domain, if there is one. Restores the tag before the range, unless a tag scope has set another one.
  void pop(std::uint32_t& current, std::uint32_t domain) noexcept
  {
    if (size_ == 0) { return; }
    auto const& last = entries_[size_ - 1];
    if (last.domain == domain && last.open == 1 && last.tag == current) {
      current = last.before;
      --size_;
    } else {
      pop_other(current, domain);
    }
  }

  /// The number of entries.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct entry {
    std::uint32_t tag;
    std::uint32_t before;  // the tag when the range began
    std::uint32_t domain;
    std::uint32_t open;  // ranges that have not ended
  };

  /// Ends a range that is not the last one, or whose tag is not the current one.
  RMM_COLD void pop_other(std::uint32_t& current, std::uint32_t domain) noexcept
  {
    for (std::size_t i = size_; i-- != 0;) {
      auto& each = entries_[i];
      if (each.open == 0 || (each.domain != domain && each.domain != any_domain)) { continue; }
      if (--each.open == 0) { close(current, i); }
      break;
    }
    settle(current);
  }

  /// Removes an entry whose ranges have ended, unless a tag scope will restore its tag.
  void close(std::uint32_t& current, std::size_t at) noexcept
  {
    auto& tag_after = at + 1 == size_ ? current : entries_[at + 1].before;
    if (tag_after != entries_[at].tag) { return; }
    tag_after = entries_[at].before;
    std::copy(std::begin(entries_) + at + 1, std::begin(entries_) + size_, std::begin(entries_) + at);
    --size_;
  }

  /// Removes the last entries whose ranges have ended and whose tags no tag scope replaces any more.
  void settle(std::uint32_t& current) noexcept
  {
    while (size_ != 0 && entries_[size_ - 1].open == 0 && entries_[size_ - 1].tag == current) {
      current = entries_[--size_].before;
    }
  }

  RMM_COLD void make_room(std::uint32_t& current) noexcept
  {
    settle(current);
    if (current == 0) {  // no tag scope is left to restore a tag
      while (size_ != 0 && entries_[size_ - 1].open == 0) { --size_; }
    }
    if (size_ != capacity) { return; }
    auto* const begin = std::begin(entries_);
    size_             = static_cast<std::size_t>(
      std::remove_if(begin, begin + size_, [](auto const& each) { return each.open == 0; }) - begin);
    if (size_ != capacity) { return; }
    constexpr std::size_t half = capacity / 2;
    entry merged{entries_[half - 1].tag, entries_[0].before, any_domain, 0};
    std::for_each(begin, begin + half, [&](auto const& each) { merged.open += each.open; });
    entries_[0] = merged;
    size_       = static_cast<std::size_t>(std::copy(begin + half, begin + size_, begin + 1) - begin);
  }

  entry entries_[capacity];
  std::size_t size_;
};

static_assert(std::is_trivial_v<range_stack>);

}  // namespace tools
}  // namespace RMM_NAMESPACE
