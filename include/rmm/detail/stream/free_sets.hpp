// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/pointer_bag.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/block_map.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/stream_cache.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// A store or a cache, as a set of free ranges that other streams may use after an event. Refers to it.
struct free_set {
  free_set() = default;
  explicit free_set(free_store& from) noexcept : ranges{&from.ranges()}, store{&from} {}
  explicit free_set(stream_cache& from) noexcept : ranges{&from.ranges()}, cache{&from} {}

  range_set* ranges{};  ///< null: there is no set
  free_store* store{};
  stream_cache* cache{};

  /// Returns the identity of the stream; 0 for the idle store.
  [[nodiscard]] std::uint64_t identity() const noexcept
  {
    return store != nullptr ? store->identity() : cache->identity();
  }

  [[nodiscard]] bool try_make_room(std::size_t more) const noexcept
  {
    return store != nullptr ? store->try_make_room(more) : cache->try_make_room(more);
  }

  /// Returns the number of free pieces and their bytes, blocks that are not in ranges included.
  [[nodiscard]] std::pair<std::size_t, std::size_t> pieces(bool with_unfenced) const noexcept
  {
    if (cache != nullptr) {
      auto const [count, bytes] = cache->free_pieces();
      if (with_unfenced) { return {count, bytes}; }
      auto const [kept, kept_bytes] = cache->unfenced_kept();
      return {count - cache->unfenced_count() - kept, bytes - cache->unfenced_bytes() - kept_bytes};
    }
    auto bytes = ranges->total_bytes();
    if (!with_unfenced) { return {ranges->count(), bytes}; }
    for (auto const range : store->unfenced()) { bytes += range.bytes; }
    return {ranges->count() + store->unfenced().size(), bytes};
  }

  // --- events; a cache has one, so its memory has no epochs ---

  [[nodiscard]] std::uint64_t epoch_of(std::uint64_t noted) const noexcept
  {
    return store != nullptr ? store->epoch_of(noted) : noted;
  }

  /// Whether no work uses memory with this epoch any more.
  [[nodiscard]] bool is_reached(std::uint64_t epoch) const noexcept
  {
    if (cache != nullptr) { return cache->event().is_reached(); }
    return store->identity() == 0 || epoch <= store->reached();
  }

  /// Makes later work of `stream` wait until memory with this epoch is free. Returns whether that succeeded.
  [[nodiscard]] bool try_make_wait(cudaStream_t stream, std::uint64_t epoch) const noexcept
  {
    return store != nullptr ? store->try_make_wait(stream, epoch) : cache->event().try_make_wait(stream);
  }

  /// Notes that the caller needs memory with this epoch.
  void note_wait(std::uint64_t epoch) const noexcept
  {
    store != nullptr ? store->note_wait(epoch) : cache->note_wait();
  }

  /// Makes later work of `stream` wait once for all memory that was noted. Returns whether that succeeded; true if nothing was.
  [[nodiscard]] bool try_make_noted_wait(cudaStream_t stream, bool may_wait) const noexcept
  {
    if (store != nullptr) { return store->try_make_noted_wait(stream, may_wait); }
    return !cache->take_noted_wait() || cache->event().is_reached() ||
           (may_wait && cache->event().try_make_wait(stream));
  }
};

/// All free memory of a heap: caches, stores, and the reserve, which keeps memory that has lost its stream. Has what concerns every part
/// of it: sums, walks, fences for all streams, and waits of the host.
///
/// Invariants:
///  K1  free and allocated bytes together are those of the upstream blocks, in whole granules
///  K2  for_each_piece() visits each free byte once, and add_up() counts it once
///  K3  devices() has each device whose work may use free memory
///
/// Guarded by the heap's lock. All functions but fence_ended() require that all caches but the calling thread's are closed. They see the
/// memory that was freed before the caches were closed. A template only so that translation units that make no heap do not compile its
/// members.
template <class Unused>
class basic_free_sets {
 public:
  basic_free_sets(basic_cache_set<Unused>& caches,
                  shared_free_lists& shared,
                  block_map const& blocks,
                  heap_limits const& limits,
                  device_waits const& waits) noexcept
    : caches_{caches}, shared_{shared}, blocks_{blocks}, limits_{limits}, waits_{waits}
  {}

  [[nodiscard]] basic_cache_set<Unused>& caches() const noexcept { return caches_; }
  [[nodiscard]] shared_free_lists& shared() const noexcept { return shared_; }
  [[nodiscard]] block_map const& blocks() const noexcept { return blocks_; }
  [[nodiscard]] seam_list const* seams() const noexcept { return limits_.seams(); }

  // --- sums ---

  struct sums {
    std::size_t pieces{};
    std::size_t bytes{};
    std::size_t cached_bytes{};  ///< the part in caches
    free_set largest{};          ///< the set with the most ranges

    [[nodiscard]] std::size_t pieces_elsewhere() const noexcept { return pieces - largest.ranges->count(); }
  };

  /// Constant time for each cache and store.
  [[nodiscard]] sums add_up(bool with_unfenced = true) const noexcept
  {
    sums all{};
    for_each_set([&](free_set const& set) {
      auto const [pieces, bytes] = set.pieces(with_unfenced);
      all.pieces += pieces;
      all.bytes += bytes;
      all.cached_bytes += set.cache != nullptr ? bytes : 0;
      if (all.largest.ranges == nullptr || set.ranges->count() > all.largest.ranges->count()) { all.largest = set; }
    });
    if (with_unfenced) {
      all.pieces += limits_.reserve.waiting();
      all.bytes += limits_.reserve.waiting_bytes();
    }
    RMM_ASSERT(all.cached_bytes <= all.bytes && (all.pieces != 0) == (all.bytes != 0));
    return all;
  }

  /// Whether K1 holds. `on_their_way`: bytes that were taken and do not count as live yet.
  [[nodiscard]] bool check_sum(std::size_t on_their_way = 0) const noexcept
  {
    return add_up().bytes + on_their_way + static_cast<std::size_t>(caches_.live_bytes()) == blocks_.usable_bytes();
  }

  /// Returns a size that no run of neighbours exceeds, with or without events.
  [[nodiscard]] std::size_t bound_of_runs() const noexcept
  {
    // Two pieces of one set do not lie side by side. So a run has at most one piece of the largest set more than it has others.
    auto const all      = add_up();
    auto const& largest = *all.largest.ranges;
    auto const bound    = all.bytes - largest.total_bytes() + largest.most_bytes_of(all.pieces_elsewhere() + 1);
    RMM_ASSERT(bound <= all.bytes);
    return bound;
  }

  /// Bytes of the largest free piece, not coalesced with neighbours elsewhere.
  [[nodiscard]] std::size_t largest_piece() const noexcept
  {
    std::size_t largest{};
    shared_.for_each_unfenced([&](address_range range) { largest = detail::max(largest, range.bytes); });
    for_each_set([&](free_set const& set) {
      largest = detail::max(largest, set.store != nullptr ? set.ranges->largest() : set.cache->largest_piece());
    });
    return largest;
  }

  // --- walks ---

  /// Calls visit(free_set) for each store and each cache.
  template <class Visit>
  void for_each_set(Visit&& visit) const
  {
    visit(free_set{shared_.idle()});
    for (auto const& store : shared_.stores()) { visit(free_set{*store}); }
    for (auto const& cache : caches_) { visit(free_set{*cache}); }
  }

  /// Calls visit(free_piece) for each free piece.
  template <class Visit>
  void for_each_piece(Visit&& visit) const
  {
    using place = free_piece::place;
    for_each_set([&](free_set const& set) {
      auto const stream = set.identity();
      if (set.cache != nullptr) {
        return set.cache->for_each_free([&](address_range range, bool fenced) {
          visit(free_piece{range, place::cache, fenced, stream});
        });
      }
      set.ranges->for_each([&](address_range range, std::uint64_t) {
        visit(free_piece{range, place::store, true, stream});
      });
      for (auto const range : set.store->unfenced()) { visit(free_piece{range, place::store, false, stream}); }
    });
    limits_.reserve.for_each([&](address_range range) { visit(free_piece{range, place::store, false, lost_stream}); });
  }

  // --- fences ---

  /// Fences the memory freed on those of the `known` streams, and on the legacy default streams. They must not end during the call.
  void fence_alive(pointer_bag const& known) const noexcept
  {
    for (auto const& cache : caches_) {
      if (!has_unfenced(*cache) || !caches_.is_kept_alive(*cache, known)) { continue; }
      device_scope const on_device{cache->device()};  // the handle of a default stream names that of the current one
      fence_all_of(*cache, cache->stream());
      RMM_ASSERT(!cache->has_ended());  // H3 of the heap
    }
    for (auto const& store : shared_.stores()) {
      if (store->unfenced().empty()) { continue; }
      device_scope const on_device{store->device()};
      if (store->identity() == legacy_stream_identity()) { shared_.fence_left(*store, cudaStreamLegacy); }
    }
  }

  /// Fences the memory freed on a known stream that is about to end. Closes the caches if there is any.
  void fence_ended(cudaStream_t stream) const noexcept
  {
    auto const is_its       = [&](auto const& cache) { return cache->stream() == stream && !cache->has_ended(); };
    auto const any_unfenced = [](auto const& store) { return !store->unfenced().empty(); };
    auto const& stores      = shared_.stores();
    if (detail::none_of(caches_.begin(), caches_.end(), is_its) &&
        detail::none_of(stores.begin(), stores.end(), any_unfenced)) {
      return;
    }
    auto const identity = stream_identity(stream);
    if (auto* const store = shared_.find(identity)) { shared_.fence_left(*store, stream); }
    typename basic_cache_set<Unused>::closed const closed{caches_};
    for (auto const& cache : caches_) {
      if (!is_its(cache)) { continue; }
      // CUDA does not tell the identity of a capturing stream. A cache with a lasting handle belongs to this stream, though.
      if (identity != 0 ? cache->identity() != identity : !cache->is_lasting()) { continue; }
      fence_all_of(*cache, stream);
      caches_.note_end(*cache);
    }
    RMM_ASSERT_EXPENSIVE(check_sum());
  }

  // --- waits on the host ---

  /// Waits for the events of all free memory, which is allowed during captures; synchronising the device is not.
  void wait_for_events() const noexcept
  {
    capture_exemption const exemption;
    for (auto const& cache : caches_) {
      if (cache->free_pieces().first != 0) { cache->event().synchronize_no_throw(); }
    }
    for (auto const& store : shared_.stores()) {
      if (!store->is_empty()) { store->synchronize(); }
    }
  }

  /// Waits for the devices, and marks all free memory as fenced and all fences as reached. Returns false, and changes nothing, if the host
  /// cannot wait.
  [[nodiscard]] bool try_wait_for_devices(device_waits::permission may) noexcept
  {
    if (!waits_.try_wait_for(devices(), may)) { return false; }
    ++device_synchronizations_;
    for (auto const& cache : caches_) {
      cache->all_fenced();
      cache->give_kept([&](address_range range) { shared_.lose(range, device_waits::every_device); });
    }
    shared_.all_reached();  // also what was just lost
    RMM_ASSERT(detail::none_of(caches_.begin(), caches_.end(), [](auto const& cache) {
      return cache->has_unfenced() && !cache->has_fenced_blocks();  // both: host memory to coalesce has run out
    }));
    RMM_ASSERT(detail::none_of(
      shared_.stores().begin(), shared_.stores().end(), [](auto const& store) { return store->has_fences(); }));
    RMM_ASSERT_EXPENSIVE(check_sum());
    return true;
  }

  /// Returns how often try_wait_for_devices() waited.
  [[nodiscard]] std::uint64_t device_synchronizations() const noexcept { return device_synchronizations_; }

 private:
  // The stream number, in heap_contents, of memory that has lost its stream.
  static constexpr std::uint64_t lost_stream = max_value<std::uint64_t> / 2;

  [[nodiscard]] static bool has_unfenced(stream_cache const& cache) noexcept
  {
    return cache.has_unfenced() || cache.keeps_unfenced();
  }

  /// Fences all memory of a cache, on its stream. What cannot be fenced stays as it is.
  void fence_all_of(stream_cache& cache, cudaStream_t stream) const noexcept
  {
    static_cast<void>(caches_.give_kept(cache, stream, false));
    if (cache.has_unfenced()) { static_cast<void>(cache.fence(stream)); }
  }

  /// Returns the devices of all streams that free memory waits for. These devices have contexts, because their streams were used.
  [[nodiscard]] std::uint64_t devices() const noexcept
  {
    auto devices = shared_.lost_devices();
    for (auto const& cache : caches_) {
      if (cache->has_fenced_blocks() || !cache->ranges().empty()) { devices |= device_waits::set_of(cache->device()); }
      if (has_unfenced(*cache)) { devices |= caches_.devices_of_unfenced(*cache); }
    }
    for (auto const& store : shared_.stores()) {
      if (!store->ranges().empty() || store->has_fences()) { devices |= device_waits::set_of(store->device()); }
      if (!store->unfenced().empty()) { devices |= device_waits::every_device; }
    }
    return devices;
  }

  basic_cache_set<Unused>& caches_;
  shared_free_lists& shared_;
  block_map const& blocks_;
  heap_limits const& limits_;
  device_waits const& waits_;
  std::uint64_t device_synchronizations_{};
};

using free_sets = basic_free_sets<void>;
RMM_COMPILED_ONCE(basic_free_sets<void>);

}  // namespace detail
}  // namespace RMM_NAMESPACE
