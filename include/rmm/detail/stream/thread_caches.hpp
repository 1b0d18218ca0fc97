// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/pointer_bag.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
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
  void (*retire)(stream_ordered_heap& heap,
                 stream_cache& cache,
                 pointer_bag const& known,
                 bool has_own_stream) noexcept {};
};

/// Where a thread finds its cache for a stream of a heap in a few instructions: a table with one place for each value of a
/// hash, so that streams push each other out. Plain data, because it is read before and after everything else in a thread.
struct alignas(32) cache_slot {
  std::uint64_t heap;   // number of the heap, never used again; 0 in an empty slot
  cudaStream_t stream;  // the key of the cache
  stream_cache* cache;
};

inline constexpr unsigned cache_slot_bits = 6;
inline thread_local std::array<cache_slot, std::size_t{1} << cache_slot_bits> cache_slots{};

[[nodiscard]] RMM_ALWAYS_INLINE std::uint64_t hash_of_cache(std::uint64_t heap, cudaStream_t stream) noexcept
{
  return (reinterpret_cast<std::uintptr_t>(stream) + heap) * 0x9E3779B97F4A7C15U;
}

[[nodiscard]] RMM_ALWAYS_INLINE cache_slot& cache_slot_of(std::uint64_t heap, cudaStream_t stream) noexcept
{
  return cache_slots[static_cast<std::size_t>(hash_of_cache(heap, stream) >> (64U - cache_slot_bits))];
}

/// How many heaps have gone, so that threads know when to look for what they have of such heaps.
inline std::atomic<std::uint64_t> gone_heaps{0};

/// All caches of a thread. When it ends, what they hold goes back to their heaps.
///
/// A hash table with linear probing: a thread may use thousands of streams.
class thread_caches {
 public:
  struct entry {
    std::uint64_t heap{};  // 0 in an empty place
    cudaStream_t stream{};
    stream_cache* cache{};
    std::shared_ptr<heap_link> link{};
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

  ~thread_caches() { retire_all(false); }

  /// Makes the calling thread give its caches back before its default stream ends. Called when that stream is used, so that the
  /// object which does it is made after those by which the runtime ends the stream, and destroyed before them.
  static void retire_before_own_stream_ends()
  {
    struct end_of_own_stream {
      ~end_of_own_stream()
      {
        if (auto* const caches = mine()) { caches->retire_all(true); }
      }
    };
    thread_local end_of_own_stream const end;
    static_cast<void>(end);
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  [[nodiscard]] stream_cache* find(std::uint64_t heap, cudaStream_t stream) const noexcept
  {
    auto const at = find_place(heap, stream);
    return at == none ? nullptr : places_[at].cache;
  }

  /// Throws std::bad_alloc. Requires that there is no entry for the same heap and stream. Drops those of heaps that are gone
  /// when there are many.
  void add(entry added)
  {
    if (4 * (count_ + 1) > 3 * places_.size()) { make_room(); }
    place(std::move(added));
  }

  /// Removes the one entry.
  void forget(std::uint64_t heap, cudaStream_t stream) noexcept
  {
    auto& slot = cache_slot_of(heap, stream);
    if (slot.heap == heap && slot.stream == stream) { slot = {}; }
    auto at = find_place(heap, stream);
    if (at == none) { return; }
    --count_;
    // Entries behind it that could not have their own place move up.
    for (auto next = (at + 1) & mask(); places_[next].heap != 0; next = (next + 1) & mask()) {
      auto const home = home_of(places_[next]);
      if (((next - home) & mask()) >= ((next - at) & mask())) {
        places_[at] = std::move(places_[next]);
        at          = next;
      }
    }
    places_[at] = entry{};
  }

  /// Calls visit(entry) for each; none is added or removed meanwhile.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for (auto const& each : places_) {
      if (each.heap != 0) { visit(each); }
    }
  }

  /// Whether there are `most` or more, without those of heaps that are gone.
  [[nodiscard]] bool has_many(std::size_t most)
  {
    auto const gone = gone_heaps.load(std::memory_order_relaxed);
    if (count_ >= most && gone != seen_gone_) {
      seen_gone_ = gone;
      make_room();
    }
    return count_ >= most;
  }

  /// Any entry of the heap, another one each time; null if it has none.
  [[nodiscard]] stream_cache* next_of(std::uint64_t heap) noexcept
  {
    for (std::size_t i = 0; i != places_.size(); ++i) {
      hand_ = (hand_ + 1) & mask();
      if (places_[hand_].heap == heap) { return places_[hand_].cache; }
    }
    return nullptr;
  }

 private:
  inline static thread_local bool ended = false;
  static constexpr std::size_t none     = ~std::size_t{0};

  [[nodiscard]] static bool is_gone(entry const& e) noexcept
  {
    std::lock_guard<std::mutex> const lock{e.link->mutex};
    return e.link->heap == nullptr;
  }

  void retire_all(bool has_own_stream) noexcept
  {
    ended       = true;
    cache_slots = {};
    if (count_ == 0) { return; }
    known_streams().with_known([&](pointer_bag const& known) {
      for_each([&](entry const& each) {
        std::lock_guard<std::mutex> const lock{each.link->mutex};
        if (each.link->heap != nullptr) { each.link->retire(*each.link->heap, *each.cache, known, has_own_stream); }
      });
    });
    places_.clear();
    count_ = 0;
  }

  [[nodiscard]] std::size_t mask() const noexcept { return places_.size() - 1; }
  [[nodiscard]] std::size_t home_of(entry const& e) const noexcept
  {
    return static_cast<std::size_t>(hash_of_cache(e.heap, e.stream) >> 32U) & mask();
  }

  [[nodiscard]] std::size_t find_place(std::uint64_t heap, cudaStream_t stream) const noexcept
  {
    if (count_ == 0) { return none; }
    auto at = static_cast<std::size_t>(hash_of_cache(heap, stream) >> 32U) & mask();
    for (; places_[at].heap != 0; at = (at + 1) & mask()) {
      if (places_[at].heap == heap && places_[at].stream == stream) { return at; }
    }
    return none;
  }

  void place(entry&& added) noexcept
  {
    auto at = home_of(added);
    while (places_[at].heap != 0) { at = (at + 1) & mask(); }
    places_[at] = std::move(added);
    ++count_;
  }

  void make_room()
  {
    auto const is_kept = [](entry const& e) { return e.heap != 0 && !is_gone(e); };
    auto const kept    = static_cast<std::size_t>(std::count_if(places_.begin(), places_.end(), is_kept));
    std::size_t size   = 8;
    while (size < 2 * (kept + 1)) { size *= 2; }
    std::vector<entry> old(size);
    places_.swap(old);
    count_ = 0;
    for (auto& each : old) {
      if (is_kept(each)) { place(std::move(each)); }
    }
  }

  std::vector<entry> places_;  // a power of two, or none
  std::size_t count_{};
  std::size_t hand_{};
  std::uint64_t seen_gone_{};  // heaps that were gone when those of such heaps were dropped last
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
