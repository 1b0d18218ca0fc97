// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/tag_scope.hpp>

#include <atomic>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The parts of a pool: separate pools for the allocations of some tags.
///
/// Every call of the pool searches the parts, without a lock; one thread at a time adds parts. Parts, and outdated lists of them, stay
/// until clear(), because other threads may read them.
///
/// Order: a new list is released with its address, which readers acquire. A list never changes after that. A thread that frees a block got
/// it after the block's part was added, so it reads that list or a later one.
///
/// `Pool` has a function `contains(pointer)`, which says whether a block lies in it.
template <class Pool>
class parts_by_tag {
 public:
  /// Returns the part for allocations of this tag; null if there is none.
  [[nodiscard]] Pool* find(tag label) const noexcept
  {
    return find_if([&](part const& each) { return each.label == label; });
  }

  /// Returns the part that a block lies in; null if there is none.
  [[nodiscard]] Pool* find_with(void const* ptr) const noexcept
  {
    return find_if([&](part const& each) { return each.pool->contains(ptr); });
  }

  /// Calls visit(pool) for each part.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    if (auto const* const all = now_.load(std::memory_order_acquire)) {
      for (auto const& each : *all) { visit(*each.pool); }
    }
  }

  /// Adds a part for a tag that has none. Throws std::bad_alloc, and adds nothing then.
  void add(tag label, rmm::detail::owned_ptr<Pool> pool)
  {
    auto made = rmm::detail::make_owned<list>();
    if (auto const* const old = now_.load(std::memory_order_relaxed)) { *made = *old; }
    made->push_back({label, pool.get()});
    pools_.reserve(pools_.size() + 1);
    lists_.reserve(lists_.size() + 1);
    now_.store(made.get(), std::memory_order_release);
    lists_.push_back(std::move(made));
    pools_.push_back(std::move(pool));
  }

  /// Destroys all parts. No other call may run.
  void clear() noexcept
  {
    now_.store(nullptr, std::memory_order_relaxed);
    pools_.clear();
  }

 private:
  struct part {
    tag label;
    Pool* pool;
  };
  using list = std::vector<part>;

  template <class Predicate>
  [[nodiscard]] Pool* find_if(Predicate&& predicate) const noexcept
  {
    if (auto const* const all = now_.load(std::memory_order_acquire)) {
      for (auto const& each : *all) {
        if (predicate(each)) { return each.pool; }
      }
    }
    return nullptr;
  }

  std::atomic<list const*> now_{nullptr};  // the newest list; null without parts
  std::vector<rmm::detail::owned_ptr<list const>> lists_;
  std::vector<rmm::detail::owned_ptr<Pool>> pools_;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
