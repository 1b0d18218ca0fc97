// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rmm_c {

/// Counts blocks without a cache line that all threads write.
///
/// sum() is exact if no other thread counts. While others only count down, it is never too low, and the last one to
/// count down gets 0.
///
/// Order: all operations are sequentially consistent: if one thread closes a resource and then sums, and another counts
/// up and then checks whether the resource is closed, at least one of them sees the other's change. The number of
/// threads is relaxed: it only spreads them over the shards.
class live_blocks {
 public:
  void add() noexcept { shard().fetch_add(1); }
  void remove() noexcept { shard().fetch_sub(1); }

  /// Returns the count of all threads. A shard can be negative, because other threads also free blocks.
  [[nodiscard]] std::int64_t sum() const noexcept
  {
    std::int64_t total{0};
    for (auto const& each : shards_) { total += each.count.load(); }
    return total;
  }

 private:
  static constexpr std::size_t shard_count = 16;

  struct alignas(64) padded {
    std::atomic<std::int64_t> count{0};
  };

  [[nodiscard]] std::atomic<std::int64_t>& shard() noexcept
  {
    static std::atomic<std::size_t> threads{0};
    static thread_local std::size_t const mine{threads.fetch_add(1, std::memory_order_relaxed) % shard_count};
    return shards_[mine].count;
  }

  padded shards_[shard_count];
};

}  // namespace rmm_c
