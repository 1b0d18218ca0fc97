// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/export.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The live allocations of a tracking_resource_adaptor, by address, and the sum of their bytes.
///
/// The entries are spread over shards by their address, so that threads seldom wait for the same lock. whole_table() moves all entries to
/// the first shard. From then on, all threads share its lock.
///
/// Invariants:
///  O1  an entry is in the shard that shard_of() returns, while the lock of that shard is held
///  O2  the bytes of a shard are the sum of its entries
///  O3  surplus_ is at most the sum of all entries, except while a call changes them
///
/// Order: entries, the bytes of a shard and is_whole_ change with the locks held that guard them, and surplus_ with all locks. So what
/// one change wrote happens before the next change of the same shard, and atomic variables may be relaxed. remove() reads surplus_
/// after it has held the lock of a shard, which subtract() holds too: either subtract() saw the sum without the entry, or remove() sees
/// the surplus. Without a lock there are two readers. whole_table() acquires is_whole_, which was released after the entries moved.
/// bytes() reads each shard at another moment, so it returns a sum to which each call that overlaps it counts or does not; while the
/// first call of whole_table() moves entries, it may also miss some, or count them twice. tests/models/statistics_model.cpp tries all
/// executions.
///
/// Thread-safe. `Info` has a member `allocation_size`.
template <class Info>
class outstanding_allocations {
 public:
  using table = std::map<void*, Info>;

  /// Adds an allocation, and replaces one of the same address. Throws std::bad_alloc, and changes nothing then.
  void add(void* ptr, Info&& info)
  {
    auto const bytes = info.allocation_size;
    table made;  // allocates the entry before the lock is taken
    made.try_emplace(ptr, std::move(info));
    typename table::node_type replaced;
    {
      held_shard const held{*this, ptr};
      auto& entries = held.get().entries;
      replaced      = entries.extract(ptr);
      entries.insert(made.extract(made.begin()));
      held.add_bytes(bytes - bytes_of(replaced));
    }
    if (!replaced.empty()) { subtract(0); }
  }

  /// Removes an allocation. Returns its bytes and true, or 0 and false if there is none.
  std::pair<std::size_t, bool> remove(void* ptr) noexcept
  {
    typename table::node_type removed;  // frees the entry after the lock is released
    {
      held_shard const held{*this, ptr};
      removed = held.get().entries.extract(ptr);
      held.add_bytes(0 - bytes_of(removed));
    }
    if (!removed.empty() && surplus_.load(std::memory_order_relaxed) != 0) { subtract(0); }
    return {bytes_of(removed), !removed.empty()};
  }

  /// Subtracts bytes from the sum, down to 0. For frees of memory that is not in the table.
  void subtract(std::size_t bytes) noexcept
  {
    all_held const held{*this};
    auto const sum     = sum_of_entries();
    auto const surplus = rmm::detail::min(sum, surplus_.load(std::memory_order_relaxed) + bytes);
    surplus_.store(surplus, std::memory_order_relaxed);  // O3
  }

  /// Returns the sum of all entries, less the subtracted bytes.
  [[nodiscard]] std::size_t bytes() const noexcept
  {
    auto const sum = sum_of_entries();
    return sum - rmm::detail::min(sum, surplus_.load(std::memory_order_relaxed));
  }

  /// Returns the live table. It must not be read while other threads add or remove.
  [[nodiscard]] table const& whole_table() const noexcept
  {
    if (!is_whole_.load(std::memory_order_acquire)) {
      all_held const held{*this};
      auto& first = shards_.front();
      for (auto& each : shards_) {
        if (&each == &first) { continue; }
        first.entries.merge(each.entries);  // moves nodes, so it needs no memory
        RMM_ASSERT(each.entries.empty());   // O1
        auto const bytes = each.bytes.load(std::memory_order_relaxed);
        each.bytes.store(0, std::memory_order_relaxed);
        first.bytes.store(first.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
      }
      is_whole_.store(true, std::memory_order_release);
    }
    return shards_.front().entries;
  }

  /// Calls visit(pointer, info) for each entry in the order of addresses, with all locks held. Exceptions of `visit` propagate.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    all_held const held{*this};
    std::array<typename table::const_iterator, shard_count> next;
    for (std::size_t i = 0; i != shard_count; ++i) { next[i] = shards_[i].entries.begin(); }
    for (;;) {
      std::size_t lowest{shard_count};
      for (std::size_t i = 0; i != shard_count; ++i) {
        if (next[i] == shards_[i].entries.end()) { continue; }
        if (lowest == shard_count || next[i]->first < next[lowest]->first) { lowest = i; }
      }
      if (lowest == shard_count) { return; }
      visit(next[lowest]->first, next[lowest]->second);
      ++next[lowest];
    }
  }

 private:
  static constexpr unsigned shard_bits{5};  // ThreadSanitizer allows a thread to hold 64 locks
  static constexpr std::size_t shard_count{std::size_t{1} << shard_bits};

  struct alignas(64) shard {  // a cache line of its own
    rmm::detail::mutex mutex;
    table entries;
    std::atomic<std::size_t> bytes{0};  // changed with the mutex held
  };

  [[nodiscard]] static std::size_t bytes_of(typename table::node_type const& entry) noexcept
  {
    return entry.empty() ? 0 : entry.mapped().allocation_size;
  }

  [[nodiscard]] std::size_t shard_of(void const* ptr) const noexcept
  {
    if (is_whole_.load(std::memory_order_relaxed)) { return 0; }
    auto const mixed = std::uint64_t{reinterpret_cast<std::uintptr_t>(ptr)} * 0x9E3779B97F4A7C15U;
    return std::size_t{mixed >> (64U - shard_bits)};
  }

  /// Holds the lock of the shard that an address belongs to.
  class held_shard {
   public:
    held_shard(outstanding_allocations const& all, void const* ptr) noexcept
    {
      for (;;) {
        auto const which = all.shard_of(ptr);
        shard_           = &all.shards_[which];
        lock_            = rmm::detail::mutex_lock{shard_->mutex};
        if (all.shard_of(ptr) == which) { return; }
        // whole_table() has moved the entries since. Two locks at a time would be held against the order of all_held.
        lock_ = rmm::detail::mutex_lock{};
      }
    }

    [[nodiscard]] shard& get() const noexcept { return *shard_; }
    void add_bytes(std::size_t bytes) const noexcept
    {
      shard_->bytes.store(shard_->bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    }

   private:
    shard* shard_{};
    rmm::detail::mutex_lock lock_;
  };

  /// Holds the locks of all shards.
  class all_held {
   public:
    explicit all_held(outstanding_allocations const& all) noexcept : all_{all}
    {
      for (auto& each : all_.shards_) { each.mutex.lock(); }
    }
    all_held(all_held const&)            = delete;
    all_held& operator=(all_held const&) = delete;
    ~all_held()
    {
      for (auto& each : all_.shards_) { each.mutex.unlock(); }
    }

   private:
    outstanding_allocations const& all_;
  };

  [[nodiscard]] std::size_t sum_of_entries() const noexcept
  {
    std::size_t sum{};
    for (auto const& each : shards_) { sum += each.bytes.load(std::memory_order_relaxed); }
    return sum;
  }

  mutable std::array<shard, shard_count> shards_;
  mutable std::atomic<bool> is_whole_{false};  // changed with all locks held
  std::atomic<std::size_t> surplus_{0};        // bytes of frees that are not in the table
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
