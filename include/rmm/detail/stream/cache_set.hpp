// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/biased_lock.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/pointer_bag.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_device.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/slow_path.hpp>
#include <rmm/detail/stream/stream_cache.hpp>
#include <rmm/detail/stream/thread_caches.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// All caches of a heap. Finds and makes them, says how much each may keep, and moves memory between them and the shared free
/// lists.
///
/// While there is one cache, it holds everything, unless it is new and there were others before. With more caches, large blocks go past them
/// (is_large()), and a cache that holds more than its share is flushed. While free memory is scarce, all but small blocks go past caches.
/// Otherwise a cache would cut them from its own large ranges, which others need whole, even if a smaller range fits elsewhere. While
/// memory is ample, caches serve larger blocks, too, without the lock: that such blocks pack worse does not matter then. A cache retires
/// when its thread or stream ends: its memory moves to the shared free lists.
///
/// Invariants:
///  S1  each cache is listed once, at its place(). Its owner finds it only while it is listed
///  S2  the limits follow from block_bytes(), the number of caches, and whether memory is scarce, tight, plenty or ample
///  S3  ended_ counts the listed caches whose stream has ended, noted_live_ the live bytes that they have noted
///  S4  while no_run_of_ is not no_limit, all caches are closed, and no run of neighbours in the heap, with or without events, has so many
///      bytes: none had when a search ended, and no memory was freed or added since
///
/// Order: the limits are numbers that owners read relaxed, without the lock. They guard no data. An owner may read some of them before and
/// some after a change: then its cache keeps more or less than it should, until its next call. count_eager_fence() runs without the lock,
/// so two of them may count as one, and most_unfenced_bytes may follow from an older number of caches until set_limits() runs again.
/// ended_ changes with the lock; an owner that reads an old number without it drops its cache in a later call.
///
/// Guarded by the heap's lock; functions in the section "a thread's own cache" take it themselves where they need it. A template only
/// so that translation units that make no heap do not compile its members.
template <class Unused>
class basic_cache_set {
 public:
  /// `number`: the number of the heap, unique in the process.
  basic_cache_set(std::uint64_t number,
                  detail::spinning_mutex& mutex,
                  slow_path const& slow,
                  heap_limits& limits,
                  shared_free_lists& shared,
                  device_waits const& waits)
    : number_{number},
      slow_{slow},
      mutex_{mutex},
      limits_{limits},
      shared_{shared},
      waits_{waits},
      link_{detail::make_counted<heap_link>()}
  {
    link_->caches = this;
    link_->retire = retire_at_end;
  }
  basic_cache_set(basic_cache_set const&)            = delete;
  basic_cache_set& operator=(basic_cache_set const&) = delete;

  /// Returns the link by which threads that end find the heap.
  [[nodiscard]] heap_link& link() const noexcept { return *link_; }

  // --- a thread's own cache; without the lock ---

  /// Returns the calling thread's cache for `key` if the thread's table of slots has it; else null.
  [[nodiscard]] RMM_ALWAYS_INLINE stream_cache* find_local(cudaStream_t key) const noexcept
  {
    auto const& slot = cache_slot_of(number_, key);
    return slot.heap == number_ && slot.stream == key ? slot.cache : nullptr;
  }

  /// Returns the key by which threads find the cache of a stream: the handle. If the handle names a different stream on each device, a
  /// number that depends on the current device.
  [[nodiscard]] cudaStream_t key_of(identified_stream stream) const noexcept
  {
    auto* const handle = stream.view().value();
    if (!slow_.is_ambiguous(handle)) { return handle; }
    auto const device = stream.current_device();
    return reinterpret_cast<cudaStream_t>(  // NOLINT
      slow_path::number_of(handle) + (static_cast<std::uintptr_t>(device + 2) << 2U));
  }

  /// Returns the calling thread's cache for `stream`, and makes one if there is none; null if that fails. With `ask`, the cache is
  /// certain to be for the stream that the handle names now.
  [[nodiscard]] stream_cache* find_or_make(cudaStream_t stream, bool ask) noexcept
  {
    auto* const mine = thread_caches::mine();
    if (mine == nullptr) { return nullptr; }
    auto const key = key_of(stream);
    auto& slot     = cache_slot_of(number_, key);
    auto* cache    = slot.heap == number_ && slot.stream == key ? slot.cache : mine->find(number_, key);
    if (cache != nullptr && ask && !cache->is_current()) {
      drop(*mine, *cache);
      cache = nullptr;
    }
    if (cache == nullptr) { cache = make(*mine, stream); }
    if (cache != nullptr) { slot = {number_, key, cache}; }
    RMM_ASSERT(cache == nullptr || (cache->key() == key && find_local(key) == cache));  // S1
    return cache;
  }

  /// Drops a cache of the calling thread whose handle names another stream now.
  RMM_COLD void drop(stream_cache& cache) noexcept
  {
    if (auto* const mine = thread_caches::mine()) { drop(*mine, cache); }
  }

  // --- inside a cache, or with the lock ---

  /// Takes a block from the cache without coalescing. Returns null if none fits. Throws std::bad_alloc.
  [[nodiscard]] RMM_FLATTEN void* take_local(stream_cache& cache, std::size_t bytes) const
  {
    if (bytes > small_block_limit) { return cache.take(bytes); }
    if (void* const ptr = cache.try_pop(bytes / heap_granule)) { return ptr; }
    return cache.take_run(bytes / heap_granule, is_shared());
  }

  /// As take_local(), and if nothing fits, again after recent frees have coalesced.
  [[nodiscard]] void* take(stream_cache& cache, std::size_t bytes) const
  {
    if (void* const ptr = take_local(cache, bytes)) { return ptr; }
    if (cache.coalesce_fenced()) {
      if (void* const ptr = take_local(cache, bytes)) { return ptr; }
    }
    if (cache.unfenced_bytes() < bytes || !fence(cache)) { return nullptr; }
    static_cast<void>(cache.coalesce_fenced());
    return take_local(cache, bytes);
  }

  /// Takes the best fit from all memory of the cache, coalesced as far as possible.
  [[nodiscard]] void* take_coalesced(stream_cache& cache, std::size_t bytes) const
  {
    if (!cache.has_unfenced() || fence(cache)) { cache.empty_stacks(); }
    return cache.take_good(bytes);
  }

  /// Puts a block into the cache. Returns false if there is no place.
  [[nodiscard]] bool put(stream_cache& cache, void* ptr, std::size_t bytes) const noexcept
  {
    if (bytes > small_block_limit) {
      return cache.try_add_recent(ptr, bytes) || (fence(cache) && cache.try_add_recent(ptr, bytes));
    }
    auto const granules = bytes / heap_granule;
    if (cache.try_push(ptr, granules)) { return true; }
    if (cache.try_add_stack(granules)) { return cache.try_push(ptr, granules); }
    if (!cache.has_fenced(granules) && !fence(cache)) { return false; }
    return cache.shorten_stack(granules, stack_shortening) && cache.try_push(ptr, granules);
  }

  /// Fences all frees of a cache, in a call that the program makes on the stream. If no event can be recorded, waits on the host. Returns
  /// false if the wait is impossible too, or if the handle names another stream now.
  bool fence(stream_cache& cache) const noexcept { return cache.is_current() && fence_current(cache); }

  bool fence_current(stream_cache& cache) const noexcept
  {
    if (cache.fence(cache.stream())) { return true; }
    if (!query_capture(cache.stream()).is_none() ||
        !waits_.try_wait_for(device_waits::set_of(cache.device()), device_waits::ask_locked())) {
      return false;
    }
    cache.all_fenced();
    return true;
  }

  // --- limits: read without the lock, set with it ---

  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_.load(std::memory_order_relaxed); }
  void set_block_bytes(std::size_t bytes) noexcept
  {
    block_bytes_.store(bytes, std::memory_order_relaxed);
    forget_no_run();
    set_limits();
  }

  /// Whether there is more than one cache.
  [[nodiscard]] bool is_shared() const noexcept
  {
    return large_.load(std::memory_order_relaxed) != range_set::no_limit;
  }

  /// Whether a block is large, so that it goes to a store, where it coalesces with neighbours of all streams; unless the cache keeps it.
  [[nodiscard]] bool is_large(std::size_t bytes) const noexcept
  {
    return bytes > large_.load(std::memory_order_relaxed);
  }

  /// Whether a block is so large that calls for it ask whether the stream captures, even if no capture is announced.
  [[nodiscard]] bool asks_for_captures_of(std::size_t bytes) const noexcept
  {
    return bytes > asks_above_.load(std::memory_order_relaxed);
  }

  /// Returns the bytes of large blocks that a cache may keep: none unless memory is plenty, and none in the only cache, which holds all.
  [[nodiscard]] std::size_t most_kept() const noexcept { return most_kept_.load(std::memory_order_relaxed); }

  /// Returns the bytes of large blocks that a cache may gather before it records one event for all: none unless memory is scarce, because
  /// caches serve most blocks then.
  [[nodiscard]] std::size_t most_gathered() const noexcept
  {
    bool const eager = eager_fences_left_.load(std::memory_order_relaxed) != 0;
    return eager ? 0 : most_gathered_.load(std::memory_order_relaxed);
  }

  /// Whether the cache holds more than its share, or a range that is large. Called by the owner.
  [[nodiscard]] bool has_to_flush(stream_cache const& cache) const noexcept
  {
    return flushes_all(cache) || has_too_many(cache) || has_large_range(cache);
  }

  /// Whether flush() moves all memory of a cache, that in its stacks too.
  [[nodiscard]] bool flushes_all(stream_cache const& cache) const noexcept
  {
    return cache.is_flushing() || has_too_much(cache);
  }

  /// Whether a cache holds more than its share. The share is smaller for a cache that frees more than it allocates, because it hardly
  /// needs the memory itself.
  [[nodiscard]] bool has_too_much(stream_cache const& cache) const noexcept
  {
    auto const& share = cache.live_bytes() < 0 ? share_of_consumer_ : share_;
    return cache.ranges().total_bytes() > share.load(std::memory_order_relaxed);
  }

  /// Whether a cache has so many ranges that searches of other threads would take too long.
  [[nodiscard]] bool has_too_many(stream_cache const& cache) const noexcept
  {
    return cache.ranges().count() > most_ranges_.load(std::memory_order_relaxed);
  }

  /// Decides for a request of `asker`, which may be null, whether free memory is scarce: from when the stores have less than 1/8 of all memory
  /// until they have more than 3/8. While it is scarce, blocks above 1/65536 of the pool, but at least 64 KiB and at most 256 KiB, go past
  /// caches, which gather them unless it is tight: from when the stores have less than 5/64 until they have 6/64. It is plenty from when the
  /// stores have 1/2 of all memory until they have less than 3/8. It is ample once live blocks, as far as noted, have had at most 3/16 of it
  /// in so many searches in a row that the program will hardly need more soon, until they have more than 1/4. Then only blocks above 1/64 of
  /// the pool, or half of a cache's share, go past caches.
  /// Cost  adds up at most 4 stores a call on average: if the heap has more, only each n-th call adds them up.
  void note_scarcity(stream_cache* asker) noexcept
  {
    ++searches_since_sum_;
    if (asker != nullptr) {
      searches_since_sum_ += asker->take_kept_hits();
      note_live(asker, 0);
    }
    if (auto const stores = shared_.stores().size(); stores > stores_a_call) {
      if (++calls_since_sum_ * stores_a_call < stores) { return; }
      calls_since_sum_ = 0;
    }
    auto const eighth  = block_bytes() / 8;
    auto const stored  = shared_.fenced_bytes();
    bool const scarce  = is_scarce_ ? stored <= most_eighths_if_scarce * eighth : stored < eighth && is_shared();
    bool const plenty  = stored >= (is_plenty_ ? most_eighths_if_scarce : eighths_of_plenty) * eighth;
    auto const little  = block_bytes() / 16 * (is_ample_ ? most_sixteenths_if_ample : sixteenths_before_ample);
    bool const enough  = noted_live_ + live_elsewhere_ <= static_cast<std::int64_t>(little);
    auto const more    = std::exchange(searches_since_sum_, 0);
    searches_if_ample_ = enough ? detail::min(searches_if_ample_ + more, searches_before_ample) : 0;
    bool const ample   = searches_if_ample_ == searches_before_ample;
    bool const tight =
      stored < block_bytes() / 64 * (is_tight_ ? sixty_fourths_if_not_tight : most_sixty_fourths_if_tight);
    if (scarce == is_scarce_ && plenty == is_plenty_ && ample == is_ample_ && tight == is_tight_) { return; }
    is_scarce_ = scarce;
    is_plenty_ = plenty;
    is_ample_  = ample;
    is_tight_  = tight;
    set_limits();
  }

  /// Makes each free get a fence of its own, until `eager_fences` were recorded. Called after the host had to wait for unfenced frees.
  void begin_eager_fences() noexcept
  {
    eager_fences_left_.store(eager_fences, std::memory_order_relaxed);
    set_limits();
  }

  /// Counts an event that a cache recorded in its turn. Owners of caches call it without the lock; lost counts do not matter.
  void count_eager_fence() noexcept
  {
    auto const left = eager_fences_left_.load(std::memory_order_relaxed);
    if (left == 0) { return; }
    eager_fences_left_.store(left - 1, std::memory_order_relaxed);
    if (left == 1) {
      auto const bytes  = block_bytes();
      bool const shared = is_shared();
      limits_.most_unfenced_bytes.store(most_unfenced(bytes, shared), std::memory_order_relaxed);
      limits_.most_unfenced_of_young.store(most_unfenced_of_young(bytes, shared), std::memory_order_relaxed);
    }
  }

  [[nodiscard]] bool has_plenty() const noexcept { return is_plenty_; }

  // --- all caches; with the lock ---

  [[nodiscard]] std::size_t count() const noexcept { return caches_.size(); }
  [[nodiscard]] auto begin() const noexcept { return caches_.begin(); }
  [[nodiscard]] auto end() const noexcept { return caches_.end(); }

  /// Some caches in a row, or all; after the last in the list comes the first.
  struct turn {
    std::size_t first;
    std::size_t count;

    [[nodiscard]] std::size_t place(std::size_t i, std::size_t caches) const noexcept
    {
      return first + i < caches ? first + i : first + i - caches;
    }
  };

  /// Whether there are so many caches that searches must not move the blocks of all.
  [[nodiscard]] bool are_many() const noexcept { return count() > 2 * most_asked; }

  /// Returns all caches. If they are many, the first is the one that served another thread last.
  [[nodiscard]] turn all() const noexcept { return {are_many() && next_asked_ < count() ? next_asked_ : 0, count()}; }

  /// If there are many caches, returns the first most_asked ones of all(); else an empty turn.
  [[nodiscard]] turn first_of_many() const noexcept { return {all().first, are_many() ? most_asked : 0}; }

  /// A scope in which the owners of all caches, or of some, are locked out, except the owner of `own`. If all are closed already (S4), they
  /// stay closed afterwards.
  class closed {
   public:
    explicit closed(basic_cache_set const& caches, stream_cache* own = nullptr) noexcept
      : closed{caches, caches.all(), own}
    {}
    closed(basic_cache_set const& caches, turn which, stream_cache* own) noexcept
      : caches_{caches.caches_}, which_{which}, own_{own}, stays_{caches.no_run_of_ != range_set::no_limit}
    {
      if (stays_) { return; }
      bool any = false;
      for_each_other([&](biased_lock& lock) {
        lock.begin_keeping_out();
        any = true;
      });
      if (!any) { return; }
      process_barrier::pass_all_threads();
      for_each_other([](biased_lock& lock) { lock.wait_until_left(); });
    }
    ~closed()
    {
      if (stays_) { return; }
      for_each_other([](biased_lock& lock) { lock.end_keeping_out(); });
    }
    closed(closed const&)            = delete;
    closed& operator=(closed const&) = delete;

    /// Leaves the caches closed, also the one of the calling thread. reopen() opens them.
    void stay() noexcept
    {
      RMM_ASSERT(which_.count == caches_.size());
      if (own_ != nullptr) { own_->lock().begin_keeping_out(); }  // its owner, this thread, is not inside
      stays_ = true;
    }

   private:
    template <class Visit>
    void for_each_other(Visit&& visit) const noexcept
    {
      RMM_ASSERT(which_.count <= caches_.size());
      for (std::size_t i = 0; i != which_.count; ++i) {
        auto const& cache = caches_[which_.place(i, caches_.size())];
        if (cache.get() != own_) { visit(cache->lock()); }
      }
    }

    std::vector<detail::owned_ptr<stream_cache>> const& caches_;
    turn which_;
    stream_cache* own_;
    bool stays_;
  };

  /// Notes that a search found no run of neighbours of so many bytes, with or without events. The caches stay closed until their owners
  /// come: so the heap knows whether anything was freed since.
  void note_no_run_of(std::size_t bytes, closed& scope) noexcept
  {
    no_run_of_ = detail::min(no_run_of_, bytes);
    scope.stay();
  }

  /// Whether all caches are closed since a search, until their owners come (S4).
  [[nodiscard]] bool are_closed() const noexcept { return no_run_of_ != range_set::no_limit; }

  /// Whether no run of neighbours is as large, as far as a search has found and nothing has changed since.
  [[nodiscard]] bool has_no_run_of(std::size_t bytes) const noexcept { return no_run_of_ <= bytes; }

  /// Returns the least size of which no run is known to exist.
  [[nodiscard]] std::size_t no_run_of() const noexcept { return no_run_of_; }

  /// Opens a cache, if there is one, that may have been closed since a search. Its owner calls it.
  void reopen(stream_cache* cache) noexcept
  {
    if (cache == nullptr) { return; }
    forget_no_run();
    cache->lock().end_keeping_out();
  }

  /// Moves a range of at least `bytes` bytes, if possible a larger one, from a store to a cache. The only cache gets all ranges, up to
  /// most_refilled, if note_refill() lets it. Returns false if no range is large enough, or host memory runs out.
  [[nodiscard]] bool refill(stream_cache& to, free_store& from, std::size_t bytes) noexcept
  {
    if (from.ranges().total_bytes() < bytes || !to.try_make_room(1)) { return false; }
    RMM_ASSERT(bytes != 0 && bytes % heap_granule == 0);
    [[maybe_unused]] auto const all = from.ranges().total_bytes() + to.ranges().total_bytes();
    if (note_refill(to) && from.ranges().count() <= most_refilled && to.try_make_room(from.ranges().count())) {
      from.ranges().move_to(to.ranges(), limits_.seams(), most_refilled, 0);
      RMM_ASSERT(from.ranges().empty() && to.ranges().total_bytes() == all);
      return true;
    }
    auto size = bytes;
    taken_range taken{};
    if (bytes <= refill_bytes_ / 2) {
      // Takes a small range whole, unless memory is plenty. Otherwise cuts from a high range.
      auto const fit         = is_plenty_ ? 0 : from.ranges().good_fit(bytes);
      bool const takes_whole = fit != 0 && fit <= refill_bytes_;
      size                   = takes_whole ? fit : refill_bytes_;
      taken                  = takes_whole ? from.ranges().take_good(size) : from.ranges().take_highest(size);
      if (!taken) { size = bytes; }
    }
    if (!taken) { taken = from.ranges().take_good(size); }
    if (!taken) { return false; }
    to.add_range({taken.begin, size});
    RMM_ASSERT(to.ranges().has_range_of(bytes) && from.ranges().total_bytes() + to.ranges().total_bytes() == all);
    return true;
  }

  /// As refill(), from the store of the cache's stream, which may be null. Records the cache's event first, so that it covers the memory.
  [[nodiscard]] bool refill_from_own(stream_cache& to, free_store* own, std::size_t bytes) noexcept
  {
    return own != nullptr && own->ranges().total_bytes() >= bytes && fence(to) && refill(to, *own, bytes);
  }

  /// Moves the large blocks that a cache keeps to the store of its stream, behind one new fence. Returns false, and moves none, if the cache
  /// keeps none, or if the fence or host memory for it cannot be had. The owner calls it, in a call that the program makes on the stream;
  /// or another thread, while the cache is closed and its stream cannot end.
  bool give_kept(stream_cache& cache, cudaStream_t stream, bool is_owner) noexcept
  {
    if (cache.kept_count() == 0) { return false; }
    auto* const store = shared_.find_or_make(cache.identity(), cache.device());
    if (store == nullptr || !store->try_make_room(cache.kept_count()) ||
        !shared_.try_add_fence(*store, stream, is_owner ? &cache : nullptr)) {
      return false;
    }
    give_kept_to(*store, cache);
    return true;
  }

  /// Moves the kept blocks to a store that has room for them, and whose newest fence covers them.
  void give_kept_to(free_store& store, stream_cache& cache) noexcept
  {
    cache.give_kept([&](address_range range) {
      store.ranges().insert(range, store.newest(), limits_.seams());
      cache.return_claim();
    });
    RMM_ASSERT(cache.kept_count() == 0 && store.has_fences());
  }

  /// Moves memory that a cache holds beyond its limits to its stream's store. A cache beyond its share loses all its ranges, small ones
  /// too, because they would keep their neighbours apart; many ranges move in several calls. Polls the stores first, so that they keep
  /// hardly any memory that others could use without a wait. The owner calls it, in a call that the
  /// program makes on the stream, after fence().
  void flush(stream_cache& cache) noexcept
  {
    auto& ranges = cache.ranges();
    note_live(&cache, 0);
    if (cache.is_flushing() || has_too_many(cache) || shared_.is_behind()) { shared_.poll(polls_in_passing); }
    if (!has_to_flush(cache)) { return; }
    cache.set_flushing(flushes_all(cache));
    if (cache.is_flushing()) { cache.empty_stacks(); }
    auto* const store               = shared_.find_or_make(cache.identity(), cache.device());
    auto const most                 = detail::min(ranges.count(), most_moved);
    [[maybe_unused]] auto const all = ranges.total_bytes() + (store != nullptr ? store->ranges().total_bytes() : 0);
    if (store == nullptr || !store->try_make_room(most) || !shared_.try_add_fence(*store, cache.stream(), &cache)) {
      return;
    }
    if (ranges.count() > most && store->ranges().count() <= most && store->try_take_all_of(ranges, limits_.seams())) {
      cache.set_flushing(false);
    } else if (cache.is_flushing()) {
      cache.set_flushing(!ranges.move_to(store->ranges(), limits_.seams(), most, store->newest()));
    } else if (has_too_many(cache)) {
      auto const some = most_moved / 2;  // while poll() moves more to the idle store
      ranges.move_to(store->ranges(), limits_.seams(), detail::min(some, ranges.count() / 2), store->newest());
    } else {
      for (auto left = most; left != 0 && has_large_range(cache); --left) {
        store->ranges().insert(ranges.take_up_to(range_set::no_limit).range, store->newest(), limits_.seams());
      }
    }
    RMM_ASSERT(ranges.total_bytes() + store->ranges().total_bytes() == all);
    RMM_ASSERT(!ranges.empty() || !has_to_flush(cache));
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_cache_set>(store->ranges().count()) || store->check_invariants());
  }

  /// Flushes a cache whose owner searches for memory, unless no event can be recorded. A thread that only allocates would otherwise keep
  /// what its cache had while it was the only one.
  void flush_beyond_share(stream_cache& cache) noexcept
  {
    if (has_to_flush(cache) && cache.is_current() && cache.fence(cache.stream())) { flush(cache); }
  }

  /// Moves fenced blocks from the stacks of the caches to their ranges, where they coalesce. Leaves out caches that would then have too many
  /// ranges: more ranges need more host memory, which takes longer than a search. Requires that all caches but the calling thread's are
  /// closed.
  void empty_stacks() noexcept
  {
    auto const most = detail::min(most_ranges_.load(std::memory_order_relaxed), most_refilled);
    for (auto const& cache : caches_) {
      if (caches_.size() == 1 || cache->free_pieces().first <= most) { cache->empty_stacks(); }
    }
  }

  /// Moves idle memory from caches to the idle store, where neighbours coalesce: up to most_moved ranges. Returns whether that was all.
  /// Requires that all caches but the calling thread's are closed.
  bool collect_idle() noexcept
  {
    auto moves = most_moved;
    for (auto const& cache : caches_) {
      if (moves == 0) { break; }
      auto& ranges = cache->ranges();
      if (cache->free_pieces().first > most_ranges_.load(std::memory_order_relaxed) || !cache->event().is_reached()) {
        continue;
      }
      cache->empty_stacks();
      auto const count = detail::min(ranges.count(), moves);
      if (!shared_.idle().try_make_room(count)) { continue; }
      // The rest of the last refill stays, so that the next blocks of the cache lie beside the last ones.
      auto const rest = !ranges.has_range_of(refill_bytes_) ? ranges.take_up_to(range_set::no_limit) : fenced_range{};
      ranges.move_to(shared_.idle().ranges(), limits_.seams(), count);
      if (rest) { cache->add_range(rest.range); }
      RMM_ASSERT(count <= moves && ranges.count() <= most_ranges_.load(std::memory_order_relaxed));
      moves -= count;
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_cache_set>(shared_.idle().ranges().count()) || is_listing_right());
    return moves != 0;
  }

  /// Returns the devices whose work may use the unfenced frees of a cache. These are all devices if the stream may have ended: a new stream
  /// of another device can have its handle, and frees do not ask.
  [[nodiscard]] std::uint64_t devices_of_unfenced(stream_cache const& cache) const noexcept
  {
    bool const is_certain = is_default_stream(cache.stream()) || (cache.is_lasting() && !cache.has_ended());
    return is_certain ? device_waits::set_of(cache.device()) : device_waits::every_device;
  }

  /// Whether the cache's handle is sure to name its stream while the lock of the known streams is held.
  [[nodiscard]] static bool is_kept_alive(stream_cache const& cache, pointer_bag const& known) noexcept
  {
    return is_legacy_stream(cache.stream()) ||
           (cache.is_lasting() && !cache.has_ended() && known.contains(cache.stream()));
  }

  /// Notes that the stream of a cache has ended. The owner of the cache drops it later.
  void note_end(stream_cache& cache) noexcept
  {
    RMM_ASSERT(!cache.has_ended());
    cache.set_ended();
    ended_.fetch_add(1, std::memory_order_relaxed);
    RMM_ASSERT_EXPENSIVE(is_listing_right());
  }

  /// Takes `bytes` bytes from a block or range of another cache, after a wait if the cache is for another stream. Returns nothing if none
  /// of the asked caches has one that is large enough and can be waited for. Requires that they are closed.
  [[nodiscard]] taken_range take_from_other(std::size_t bytes, turn which, asker const& who) noexcept
  {
    capture_exemption const exemption;
    for (std::size_t i = 0; i != which.count; ++i) {
      next_asked_       = which.place(i, caches_.size());
      auto const& cache = caches_[next_asked_];
      if (cache.get() == who.cache) { continue; }
      noted_live_ += cache->note_live();
      bool const same_stream = who.is_of_stream(cache->identity());
      if (same_stream) { static_cast<void>(give_kept(*cache, who.stream, false)); }  // for step 6 of the search
      if (same_stream && cache->has_unfenced()) { static_cast<void>(cache->fence(who.stream)); }
      auto& ranges            = cache->ranges();
      taken_range const taken = take_from(*cache, bytes);  // not `auto`: nvcc 13 would misread {taken.begin, bytes}
      if (!taken) { continue; }
      bool const reached = cache->event().is_reached();
      if (!same_stream && !reached && !(who.may_wait && cache->event().try_make_wait(who.stream))) {
        ranges.insert({taken.begin, bytes}, 0, limits_.seams());
        continue;
      }
      auto const most = detail::min(ranges.count(), most_moved);
      if (reached && has_too_much(*cache) && shared_.idle().try_make_room(most)) {
        // The cache holds idle memory beyond its share. In the idle store, the next call finds it sooner.
        ranges.move_to(shared_.idle().ranges(), limits_.seams(), most);
      }
      ++taken_from_others_;
      RMM_ASSERT(same_stream || reached || who.may_wait);  // H2 of the heap
      return taken;
    }
    return {};
  }

  /// Returns how often take_from_other() took memory.
  [[nodiscard]] std::uint64_t taken_from_others() const noexcept { return taken_from_others_; }

  /// Moves the memory of a cache to the shared free lists, and returns the cache, to be destroyed without the lock. If host memory runs
  /// out, returns null: the cache stays without an owner, and other threads can still take from it. `is_alive`: whether the stream is
  /// certain not to end during the call. `is_reached`: whether the cache's event is known to be reached.
  [[nodiscard]] detail::owned_ptr<stream_cache> retire(stream_cache& cache, bool is_alive, bool is_reached) noexcept
  {
    shared_.poll(is_plenty_ ? 1 : polls_in_passing);
    bool is_newest = false;  // whether the cache's event is newer than those of its stream's store
    if (is_alive) {
      device_scope const on_device{cache.device()};  // the handle of a default stream names that of the current one
      static_cast<void>(give_kept(cache, cache.stream(), false));
      is_newest  = cache.fence(cache.stream());
      is_reached = cache.event().is_reached();
    }
    cache.empty_stacks();
    if (cache.has_fenced_blocks() || !try_give_ranges(cache, is_newest, is_reached)) { return {}; }
    // Only unfenced blocks are left. If the stream is still alive, its next call can fence them.
    bool const may_live = !cache.has_ended() && !is_default_stream(cache.stream());
    bool const any_left = cache.has_unfenced() || cache.keeps_unfenced();
    auto* const store   = may_live && any_left ? shared_.find_or_make(cache.identity(), cache.device()) : nullptr;
    cache.for_each_free([&](address_range range, bool) {
      if (store == nullptr || !store->try_add_unfenced(range)) { shared_.lose(range, devices_of_unfenced(cache)); }
    });
    live_elsewhere_ += cache.live_bytes();
    noted_live_ -= cache.noted_live();
    cache.return_spare_claims();
    if (cache.has_ended()) { ended_.fetch_sub(1, std::memory_order_relaxed); }
    auto const at = cache.place();
    RMM_ASSERT(at < caches_.size() && caches_[at].get() == &cache);
    std::swap(caches_[at], caches_.back());
    caches_[at]->set_place(at);
    auto retired = std::move(caches_.back());
    caches_.pop_back();
    if (is_reached) { shared_.keep_spare_event(retired->take_event()); }
    set_limits();
    RMM_ASSERT_EXPENSIVE(is_listing_right());
    return retired;
  }

  void clear() noexcept { caches_.clear(); }

  // --- live blocks, of a cache or, if `cache` is null, of none ---

  /// Takes the claim of a block that is about to be cut. Returns false if host memory runs out.
  [[nodiscard]] bool try_claim(stream_cache* cache) noexcept
  {
    return cache != nullptr ? cache->try_claim() : limits_.reserve.try_claim(1);
  }

  void return_claim(stream_cache* cache) noexcept
  {
    if (cache != nullptr) {
      cache->return_claim();
    } else {
      limits_.reserve.release(1);
    }
  }

  void note_live(stream_cache* cache, std::int64_t bytes) noexcept
  {
    if (bytes < 0) { forget_no_run(); }
    if (cache != nullptr) {
      cache->add_live(bytes);
      noted_live_ += cache->note_live();
    } else {
      live_elsewhere_ += bytes;
    }
  }

  /// Returns the allocated bytes. Requires that all caches are closed.
  [[nodiscard]] std::int64_t live_bytes() const noexcept
  {
    auto sum = live_elsewhere_;
    for (auto const& cache : caches_) { sum += cache->live_bytes(); }
    return sum;
  }

  /// Whether S1 to S3 and the invariants of all caches hold. Requires that all caches are closed; O(free blocks in them).
  [[nodiscard]] bool check_invariants() const noexcept
  {
    return is_listing_right() &&
           detail::all_of(caches_.begin(), caches_.end(), [](auto const& cache) { return cache->check_invariants(); });
  }

 private:
  static constexpr std::size_t most_moved                  = shared_free_lists::most_moved;
  static constexpr std::size_t most_refilled               = 1024;  // where there is one cache
  static constexpr std::size_t refills_of_short_threads    = 64;    // that a cache makes before it takes all
  static constexpr std::size_t stack_shortening            = 16;
  static constexpr std::size_t polls_in_passing            = 4;   // with each cache that may leave an event
  static constexpr std::size_t most_asked                  = 32;  // caches, before all are closed
  static constexpr std::size_t most_thread_caches          = 4096;
  static constexpr unsigned eager_fences                   = 4096;
  static constexpr std::size_t largest_refill              = std::size_t{8} << 20;
  static constexpr std::size_t most_unfenced_alone         = std::size_t{16} << 20;
  static constexpr std::size_t least_large                 = std::size_t{1} << 20;
  static constexpr std::size_t most_large_if_scarce        = std::size_t{256} << 10;
  static constexpr std::size_t most_eighths_if_scarce      = 3;
  static constexpr std::size_t eighths_of_plenty           = 4;  // until there are fewer than most_eighths_if_scarce
  static constexpr std::size_t searches_before_ample       = 1024;
  static constexpr std::size_t sixteenths_before_ample     = 3;
  static constexpr std::size_t most_sixteenths_if_ample    = 4;
  static constexpr std::size_t sixty_fourths_if_not_tight  = 6;
  static constexpr std::size_t most_sixty_fourths_if_tight = 5;
  static constexpr std::size_t stores_a_call               = 4;  // whose bytes are added up
  static constexpr std::size_t ranges_in_all               = 16384;
  static constexpr std::size_t ranges_in_each              = 2048;
  static constexpr std::size_t most_ranges_in_all          = 65536;  // where that leaves each cache least_ranges
  static constexpr std::size_t least_ranges                = 256;

  /// Whether S1 and S3 hold, and what S2 says without numbers; O(caches).
  [[nodiscard]] bool is_listing_right() const noexcept
  {
    std::size_t ended{};
    std::int64_t noted_live{};
    for (std::size_t at = 0; at != caches_.size(); ++at) {
      if (caches_[at]->place() != at) { return false; }  // S1
      ended += caches_[at]->has_ended() ? 1U : 0U;
      noted_live += caches_[at]->noted_live();
    }
    auto const most_ranges = most_ranges_.load(std::memory_order_relaxed);
    return ended == ended_.load(std::memory_order_relaxed) && noted_live == noted_live_ &&                    // S3
           is_shared() == (caches_.size() > 1) && is_shared() == (most_ranges != range_set::no_limit) &&      // S2
           refill_bytes_ <= block_bytes() / 1024 && share_.load(std::memory_order_relaxed) <= block_bytes();  // S2
  }

  /// Retires a cache whose thread ends. That thread calls it, with the lock of the known streams. `has_own_stream`: whether the thread's
  /// default stream still exists.
  RMM_COLD static void retire_at_end(basic_cache_set& caches,
                                     stream_cache& cache,
                                     pointer_bag const& known,
                                     bool has_own_stream) noexcept
  {
    caches.retire_and_destroy(cache,
                              is_kept_alive(cache, known) || (has_own_stream && is_per_thread_stream(cache.stream())));
  }

  /// Does without the lock what needs none: while many threads end, each call of the driver takes microseconds.
  void retire_and_destroy(stream_cache& cache, bool is_alive) noexcept
  {
    context_scope const with_context{waits_.home()};
    capture_exemption const exemption;
    detail::owned_ptr<stream_cache> retired;  // outlives the lock
    bool is_reached           = false;
    bool const can_be_fenced  = is_alive || is_legacy_stream(cache.stream());
    auto const unfenced_bytes = [&] { return cache.unfenced_bytes() + cache.unfenced_kept().second; };
    std::size_t unfenced{};
    if (!can_be_fenced) {
      cache_entered const inside{cache};
      if (inside) { cache.empty_stacks(); }
      is_reached = inside && cache.event().is_reached();
      unfenced   = inside ? unfenced_bytes() : 0;
    }
    detail::spinning_mutex_lock const lock{mutex_};
    is_reached = is_reached && unfenced_bytes() == unfenced;  // else another thread has recorded the event since
    retired    = retire(cache, can_be_fenced, is_reached);
  }

  /// Counts a refill if the cache is the only one, and returns whether it may take all. Threads that live for a few requests are the only
  /// one in turn, and all memory would move with each. A cache that lives longer has to take all: what lies in a store would never
  /// coalesce with its own ranges.
  [[nodiscard]] bool note_refill(stream_cache& cache) const noexcept
  {
    static_assert(refills_of_short_threads <= stream_cache::most_refills_counted);
    return caches_.size() == 1 && cache.count_refill() >= refills_before_all_;
  }

  /// Ends ample memory when a second cache comes: the first one has not noted what is live.
  void end_ample() noexcept
  {
    is_ample_          = false;
    searches_if_ample_ = 0;
  }

  /// Notes that memory has come, or that a cache is open. Seldom writes: each call of another thread would miss the cache line.
  void forget_no_run() noexcept
  {
    if (are_closed()) { no_run_of_ = range_set::no_limit; }
  }

  /// Takes memory of a closed cache that may be used after its event, from its ranges if they have enough.
  [[nodiscard]] taken_range take_from(stream_cache& cache, std::size_t bytes) const noexcept
  {
    auto& ranges = cache.ranges();
    if (!are_many()) { static_cast<void>(cache.coalesce_fenced()); }
    auto taken = ranges.take_good(bytes);
    if (!taken && are_many() && cache.coalesce_some_of(bytes)) { taken = ranges.take_good(bytes); }
    if (!taken && cache.kept_bytes() >= bytes && cache.coalesce_kept()) { taken = ranges.take_good(bytes); }
    return taken;
  }

  [[nodiscard]] RMM_COLD stream_cache* make(thread_caches& mine, cudaStream_t stream) noexcept
  {
    drop_ended(mine);
    stream_cache::stream_name const name{stream, key_of(stream), stream_identity(stream), device_of_stream(stream)};
    if (name.identity == 0) { return nullptr; }
    static std::atomic<std::uint64_t> const never_ends{0};
    bool const is_known = !is_default_stream(stream) && streams_.is_known(stream);
    auto const* ends    = is_default_stream(stream) ? &never_ends : is_known ? &streams_.ends() : nullptr;
    try {
      if (mine.has_many(most_thread_caches)) {
        if (auto* const another = mine.next_of(number_)) { drop(mine, *another); }
      }
      auto made = detail::make_owned<stream_cache>(
        name, ends, is_known || is_legacy_stream(stream), limits_, take_spare_event(name.device));
      auto* const cache = made.get();
      mine.add({number_, name.key, cache, link_});
      scope_guard undo{[&]() noexcept { mine.forget(number_, name.key); }};
      if (is_per_thread_stream(stream)) { thread_caches::retire_before_own_stream_ends(); }
      detail::spinning_mutex_lock const lock{mutex_};
      caches_.push_back(std::move(made));
      forget_no_run();
      cache->set_place(caches_.size() - 1);
      if (caches_.size() == 2) {
        end_ample();
        refills_before_all_ = refills_of_short_threads;
      }
      set_limits();
      undo.dismiss();
      RMM_ASSERT_EXPENSIVE(is_listing_right());
      return cache;
    } catch (std::exception const&) {
      return nullptr;
    }
  }

  [[nodiscard]] owned_event take_spare_event(int device) noexcept
  {
    detail::spinning_mutex_lock const lock{mutex_};
    return shared_.take_spare_event_if_any(device);
  }

  RMM_COLD void drop(thread_caches& mine, stream_cache& cache) noexcept
  {
    mine.forget(number_, cache.key());
    retire_and_destroy(cache, false);
  }

  /// Drops the calling thread's caches of streams that have ended.
  RMM_COLD void drop_ended(thread_caches& mine) noexcept
  {
    if (ended_.load(std::memory_order_relaxed) == 0) { return; }
    std::array<stream_cache*, 64> ended{};
    std::size_t count{};
    do {
      count = 0;
      mine.for_each([&](auto const& each) {
        if (each.heap == number_ && each.cache->has_ended() && count != ended.size()) { ended[count++] = each.cache; }
      });
      for (std::size_t i = 0; i != count; ++i) { drop(mine, *ended[i]); }
    } while (count == ended.size());
  }

  /// Moves all ranges of a cache to the idle store if its event is reached; otherwise to a store of its stream for which the event can be
  /// the next fence (F3). Returns false, and moves nothing, if host memory runs out.
  [[nodiscard]] bool try_give_ranges(stream_cache& cache, bool is_newest, bool reached) noexcept
  {
    auto& ranges = cache.ranges();
    if (ranges.empty()) { return true; }
    auto* store = &shared_.idle();
    if (!reached) {
      store = shared_.find_or_make(cache.identity(), cache.device());
      if (!is_newest && store != nullptr && store->has_fences()) {
        store = shared_.try_add(cache.identity(), cache.device());
      }
    }
    if (store == nullptr) { return false; }
    bool const is_larger = ranges.count() > store->ranges().count();
    bool const has_room =
      is_larger ? ranges.try_reserve(ranges.count() + store->ranges().count()) : store->try_make_room(ranges.count());
    if (!has_room) { return false; }  // checked before the store takes the event, without which no ranges can be reused
    if (!reached) {
      auto event = cache.take_event();
      if (!store->try_add_fence(event)) {
        cache.give_event_back(std::move(event));
        return false;
      }
    }
    if (is_larger) { return store->try_take_all_of(ranges, limits_.seams()); }
    ranges.move_to(store->ranges(), limits_.seams(), range_set::no_limit, store->newest());
    return true;
  }

  /// Whether a cache has a range so large that others need it. Not asked of caches that free what others allocated: they flush all ranges
  /// at a time.
  [[nodiscard]] bool has_large_range(stream_cache const& cache) const noexcept
  {
    return is_shared() && cache.live_bytes() >= 0 &&
           cache.ranges().has_range_of(4 * large_.load(std::memory_order_relaxed));
  }

  /// Returns the bytes of frees that a cache may leave without a fence.
  [[nodiscard]] static std::size_t most_unfenced(std::size_t bytes, bool shared) noexcept
  {
    auto const alone = shared ? 0 : detail::min(bytes / 32, most_unfenced_alone);  // no other cache needs the memory
    return detail::max(bytes / 128, alone);
  }

  /// As most_unfenced(), for a stream that may end soon, without notice. Then these frees wait for a synchronisation.
  [[nodiscard]] static std::size_t most_unfenced_of_young(std::size_t bytes, bool shared) noexcept
  {
    return detail::min(most_unfenced(bytes, shared), detail::max(bytes / 1024, least_large));
  }

  /// In how many ranges each of so many caches may keep its memory. Each search looks at all of them.
  [[nodiscard]] static std::size_t most_ranges(std::size_t caches) noexcept
  {
    return detail::max(ranges_in_all / caches,
                       detail::clamp(most_ranges_in_all / caches, least_ranges, ranges_in_each));
  }

  void set_limits() noexcept
  {
    auto const bytes  = block_bytes();
    bool const shared = caches_.size() > 1;
    bool const scarce = shared && is_scarce_;
    bool const eager  = eager_fences_left_.load(std::memory_order_relaxed) != 0;
    auto const large_if_scarce =
      detail::clamp(align_down(bytes / 65536, heap_granule), small_block_limit, most_large_if_scarce);
    auto const share          = shared ? bytes / (4 * caches_.size()) : bytes;
    auto const usual          = detail::max(bytes / 1024, least_large);
    auto const large_if_ample = detail::max(detail::min(bytes / 64, share / 2), usual);
    auto const large          = scarce ? large_if_scarce : is_ample_ ? large_if_ample : usual;
    asks_above_.store(shared ? detail::min(large, usual) : range_set::no_limit, std::memory_order_relaxed);
    // With many caches, blocks that threads hand round have no free neighbours in their cache. As ranges they would need much host memory.
    limits_.scarce_bytes.store(shared ? 0 : bytes / 2, std::memory_order_relaxed);
    limits_.most_unfenced_bytes.store(eager ? 0 : most_unfenced(bytes, shared), std::memory_order_relaxed);
    limits_.most_unfenced_of_young.store(eager ? 0 : most_unfenced_of_young(bytes, shared), std::memory_order_relaxed);
    limits_.most_unused_stores = 8 + caches_.size();
    limits_.most_run_bytes.store(bytes / 1024, std::memory_order_relaxed);
    // Smaller than the ranges that has_large_range() finds, so that a refill is not flushed at once.
    refill_bytes_ = detail::min(align_down(bytes / 1024, heap_granule), scarce ? 2 * large_if_scarce : largest_refill);
    share_.store(share, std::memory_order_relaxed);
    share_of_consumer_.store(shared ? bytes / 64 : bytes, std::memory_order_relaxed);
    most_ranges_.store(shared ? most_ranges(caches_.size()) : range_set::no_limit, std::memory_order_relaxed);
    auto const kept = shared && is_plenty_ ? detail::min(bytes / 256, bytes / (8 * caches_.size())) : 0;
    most_kept_.store(kept, std::memory_order_relaxed);
    auto const gathered = scarce && !is_tight_ ? detail::min(bytes / 1024, bytes / (128 * caches_.size())) : 0;
    most_gathered_.store(gathered, std::memory_order_relaxed);
    large_.store(shared ? large : range_set::no_limit, std::memory_order_relaxed);
    RMM_ASSERT(refill_bytes_ % heap_granule == 0 && refill_bytes_ <= largest_refill);
    RMM_ASSERT(shared || (share_.load(std::memory_order_relaxed) == bytes && !is_large(bytes)));
  }

  // Read by all threads, hardly ever written; what each call reads comes first.
  std::uint64_t const number_;
  std::atomic<std::size_t> large_{range_set::no_limit};  // larger blocks go past caches
  slow_path const& slow_;
  std::atomic<std::size_t> share_{0};  // what a cache may keep
  std::atomic<std::size_t> share_of_consumer_{0};
  std::atomic<std::size_t> most_ranges_{range_set::no_limit};  // ... and in how many ranges
  std::atomic<std::size_t> asks_above_{range_set::no_limit};   // bytes of a block
  std::atomic<std::size_t> most_kept_{0};                      // bytes of large blocks that a cache may keep
  std::atomic<std::size_t> most_gathered_{0};                  // bytes of large blocks without an event
  std::atomic<unsigned> eager_fences_left_{0};                 // until then each free on a stream is fenced
  detail::spinning_mutex& mutex_;
  heap_limits& limits_;
  shared_free_lists& shared_;
  device_waits const& waits_;
  stream_lifetimes& streams_{known_streams()};
  detail::counted_ptr<heap_link> link_;
  std::atomic<std::size_t> block_bytes_{0};
  std::atomic<std::size_t> ended_{0};

  // Guarded by the lock.
  alignas(64) std::vector<detail::owned_ptr<stream_cache>> caches_;
  std::size_t refill_bytes_{};
  std::size_t refills_before_all_{};  // 0 until there were several caches
  bool is_scarce_{false};
  bool is_plenty_{false};
  bool is_tight_{false};
  bool is_ample_{false};
  std::int64_t noted_live_{};  // of all caches, as it was when their owners last had the lock, or others took from them
  std::size_t searches_since_sum_{};
  std::size_t searches_if_ample_{};  // in a row
  std::size_t calls_since_sum_{};
  std::uint64_t taken_from_others_{};
  std::size_t no_run_of_{range_set::no_limit};  // S4
  std::size_t next_asked_{};                    // the place of the cache that take_from_other() looked at last
  std::int64_t live_elsewhere_{};               // of blocks that went through no cache, or through one that has retired
};

using cache_set = basic_cache_set<void>;
RMM_COMPILED_ONCE(basic_cache_set<void>);

}  // namespace detail
}  // namespace RMM_NAMESPACE
