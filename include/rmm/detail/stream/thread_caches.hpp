// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

class stream_cache;
template <class Unused>
class basic_stream_ordered_heap;
using stream_ordered_heap = basic_stream_ordered_heap<void>;

/// The way from a thread that ends to a heap that may have gone: `heap` is null then.
struct heap_link {
  std::mutex mutex;
  stream_ordered_heap* heap{};
  void (*retire)(stream_ordered_heap& heap, stream_cache& cache) noexcept {};
};

/// Where a thread finds its cache for a stream of a heap in a few instructions: a table with one place for each value of a
/// hash, so that streams push each other out. Plain data, for it is read before and after everything else in a thread.
struct alignas(32) cache_slot {
  std::uint64_t heap;  // number of the heap, never used again; 0 in an empty slot
  cudaStream_t stream;
  stream_cache* cache;
};

inline constexpr unsigned cache_slot_bits = 6;
inline thread_local std::array<cache_slot, std::size_t{1} << cache_slot_bits> cache_slots{};

[[nodiscard]] RMM_ALWAYS_INLINE cache_slot& cache_slot_of(std::uint64_t heap, cudaStream_t stream) noexcept
{
  auto const mixed = (reinterpret_cast<std::uintptr_t>(stream) + heap) * 0x9E3779B97F4A7C15U;
  return cache_slots[static_cast<std::size_t>(mixed >> (64U - cache_slot_bits))];
}

/// All caches of a thread. When it ends, what they hold goes back to their heaps.
class thread_caches {
 public:
  struct entry {
    std::uint64_t heap;
    cudaStream_t stream;
    stream_cache* cache;
    std::shared_ptr<heap_link> link;
  };

  /// Those of the calling thread; null while it ends.
  [[nodiscard]] static thread_caches* mine()
  {
    if (ended) { return nullptr; }
    thread_local thread_caches caches;
    return &caches;
  }

  thread_caches()                                = default;
  thread_caches(thread_caches const&)            = delete;
  thread_caches& operator=(thread_caches const&) = delete;

  ~thread_caches()
  {
    ended       = true;
    cache_slots = {};
    for (auto const& each : entries_) {
      std::lock_guard<std::mutex> const lock{each.link->mutex};
      if (each.link->heap != nullptr) { each.link->retire(*each.link->heap, *each.cache); }
    }
  }

  [[nodiscard]] stream_cache* find(std::uint64_t heap, cudaStream_t stream) const noexcept
  {
    auto const found = std::find_if(
      entries_.begin(), entries_.end(), [&](entry const& e) { return e.heap == heap && e.stream == stream; });
    return found == entries_.end() ? nullptr : found->cache;
  }

  /// Throws std::bad_alloc. Drops those of heaps that are gone when there are many.
  void add(entry added)
  {
    if (entries_.size() == entries_.capacity()) {
      entries_.erase(std::remove_if(entries_.begin(), entries_.end(), [](entry const& e) { return is_gone(e); }),
                     entries_.end());
    }
    entries_.push_back(std::move(added));
  }

  /// Removes the one entry. Entries of heaps that are gone may have the same address.
  void forget(std::uint64_t heap, stream_cache const* cache) noexcept
  {
    for (auto& slot : cache_slots) {
      if (slot.cache == cache) { slot = {}; }
    }
    auto const found = std::find_if(
      entries_.begin(), entries_.end(), [&](entry const& e) { return e.heap == heap && e.cache == cache; });
    if (found != entries_.end()) { entries_.erase(found); }
  }

  [[nodiscard]] std::vector<entry> const& entries() const noexcept { return entries_; }

 private:
  inline static thread_local bool ended = false;

  [[nodiscard]] static bool is_gone(entry const& e) noexcept
  {
    std::lock_guard<std::mutex> const lock{e.link->mutex};
    return e.link->heap == nullptr;
  }

  std::vector<entry> entries_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
