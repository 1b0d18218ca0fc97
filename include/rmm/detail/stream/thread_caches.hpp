// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/pointer_bag.hpp>
#include <rmm/detail/base/thread_slots.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

class stream_cache;
template <class Unused>
class basic_cache_set;
using cache_set = basic_cache_set<void>;

/// A link by which a thread finds the heap of one of its caches.
struct heap_link {
  owning_process process;
  detail::mutex mutex;
  cache_set* caches{};  // of the heap; null once that is gone
  // Calls basic_cache_set::retire_at_end().
  void (*retire)(cache_set& caches, stream_cache& cache, pointer_bag const& known, bool has_own_stream) noexcept {};

  [[nodiscard]] bool is_gone() const noexcept { return caches == nullptr; }
};

struct alignas(32) cache_slot {
  std::uint64_t heap;   // number of the heap, never used again; 0 in an empty slot
  cudaStream_t stream;  // the key of the cache
  stream_cache* cache;
};

/// A thread's table of slots, in which it finds its cache for a stream of a heap in a few instructions; see cache_slot_of(). There is one
/// slot for each value of a hash, so streams replace each other.
inline constexpr unsigned cache_slot_bits = 6;
inline thread_local std::array<cache_slot, std::size_t{1} << cache_slot_bits> cache_slots{};

/// The number of heaps that were destroyed. If it has changed, threads drop their entries of such heaps.
///
/// Order: relaxed, because it is a hint: threads read with the mutex of its link whether a heap is gone. A thread that reads an old number
/// keeps its entries until its next call.
inline std::atomic<std::uint64_t> gone_heaps{0};

/// All caches of a thread. When the thread ends, their contents go back to the heaps.
class thread_caches : public thread_slots<thread_caches, cudaStream_t, stream_cache, heap_link> {
 public:
  ~thread_caches() { retire_all(false); }

  /// Makes the calling thread give its caches back before its default stream ends. Call it when that stream is used: the object that gives
  /// them back is then constructed after the objects by which the runtime ends the stream, and destroyed before them.
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

  /// Removes the entry, also from the table of slots.
  inline void forget(std::uint64_t heap, cudaStream_t stream) noexcept;

  /// Calls visit(cache_slot) for each cache; visit() must not add or remove any.
  template <class Visit>
  void for_each(Visit&& visit) const
  {
    thread_slots::for_each([&](entry const& each) { visit(cache_slot{each.owner, each.key, each.object}); });
  }

  /// Whether there are `most` or more caches of heaps that exist. Throws std::bad_alloc.
  [[nodiscard]] bool has_many(std::size_t most)
  {
    auto const gone = gone_heaps.load(std::memory_order_relaxed);
    if (count() >= most && gone != seen_gone_) {
      seen_gone_ = gone;
      drop_gone();
    }
    return count() >= most;
  }

 private:
  void retire_all(bool has_own_stream) noexcept
  {
    cache_slots = {};
    known_streams().with_known([&](pointer_bag const& known) {
      give_back([&](heap_link const& link, stream_cache* cache) noexcept {
        link.retire(*link.caches, *cache, known, has_own_stream);
      });
    });
  }

  std::uint64_t seen_gone_{};  // how many heaps were gone when entries of such heaps were dropped last
};

[[nodiscard]] RMM_ALWAYS_INLINE cache_slot& cache_slot_of(std::uint64_t heap, cudaStream_t stream) noexcept
{
  auto const at = std::size_t{thread_caches::hash_of(heap, stream) >> (64U - cache_slot_bits)};
  RMM_ASSERT(at < cache_slots.size());
  return cache_slots[at];
}

inline void thread_caches::forget(std::uint64_t heap, cudaStream_t stream) noexcept
{
  auto& slot = cache_slot_of(heap, stream);
  if (slot.heap == heap && slot.stream == stream) { slot = {}; }
  thread_slots::forget(heap, stream);
  RMM_ASSERT(find(heap, stream) == nullptr);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
