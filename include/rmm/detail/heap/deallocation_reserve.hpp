// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Host memory that keeps every deallocation of a heap possible, and the freed blocks that have lost their stream.
///
/// A block is cut from a free range, and becomes part of a range again after its free. That can need host memory, which may be missing
/// then. So each cut takes a claim, and each claim has a place here. A freed block waits in such a place if host memory for a range runs
/// out, or if no event can cover it because its stream has ended. Waiting blocks become free after their devices were synchronised. A
/// claim returns when its block is part of a free range again. Caches take many claims at a time, in advance. Claims belong to the heap,
/// so any thread and stream may free a block.
///
/// Invariants:
///  D1  waiting() <= claimed() <= the number of places
///  D2  claimed() is the number of blocks that were cut and are not part of a free range, plus the claims that caches hold in
///      advance
///  D3  waiting_bytes() is the sum of the blocks that wait; none of them is empty
///
/// Thread-safe. Its lock is the last in every order of locks.
class deallocation_reserve {
 public:
  deallocation_reserve()                                       = default;
  deallocation_reserve(deallocation_reserve const&)            = delete;
  deallocation_reserve& operator=(deallocation_reserve const&) = delete;

  /// Takes `count` claims. Returns false, and changes nothing, if host memory for their places runs out. Takes the lock only then, or to
  /// get more places.
  [[nodiscard]] bool try_claim(std::size_t count) noexcept
  {
    while (!try_claim_place(count)) {
      if (!try_add_places(count)) { return false; }
    }
    return true;
  }

  /// Returns `count` claims.
  void release(std::size_t count) noexcept
  {
    [[maybe_unused]] auto const before = claimed_.fetch_sub(count, std::memory_order_relaxed);
    RMM_ASSERT(count <= before);
  }

  /// Keeps a freed block in the place of its claim, which was not returned.
  void put(address_range block) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    RMM_ASSERT(block.bytes != 0);
    RMM_ASSERT(places_.size() < claimed() && places_.size() < places_.capacity());
    places_.push_back(block);
    waiting_bytes_ += block.bytes;
    RMM_ASSERT_EXPENSIVE(!is_check_due<deallocation_reserve>(places_.size()) || check_locked());
  }

  /// Calls try_place(block) for waiting blocks until it returns false. Removes the blocks for which it returned true, and returns their
  /// claims. try_place() must not use the reserve.
  template <class TryPlace>
  void take(TryPlace&& try_place) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    RMM_ASSERT(places_.size() <= claimed());
    while (!places_.empty() && try_place(places_.back())) {
      RMM_ASSERT(waiting_bytes_ >= places_.back().bytes && claimed() != 0);
      waiting_bytes_ -= places_.back().bytes;
      places_.pop_back();
      release(1);
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<deallocation_reserve>(places_.size()) || check_locked());
  }

  /// Calls visit(block) for each block that waits.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    detail::mutex_lock const lock{mutex_};
    for (auto const block : places_) { visit(block); }
  }

  [[nodiscard]] std::size_t claimed() const noexcept { return claimed_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::size_t waiting() const noexcept
  {
    detail::mutex_lock const lock{mutex_};
    return places_.size();
  }

  [[nodiscard]] std::size_t waiting_bytes() const noexcept
  {
    detail::mutex_lock const lock{mutex_};
    return waiting_bytes_;
  }

  /// Whether D1 and D3 hold; O(waiting()). D2 is the heap's to check.
  [[nodiscard]] bool check_invariants() const noexcept
  {
    detail::mutex_lock const lock{mutex_};
    return check_locked();
  }

 private:
  static constexpr std::size_t least_growth = 256;

  [[nodiscard]] bool check_locked() const noexcept
  {
    std::size_t bytes{};
    for (auto const block : places_) {
      if (block.bytes == 0) { return false; }  // D3
      bytes += block.bytes;
    }
    auto const claims = claimed();
    return places_.size() <= claims && claims <= places_.capacity() && bytes == waiting_bytes_;  // D1, D3
  }

  /// Takes `count` claims if there are as many places without one.
  [[nodiscard]] bool try_claim_place(std::size_t count) noexcept
  {
    auto claims = claimed_.load(std::memory_order_relaxed);
    while (claims + count <= place_count_.load(std::memory_order_relaxed)) {
      if (claimed_.compare_exchange_weak(claims, claims + count, std::memory_order_relaxed)) { return true; }
    }
    return false;
  }

  /// Makes room for `count` claims more. Other threads may take them first.
  [[nodiscard]] bool try_add_places(std::size_t count) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    auto const wanted = claimed() + count;
    RMM_ASSERT(wanted >= count);
    if (wanted <= places_.capacity()) { return true; }
    try {
      places_.reserve(wanted +
                      detail::max(least_growth, wanted / 8));  // untouched places take no memory of the machine
    } catch (std::exception const&) {
      return false;
    }
    place_count_.store(places_.capacity(), std::memory_order_relaxed);
    return true;
  }

  // Order: the two numbers guard no other data. There are never fewer places: who reads an old number takes the lock, and reads again.
  std::atomic<std::size_t> claimed_{0};
  std::atomic<std::size_t> place_count_{0};
  mutable detail::mutex mutex_;  // guards what follows
  std::size_t waiting_bytes_{};
  std::vector<address_range> places_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
