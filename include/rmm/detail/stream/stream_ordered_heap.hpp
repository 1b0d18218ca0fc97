// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/mutex.hpp>
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
#include <rmm/detail/heap/block_map.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/free_sets.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/graph_arena.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/detail/stream/memory_search.hpp>
#include <rmm/detail/stream/piece_list.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/slow_path.hpp>
#include <rmm/detail/stream/stream_cache.hpp>
#include <rmm/detail/stream/thread_caches.hpp>
#include <rmm/heap_figures.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Hands out parts of upstream blocks, so that memory freed on one stream reaches another only in the order of their work.
///
/// Each thread has a cache for each stream that it uses (stream_cache.hpp), which it enters with plain stores and no CUDA call. All
/// other free memory lies in stores (free_store.hpp), under a lock: one store for each stream, and the idle store for memory that no
/// work can use any more. The heap has the lock and the short paths, and decides what a call may do: whether its stream captures, which
/// context it needs, and whether the process made the heap. memory_search.hpp finds memory for a request that the cache does not serve.
/// free_sets.hpp has sums, fences and waits for all free memory. graph_arena.hpp has the memory of CUDA graphs.
///
/// Invariants:
///  H1  sum(free) + sum(allocated) == sum(blocks), each rounded down to granules; no two free ranges overlap
///  H2  memory that stream A freed reaches another stream only in one of three ways: behind a wait for an event that A recorded after
///      the free; after such an event was reached; or after A's device was synchronised after the free
///  H3  a stream's handle is used only in calls that the program makes with it, while rmm::cuda_stream ends it, while the thread of a
///      per-thread default stream ends, and while the lock of the known streams keeps it from ending. The legacy default stream never
///      ends
///  H4  deallocate() needs no host memory: each allocated block has a claim of the reserve
///  H5  a stream that captures records no event and waits for none. What a capture allocates or frees belongs to the graph_arena, and
///      no other work gets it while the graph may run
///
/// Streams of several devices may use the memory. The device of a stream is looked up when its cache is made. Events and waits are made
/// for that device, whatever device is current.
///
/// Thread-safe. The order of locks: recovery_ladder; known streams or announced captures; heap_link or graph_arena; heap; reserve. Events
/// are recorded and waited for under the heap's lock or inside a cache, because the set of free blocks and the event that covers them
/// change together; except for the event of one large free (free_to_store()), which nobody else sees before the block. What run_locked()
/// runs with the lock may run in another thread that has it, while the caller waits outside its caches.
///
/// A template only so that translation units that make no heap do not compile its members.
template <class Unused>
class basic_stream_ordered_heap {
 public:
  /// The largest request: rounding a larger one up would wrap.
  static constexpr std::size_t largest_request = max_value<std::size_t> - (heap_granule - 1);

  /// `home`: the device that the memory belongs to; the current one if it is negative. Throws std::bad_alloc.
  explicit basic_stream_ordered_heap(int home = -1);
  basic_stream_ordered_heap(basic_stream_ordered_heap const&)            = delete;
  basic_stream_ordered_heap& operator=(basic_stream_ordered_heap const&) = delete;

  ~basic_stream_ordered_heap();

  // --- allocating ---

  /// Takes `bytes` bytes, at least 1, that `stream` may use at once. Returns null if no free memory is large enough, coalesced as far as
  /// possible. Throws std::bad_alloc if host memory runs out, and logic_error if the stream is found to be in an unannounced capture.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate(std::size_t bytes, cuda_stream_view stream)
  {
    if (void* const ptr = try_allocate_local(bytes, stream)) { return ptr; }
    return try_allocate_after_local(bytes, stream);
  }

  /// The rest of try_allocate() after try_allocate_local().
  [[nodiscard]] RMM_OUT_OF_LINE void* try_allocate_after_local(std::size_t bytes, cuda_stream_view stream);

  /// The short path of try_allocate(). Returns null if the block is not small, if the thread's own cache does not have it, or if the call
  /// has to take the slow path.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate_local(std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= small_block_limit || slow_path_.takes_allocation(stream.value())) { return nullptr; }
    auto* const cache = caches_.find_local(stream.value());
    if (cache == nullptr || !cache->is_trusted() || !cache->lock().try_enter()) { return nullptr; }
    void* const ptr = cache->try_pop((bytes + heap_granule - 1) / heap_granule);
    cache->lock().leave();
    return ptr;
  }

  /// Takes a block from the thread's own cache without a lock, without coalescing, and without calls of CUDA other than the two questions
  /// that mr/detail/immediate_resource.hpp allows. Returns null, and changes nothing, if that is impossible. Only if `may_end_capture` is
  /// set, it asks for the id of a stream that it has not asked for a capture, which would invalidate one. Of a stream whose id the caller
  /// knows, it asks whether it captures instead, if it has not yet. For large blocks, it asks that of each stream.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate_nonblocking(std::size_t bytes,
                                                                 identified_stream stream,
                                                                 bool may_end_capture = false) noexcept
  {
    if (bytes - 1 >= largest_request) { return nullptr; }
    auto key  = stream.view().value();
    bool runs = false;
    if (slow_path_.takes_allocation(key)) {
      auto const reasons = slow_path_.reasons_for(slow_path::any_to_allocate, key);
      runs               = reasons == slow_path::checks_captures && is_known_to_run(key);
      if (reasons != 0 && !runs) { return nullptr; }
      key = caches_.key_of(stream);
    }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = caches_.find_local(key);
    if (cache == nullptr) { return nullptr; }
    if (caches_.asks_for_captures_of(bytes)) {
      runs = may_give_at_once(*cache, bytes) && (runs || runs_for_certain(stream.view().value()));
      if (!runs) { return nullptr; }
    }
    if (!cache->is_trusted()) {
      bool const is_known = stream.is_known_as(cache->identity());
      bool const may_use =
        is_known ? runs || is_known_to_run(stream.view().value()) : (may_end_capture || runs) && cache->is_current();
      if (!may_use) { return nullptr; }
    }
    cache_entered const inside{*cache};
    return inside ? take_inside(*cache, bytes) : nullptr;
  }

  /// The slow path of try_allocate(): looks for a capture, tries the cache with all that it holds, and then searches with the lock.
  [[nodiscard]] RMM_OUT_OF_LINE void* try_allocate_slow(std::size_t bytes, cuda_stream_view stream);

  /// When allocate_reclaimed() is called.
  enum class reclaiming {
    before_growth,  ///< growth may still serve the request, so the host does not wait while the stream captures
    at_last         ///< nothing else can serve the request
  };

  /// Serves a request that try_allocate() could not serve. Records events for all free memory whose stream is known to be alive, and
  /// searches again. If a run of neighbours is large enough but lacks events, waits on the host for the devices of the streams that freed
  /// it. So it waits only if that serves the request. Returns null if free memory is too little or too scattered, or if the wait is
  /// impossible. Throws as try_allocate() does.
  [[nodiscard]] RMM_COLD void* allocate_reclaimed(std::size_t bytes,
                                                  cuda_stream_view stream,
                                                  reclaiming how = reclaiming::at_last);

  // --- freeing ---

  /// Frees a block that was allocated for the same `bytes`. A block that a capturing stream frees is not reused while the graph may run.
  /// If the capture was not announced, that is until the heap is destroyed, which is logged once.
  RMM_ALWAYS_INLINE void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (!try_deallocate_local(ptr, bytes, stream)) { deallocate_after_local(ptr, bytes, stream); }
  }

  /// The short path of deallocate(). Returns false, and changes nothing, in the cases in which try_allocate_local() returns null.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_deallocate_local(void* ptr,
                                                            std::size_t bytes,
                                                            cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= small_block_limit || slow_path_.takes_deallocation(stream.value())) { return false; }
    auto* const cache = caches_.find_local(stream.value());
    if (cache == nullptr || !cache->lock().try_enter()) { return false; }
    bool const pushed = cache->try_push(ptr, (bytes + heap_granule - 1) / heap_granule);
    bool const due    = pushed && cache->is_fence_due();
    cache->lock().leave();
    if (due) { fence_in_turn(*cache); }
    return pushed;
  }

  /// Puts a block into the thread's own cache under the conditions of try_allocate_nonblocking(), and if no event is due. Returns false,
  /// and changes nothing, otherwise.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_deallocate_nonblocking(void* ptr,
                                                                  std::size_t bytes,
                                                                  identified_stream stream) noexcept
  {
    if (bytes - 1 >= largest_request || !is_of_this_process()) { return false; }
    auto key = stream.view().value();
    if (slow_path_.takes_deallocation(key)) {
      auto const reasons = slow_path_.reasons_for(slow_path::any, key);
      if (reasons != 0 && (reasons != slow_path::checks_captures || !is_known_to_run(key))) { return false; }
      key = caches_.key_of(stream);
    }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = caches_.find_local(key);
    if (cache == nullptr) { return false; }
    if (caches_.asks_for_captures_of(bytes) &&
        !(may_take_at_once(*cache, bytes) && runs_for_certain(stream.view().value()))) {
      return false;
    }
    cache_entered const inside{*cache};
    if (!inside || cache->makes_fence_due(bytes)) { return false; }
    return bytes > small_block_limit ? cache->try_add_recent(ptr, bytes) : cache->try_push(ptr, bytes / heap_granule);
  }

  /// The rest of deallocate() after try_deallocate_local().
  RMM_OUT_OF_LINE void deallocate_after_local(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;

  /// The slow path of deallocate(): memory of graphs, the cache with coalescing, or a store.
  RMM_OUT_OF_LINE void deallocate_slow(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;

  /// Takes one more claim, for an allocated block that the caller will free in one part more: each part is freed by a deallocate() of its
  /// own, and needs a claim (H4). Returns false if host memory runs out.
  [[nodiscard]] RMM_COLD bool try_divide() noexcept { return limits_.reserve.try_claim(1); }

  // --- switches of the short path ---

  /// Sends all calls to the slow path, or ends that, for an owner of the heap that has to look at each call.
  void set_slow_path(bool on) noexcept { slow_path_.set(slow_path::owner_asks, on); }

  /// Makes all calls ask whether their stream captures, also while no capture is announced, or ends that.
  void set_checks_captures(bool on) noexcept { slow_path_.set(slow_path::checks_captures, on); }
  [[nodiscard]] bool checks_captures() const noexcept { return slow_path_.has(slow_path::checks_captures); }

  // --- blocks that grow and shrink ---

  /// Adds a block that upstream gave for use on `stream`, and takes its first `bytes` bytes. If the stream captures, or a capture blocks
  /// it, no work uses the block (see suballocator_upstream). If it throws std::bad_alloc, the caller keeps the block. Requires
  /// `bytes <= block_bytes`, rounded up and down to granules.
  [[nodiscard]] RMM_COLD void* add_block_and_allocate(void* block,
                                                      std::size_t block_bytes,
                                                      std::size_t bytes,
                                                      cuda_stream_view stream);

  /// Adds memory that no work uses, and coalesces it with the block that it touches, which thus grows in place. If it throws
  /// std::bad_alloc, the caller keeps the memory.
  RMM_COLD void extend(address_range added);

  /// Records events for all memory freed on streams that are known to be alive: streams that rmm::cuda_stream made or the program
  /// announced, which cannot end during the call, and the legacy default streams.
  RMM_COLD void fence_live_streams() noexcept;

  /// Returns the wanted runs of free memory, ascending. A run coalesces neighbours of all caches and stores. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD std::vector<address_range> free_runs(wanted_runs const& wanted = {});

  /// Returns the upstream blocks, ascending.
  [[nodiscard]] RMM_COLD std::vector<address_range> blocks() const;

  /// Takes free ranges out of the heap, and returns them. Takes those of `wanted` (ascending) that lie in one block, or are whole blocks,
  /// and may leave according to `when`. With `only_blocks`, skips those that are not whole blocks any more: since the caller looked, another
  /// thread may have given a block back, and its addresses may be part of a new block. Removes seams at the ends of the ranges. If it throws
  /// std::bad_alloc, nothing has left.
  [[nodiscard]] RMM_COLD std::vector<address_range> withdraw(std::vector<address_range> const& wanted,
                                                             leaving when,
                                                             cuda_stream_view waiting,
                                                             bool only_blocks = false);

  /// Waits on the host for the devices of all streams that freed memory. After that, any stream may use all free memory. Returns false if
  /// a capture forbids the wait, or if the runtime fails.
  RMM_COLD bool wait_for_all();

  /// Moves memory whose events are reached to the idle store, without waiting. Do not call it in hot paths.
  RMM_COLD void settle() noexcept;

  /// Waits for the work that may use free memory, and calls release(pointer, bytes) for each block. The heap is empty afterwards, whatever
  /// was allocated. No other call may run at the same time, and only the destructor may follow. Does nothing in a forked child of the
  /// process that made the heap.
  template <class Release>
  void release_blocks(Release&& release) noexcept
  {
    auto* const object = &release;
    release_all([](void* of, void* ptr, std::size_t bytes) { (*static_cast<decltype(object)>(of))(ptr, bytes); },
                object);
  }

  // --- figures ---

  /// Whether this process made the heap. A forked child leaves the heaps of its parent alone: deallocate() loses the memory there.
  [[nodiscard]] bool is_of_this_process() const noexcept { return caches_.link().process.is_current(); }

  /// The device that the memory belongs to; -1 if the runtime did not say which was current.
  [[nodiscard]] int home_device() const noexcept { return waits_.home(); }

  /// The device whose context a thread without one needs for calls about a stream; -1 if it needs none.
  [[nodiscard]] int context_for(cudaStream_t stream) const noexcept
  {
    return is_default_stream(stream) ? -1 : home_device();
  }

  /// Bytes of all blocks.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return caches_.block_bytes(); }

  /// Returns the figures, and writes the blocks and free pieces to `contents` if it is given. With more than most_pieces_in_figures free
  /// pieces outside the largest set and without `contents`, the largest piece is not coalesced with neighbours in other sets.
  [[nodiscard]] RMM_COLD heap_figures figures(heap_contents* contents = nullptr) const;

  /// Whether H1, and the invariants of all parts, hold; O(free ranges * log free ranges). Defined in stream_ordered_heap_validation.hpp.
  [[nodiscard]] RMM_COLD bool check_invariants() const noexcept;

  // --- for graph_arena ---

  /// Takes `bytes` bytes of idle memory. Returns an empty range if no idle piece is large enough. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD address_range take_idle(std::size_t bytes)
  {
    detail::spinning_mutex_lock const lock{mutex_};
    return search_.take_idle(bytes);
  }

  /// Adds a block that no work uses, and takes its first `bytes` bytes, possibly 0. If it throws std::bad_alloc, the caller keeps the
  /// block.
  [[nodiscard]] RMM_COLD address_range add_idle_block(address_range block, std::size_t bytes)
  {
    detail::spinning_mutex_lock const lock{mutex_};
    add_block(block, bytes, shared_.idle(), nullptr);
    return {block.begin, bytes};
  }

  /// Records a fence on `stream`, which does not capture, for free_fenced(). Returns the identity of the store that has the fence; 0 on
  /// failure.
  [[nodiscard]] RMM_COLD std::uint64_t fence_for_frees(cudaStream_t stream) noexcept
  {
    detail::spinning_mutex_lock const lock{mutex_};
    auto const identity = stream_identity(stream);
    auto* const store   = shared_.find_or_make(identity, device_of_stream(stream));
    return store != nullptr && shared_.try_add_fence(*store, stream) ? identity : 0;
  }

  /// Frees memory that the newest fence of a store covers. Without a store, which is 0 then, it is reused only after the devices were
  /// synchronised.
  RMM_COLD void free_fenced(address_range range, std::uint64_t store) noexcept
  {
    detail::spinning_mutex_lock const lock{mutex_};
    RMM_ASSERT(blocks_.holds(range));
    caches_.note_live(nullptr, -static_cast<std::int64_t>(range.bytes));
    auto* const found = shared_.find(store);
    if (found == nullptr || !found->try_make_room(1)) { return shared_.lose(range, device_waits::every_device); }
    found->ranges().insert(range, found->newest(), seams());
    caches_.return_claim(nullptr);
  }

  void set_captures_are_announced(bool any) noexcept { slow_path_.set(slow_path::captures_announced, any); }
  void set_has_graph_memory(bool any) noexcept { slow_path_.set(slow_path::has_graph_memory, any); }

 private:
  static constexpr std::size_t most_pieces_in_figures = 4096;
  static constexpr std::size_t steps_between_checks   = 4096;  // with expensive assertions

  using all_closed  = typename basic_cache_set<Unused>::closed;
  using free_pieces = basic_piece_list<Unused>;

  struct listener : stream_end_listener {
    basic_stream_ordered_heap* heap{};
  };

  [[nodiscard]] seam_list const* seams() const noexcept { return limits_.seams(); }

  /// Takes a block from a cache that the caller has entered, without coalescing. Returns null if none fits, or if there is no host memory for
  /// the later free.
  [[nodiscard]] RMM_ALWAYS_INLINE void* take_inside(stream_cache& cache, std::size_t bytes) const noexcept
  {
    void* const at_once =
      bytes <= small_block_limit ? cache.try_pop(bytes / heap_granule) : cache.try_take_latest(bytes);
    if (at_once != nullptr) { return at_once; }  // without the call of a function that saves all registers
    try {
      return caches_.take_local(cache, bytes);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  /// Whether a cache serves a request of this size now, unless other threads change it. So CUDA is not asked in vain.
  [[nodiscard]] RMM_OUT_OF_LINE bool may_give_at_once(stream_cache& cache, std::size_t bytes) const noexcept
  {
    if (caches_.is_large(bytes)) { return false; }
    cache_entered const inside{cache};
    return inside && cache.has_block_for(bytes);
  }

  /// Whether a cache takes a block of this size now and needs neither a fence nor a flush then, unless other threads change it.
  [[nodiscard]] RMM_OUT_OF_LINE bool may_take_at_once(stream_cache& cache, std::size_t bytes) const noexcept
  {
    if (caches_.is_large(bytes)) { return false; }
    cache_entered const inside{cache};
    return inside && !cache.makes_fence_due(bytes) && !caches_.has_to_flush(cache);
  }

  /// Whether a stream certainly does not capture: the legacy default stream never does.
  [[nodiscard]] RMM_OUT_OF_LINE static bool runs_for_certain(cudaStream_t stream) noexcept
  {
    return is_legacy_stream(stream) || is_known_to_run(stream);
  }

  /// The part of release_blocks() that does not depend on its argument: calls release(object, pointer, bytes).
  RMM_COLD void release_all(void (*release)(void* object, void* ptr, std::size_t bytes), void* object) noexcept;

  /// Fences and coalesces what lies in caches. A pool that fails is full, and packs better afterwards (PACKING_TEST).
  RMM_COLD void coalesce_caches() noexcept
  {
    fence_live_streams();
    detail::spinning_mutex_lock const lock{mutex_};
    all_closed const closed{caches_};
    caches_.empty_stacks();
  }

  /// Searches with the lock. Throws std::bad_alloc.
  [[nodiscard]] void* search(std::size_t bytes, asker const& who)
  {
    void* ptr{};
    std::exception_ptr failure;
    run_locked(who.stream, who.cache, [this, bytes, who, &ptr, &failure]() noexcept {
      try {
        ptr = search_.allocate_shared(bytes, who);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    if (failure != nullptr) { std::rethrow_exception(failure); }
    return ptr;
  }

  /// Calls section(), which must not throw, with the lock: in this thread or, unless `stream` is a default stream, which depends on the
  /// calling thread, in another one that has the lock. Meanwhile this thread waits, and so stays outside its caches. `cache`: the one that
  /// the section uses, or null. The other thread reads what the section has captured, so it should capture small values instead of references.
  template <class Section>
  void run_locked(cudaStream_t stream, stream_cache const* cache, Section const& section) noexcept
  {
    if (is_default_stream(stream)) { return mutex_.run_here(section); }
    mutex_.run(section, cache != nullptr ? cache->lines_of_sections() : detail::spinning_mutex::used_lines{});
  }

  /// Whether a block is freed to the cache, which may be null. If the block is large, its stream may be in an unannounced capture, unless
  /// that `was_asked`.
  [[nodiscard]] bool goes_to_cache(std::size_t bytes,
                                   cudaStream_t stream,
                                   stream_cache const* cache,
                                   bool was_asked) const noexcept
  {
    return cache != nullptr && !caches_.is_large(bytes) &&
           (was_asked || !caches_.asks_for_captures_of(bytes) || !query_capture(stream).is_capturing());
  }

  /// Leaves a large block in the cache of its owner. Returns false if the cache does not keep it: it may be null, or not for large blocks.
  [[nodiscard]] bool try_keep(stream_cache* cache, void* ptr, std::size_t bytes) noexcept
  {
    if (cache == nullptr || !caches_.is_large(bytes)) { return false; }
    if (auto const most = caches_.most_gathered(); bytes <= most) {
      cache_entered const inside{*cache};
      bool const gathers =
        inside && cache->would_gather(bytes, most) && query_capture(cache->stream()).is_none() && cache->is_current();
      if (gathers) { cache->gather(ptr, bytes); }
      return gathers;
    }
    if (caches_.most_kept() < bytes) { return false; }
    cache_entered const inside{*cache};
    if (!inside || !cache->would_keep(bytes, caches_.most_kept())) { return false; }
    return query_capture(cache->stream()).is_none() && cache->is_current() && cache->try_keep(ptr, bytes);
  }

  /// Frees a block to its stream's store: a large block, or one of a thread that has no cache, because it ends or host memory ran out. The
  /// block gets a fence, so that the next large request, on any stream, finds it coalesced with its neighbours. The fence is also for the
  /// large blocks that the caller's cache, if there is one, has kept.
  void free_to_store(address_range range, cudaStream_t stream, stream_cache* cache) noexcept
  {
    bool const known       = cache != nullptr && cache->is_current();
    auto const who         = asker::make(stream, known ? cache : nullptr);
    bool const is_recorded = known && cache->try_record_next();
    run_locked(
      stream, who.cache, [this, range, who, is_recorded]() noexcept { free_to_store_locked(range, who, is_recorded); });
  }

  /// The part of free_to_store() with the lock. `is_recorded`: whether the caller's cache has recorded its next event for it.
  void free_to_store_locked(address_range range, asker const& who, bool is_recorded) noexcept
  {
    RMM_ASSERT(blocks_.holds(range));  // H1
    caches_.note_live(who.cache, -static_cast<std::int64_t>(range.bytes));
    auto* const store = shared_.find_or_make(who.identity, who.device);
    auto const kept   = who.cache != nullptr ? who.cache->kept_count() : 0;
    if (store != nullptr && store->try_make_room(1) && shared_.try_add_fence_of(who, *store, is_recorded)) {
      store->ranges().insert(range, store->newest(), seams());
      if (kept != 0 && store->try_make_room(kept)) { caches_.give_kept_to(*store, *who.cache); }
      if (who.cache != nullptr) { who.cache->count_fence(); }
      caches_.count_eager_fence();
      return caches_.return_claim(who.cache);
    }
    if (query_capture(who.stream).is_capturing()) {  // the graph may use it whenever it runs
      caches_.note_live(who.cache, static_cast<std::int64_t>(range.bytes));
      return graphs_.log_unannounced();
    }
    if (store == nullptr || !store->try_add_unfenced(range)) { shared_.lose(range, device_waits::set_of(who.device)); }
  }

  // --- fences, and ends of streams ---

  /// Records the event that is due for the unfenced frees of a cache, and flushes the cache if it holds too much. The owner of the cache
  /// calls it, without the lock.
  RMM_COLD void fence_in_turn(stream_cache& cache) noexcept;

  /// Fences all memory freed on a known stream that is about to end.
  static void stream_ends(stream_end_listener& self, cudaStream_t stream) noexcept
  {
    auto& heap = *static_cast<listener&>(self).heap;
    detail::spinning_mutex_lock const lock{heap.mutex_};
    heap.free_.fence_ended(stream);
  }

  // --- blocks; with the lock ---

  /// Adds an upstream block, with a seam where it touches another. Allocates its first `bytes` bytes, and puts the others into `rest_to`,
  /// whose newest fence covers them. If it throws std::bad_alloc, no memory has been added.
  void add_block(address_range block, std::size_t bytes, free_store& rest_to, stream_cache* cache)
  {
    auto const rest = align_down(block.bytes, heap_granule) - bytes;
    if (!rest_to.try_make_room(1) || (bytes != 0 && !caches_.try_claim(cache))) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept {
      if (bytes != 0) { caches_.return_claim(cache); }
    }};
    {
      std::optional<all_closed> closed;
      if (blocks_.touches(block)) { closed.emplace(caches_); }
      blocks_.add(block);
    }
    cancel.dismiss();
    caches_.set_block_bytes(blocks_.total_bytes());
    if (rest != 0) { rest_to.ranges().insert({block.begin + bytes, rest}, rest_to.newest(), seams()); }
    caches_.note_live(cache, static_cast<std::int64_t>(bytes));
    RMM_ASSERT(blocks_.holds(block));
  }

  // Read by all threads in each call, hardly ever written.
  slow_path slow_path_;
  basic_cache_set<Unused> caches_{known_streams().new_number(), mutex_, slow_path_, limits_, shared_, waits_};
  heap_limits limits_;
  device_waits const waits_;
  stream_lifetimes& streams_{known_streams()};

  mutable detail::spinning_mutex mutex_;  // guards what follows, and of caches_ what that says
  shared_free_lists shared_{limits_};
  block_map blocks_{limits_.seam_addresses};
  basic_free_sets<Unused> free_{caches_, shared_, blocks_, limits_, waits_};
  basic_memory_search<Unused> search_{free_};
  listener end_listener_{};
  graph_arena<basic_stream_ordered_heap> graphs_{*this};
};

template <class Unused>
basic_stream_ordered_heap<Unused>::basic_stream_ordered_heap(int home)
  : waits_{home >= 0 ? home : current_device_if_known()}
{
  end_listener_.stream_ends = stream_ends;
  end_listener_.heap        = this;
  streams_.add(end_listener_);
  scope_guard undo{[&]() noexcept { streams_.remove(end_listener_); }};
  graphs_.begin_to_listen();
  undo.dismiss();
}

template <class Unused>
basic_stream_ordered_heap<Unused>::~basic_stream_ordered_heap()
{
  release_blocks([](void*, std::size_t) {});
}

template <class Unused>
void* basic_stream_ordered_heap<Unused>::try_allocate_after_local(std::size_t bytes, cuda_stream_view stream)
{
  // The slow path would ask for the id, too.
  if (void* const ptr = try_allocate_nonblocking(bytes, stream, true)) { return ptr; }
  return try_allocate_slow(bytes, stream);
}

template <class Unused>
void* basic_stream_ordered_heap<Unused>::try_allocate_slow(std::size_t bytes, cuda_stream_view stream)
{
  context_scope const with_context{context_for(stream.value())};
  bytes            = align_up(bytes, heap_granule);
  bool const asks  = slow_path_.asks_for_captures() || caches_.asks_for_captures_of(bytes);
  bool const asked = asks && !is_legacy_stream(stream.value());
  capture_state capture;
  if (asked) {
    capture = query_capture(stream.value());
    if (capture.is_capturing()) { return graphs_.allocate(bytes, stream.value(), capture); }
  }
  auto* cache = caches_.find_local(caches_.key_of(stream.value()));
  if (cache == nullptr || !cache->is_current()) { cache = caches_.find_or_make(stream.value(), true); }
  if (cache != nullptr && !caches_.is_large(bytes)) {
    cache_entered const inside{*cache};
    if (inside) {
      if (void* const ptr = caches_.take(*cache, bytes)) { return ptr; }
    }
  }
  if (!asked) {
    capture = query_capture(stream.value());
    if (capture.is_capturing()) { return graphs_.allocate(bytes, stream.value(), capture); }
  }
  bool const may_be_kept = cache != nullptr && caches_.is_large(bytes);
  if (may_be_kept) {
    cache_entered const inside{*cache};
    if (inside) {
      cache->count_large_request(bytes);
      if (void* const ptr = cache->try_take_kept(bytes)) { return ptr; }
    }
  }
  void* const ptr = search(bytes, asker::make(stream.value(), cache, capture.is_none()));
  if (ptr != nullptr || !may_be_kept) { return ptr; }
  cache_entered const inside{*cache};  // while no event can be recorded, the search leaves what is kept
  return inside ? cache->try_take_kept(bytes) : nullptr;
}

template <class Unused>
void* basic_stream_ordered_heap<Unused>::allocate_reclaimed(std::size_t bytes, cuda_stream_view stream, reclaiming how)
{
  context_scope const with_context{context_for(stream.value())};
  bytes              = align_up(bytes, heap_granule);
  auto const capture = query_capture(stream.value());
  if (capture.is_capturing()) {
    if (how == reclaiming::before_growth) { return nullptr; }
    fence_live_streams();
    {
      detail::spinning_mutex_lock const lock{mutex_};
      all_closed const closed{caches_};
      free_.wait_for_events();
    }
    return graphs_.allocate(bytes, stream.value(), capture);
  }
  bool has_none = false;
  {
    detail::spinning_mutex_lock const lock{mutex_};
    has_none = search_.knows_no_run_of(bytes);
    if (has_none && (how == reclaiming::before_growth || caches_.are_many())) { return nullptr; }
    all_closed closed{caches_};
    if (!search_.may_have_run_of(bytes, closed)) { return nullptr; }
  }
  if (has_none) {
    coalesce_caches();
    return nullptr;
  }
  auto* const cache  = caches_.find_or_make(stream.value(), true);
  auto const who     = asker::make(stream.value(), cache, capture.is_none());
  auto const waiting = device_waits::ask();
  fence_live_streams();
  detail::spinning_mutex_lock const lock{mutex_};
  return search_.allocate_fenced(bytes, who, waiting);
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::deallocate_after_local(void* ptr,
                                                               std::size_t bytes,
                                                               cuda_stream_view stream) noexcept
{
  if (!try_deallocate_nonblocking(ptr, bytes, stream)) { deallocate_slow(ptr, bytes, stream); }
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::deallocate_slow(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
{
  if (!is_of_this_process()) { return; }
  context_scope const with_context{context_for(stream.value())};
  bytes           = align_up(bytes, heap_granule);
  bool const asks = slow_path_.asks_for_captures() && !is_legacy_stream(stream.value());
  address_range const range{reinterpret_cast<std::uintptr_t>(ptr), bytes};
  if (slow_path_.has(slow_path::any) && graphs_.try_deallocate(range, stream.value(), asks)) { return; }
  auto* cache = caches_.find_local(caches_.key_of(stream.value()));
  if (cache == nullptr) { cache = caches_.find_or_make(stream.value(), false); }
  bool placed = false;
  bool due    = false;
  if (goes_to_cache(bytes, stream.value(), cache, asks)) {
    {
      cache_entered const inside{*cache};
      placed = inside && caches_.put(*cache, ptr, bytes);
      due    = placed && (cache->is_fence_due() || caches_.has_to_flush(*cache));
    }
    if (!placed) {  // kept out, no host memory, or the handle names another stream now
      cache = caches_.find_or_make(stream.value(), true);
      detail::spinning_mutex_lock const lock{mutex_};
      caches_.reopen(cache);
      placed = cache != nullptr && caches_.put(*cache, ptr, bytes);
      due    = placed && cache->is_fence_due();
    }
  }
  if (due) { fence_in_turn(*cache); }
  if (!placed && !try_keep(cache, ptr, bytes)) { free_to_store(range, stream.value(), cache); }
  RMM_ASSERT_EXPENSIVE(!is_check_due<basic_stream_ordered_heap>(steps_between_checks) || check_invariants());
}

template <class Unused>
void* basic_stream_ordered_heap<Unused>::add_block_and_allocate(void* block,
                                                                std::size_t block_bytes,
                                                                std::size_t bytes,
                                                                cuda_stream_view stream)
{
  context_scope const with_context{context_for(stream.value())};
  bytes = align_up(bytes, heap_granule);
  RMM_ASSERT(block != nullptr && bytes <= align_down(block_bytes, heap_granule));
  auto const begin   = reinterpret_cast<std::uintptr_t>(block);
  auto const capture = query_capture(stream.value());
  if (capture.is_capturing()) {
    return graphs_.add_block_and_allocate({begin, block_bytes}, bytes, stream.value(), capture);
  }
  auto* const cache = bytes != 0 ? caches_.find_or_make(stream.value(), true) : nullptr;
  auto const who    = asker::make(stream.value(), cache);
  detail::spinning_mutex_lock const lock{mutex_};
  auto* rest_to = &shared_.idle();
  if (align_down(block_bytes, heap_granule) != bytes) {
    auto* const own = shared_.find_or_make(who.identity, who.device);
    if (own != nullptr && shared_.try_add_fence(*own, who.stream)) {
      rest_to = own;
    } else if (capture.is_none() &&  // else no work uses the block (see above)
               !waits_.try_wait_for(device_waits::set_of(who.device), device_waits::ask_locked())) {
      throw std::bad_alloc{};
    }
  }
  add_block({begin, block_bytes}, bytes, *rest_to, cache);
  return bytes != 0 ? block : nullptr;
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::extend(address_range added)
{
  detail::spinning_mutex_lock const lock{mutex_};
  if (!shared_.idle().try_make_room(1)) { throw std::bad_alloc{}; }
  blocks_.extend(added);
  RMM_ASSERT(blocks_.holds(added));
  shared_.idle().ranges().insert(added, 0, seams());
  caches_.set_block_bytes(blocks_.total_bytes());
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::fence_live_streams() noexcept
{
  context_scope const with_context{home_device()};
  streams_.with_known([&](pointer_bag const& known) {
    detail::spinning_mutex_lock const lock{mutex_};
    all_closed const closed{caches_};
    free_.fence_alive(known);
  });
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::free_runs(wanted_runs const& wanted)
{
  context_scope const with_context{home_device()};
  detail::spinning_mutex_lock const lock{mutex_};
  bool const by_size = wanted.edges == nullptr;
  if (by_size && search_.knows_no_run_of(wanted.least_bytes)) { return {}; }
  all_closed closed{caches_};
  shared_.poll(max_value<std::size_t>);
  if (by_size && free_.bound_of_runs() < wanted.least_bytes) { return {}; }
  auto runs             = search_.list_pieces(wanted).runs();
  bool const found_none = by_size && wanted.with_unfenced && runs.empty();
  if (found_none && caches_.are_closed()) { caches_.note_no_run_of(wanted.least_bytes, closed); }
  return runs;
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::blocks() const
{
  detail::spinning_mutex_lock const lock{mutex_};
  return blocks_.all();
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::withdraw(std::vector<address_range> const& wanted,
                                                                       leaving when,
                                                                       cuda_stream_view waiting,
                                                                       bool only_blocks)
{
  std::vector<address_range> taken;
  if (wanted.empty()) { return taken; }
  taken.reserve(wanted.size());
  context_scope const with_context{home_device()};
  detail::spinning_mutex_lock const lock{mutex_};
  all_closed const closed{caches_};
  capture_exemption const exemption;
  shared_.poll(max_value<std::size_t>);
  auto least = wanted.front().bytes;
  for (auto const range : wanted) { least = detail::min(least, range.bytes); }
  auto found = search_.list_pieces({align_down(least, heap_granule)});
  auto at    = found.begin();
  for (auto const whole : wanted) {
    address_range const range{whole.begin, align_down(whole.bytes, heap_granule)};
    auto const try_cut = [&]() noexcept { return (!only_blocks || blocks_.is_block(whole)) && blocks_.try_cut(range); };
    if (!found.try_withdraw(range, at, when, waiting.value(), try_cut)) { continue; }
    caches_.set_block_bytes(blocks_.total_bytes());
    taken.push_back(whole);
  }
  RMM_ASSERT(taken.size() <= wanted.size());
  RMM_ASSERT_EXPENSIVE(free_.check_sum());
  return taken;
}

template <class Unused>
bool basic_stream_ordered_heap<Unused>::wait_for_all()
{
  context_scope const with_context{home_device()};
  auto const waiting = device_waits::ask();
  detail::spinning_mutex_lock const lock{mutex_};
  all_closed const closed{caches_};
  return free_.try_wait_for_devices(waiting);
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::settle() noexcept
{
  context_scope const with_context{home_device()};
  detail::spinning_mutex_lock const lock{mutex_};
  shared_.poll(max_value<std::size_t>);
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::release_all(void (*release)(void* object, void* ptr, std::size_t bytes),
                                                    void* object) noexcept
{
  if (!is_of_this_process()) { return; }
  context_scope const with_context{home_device()};
  auto const waiting = device_waits::ask();
  // While another stream captures, the host can wait for events, but not for devices.
  if (waiting == device_waits::permission::forbidden) { fence_live_streams(); }
  {
    detail::mutex_lock const lock{caches_.link().mutex};
    caches_.link().caches = nullptr;  // threads that end leave their caches alone from now on
  }
  gone_heaps.fetch_add(1, std::memory_order_relaxed);
  streams_.remove(end_listener_);
  graphs_.end_listening();
  {
    capture_exemption const exemption;
    detail::spinning_mutex_lock const lock{mutex_};
    free_.wait_for_events();
    if (free_.add_up().pieces != free_.add_up(false).pieces) {  // some have no event
      static_cast<void>(free_.try_wait_for_devices(waiting));
    }
    caches_.clear();
    shared_.clear();
  }
  graphs_.clear();
  // Without the lock: upstream may be a heap too, which looks at what links this thread to others.
  for (auto const block : blocks_.all()) { release(object, to_pointer(block.begin), block.bytes); }
  blocks_.clear();
  caches_.set_block_bytes(0);
}

template <class Unused>
heap_figures basic_stream_ordered_heap<Unused>::figures(heap_contents* contents) const
{
  heap_figures now;
  std::vector<free_piece> pieces;
  {
    detail::mutex_lock const graphs_stay{graphs_.mutex()};
    detail::spinning_mutex_lock const lock{mutex_};
    all_closed const closed{caches_};
    auto const free             = free_.add_up();
    now.free_bytes              = free.bytes;
    now.cached_bytes            = free.cached_bytes;
    now.graph_bytes             = graphs_.bytes();
    now.live_bytes              = static_cast<std::size_t>(caches_.live_bytes()) - now.graph_bytes;
    now.reserved_bytes          = block_bytes();
    now.upstream_blocks         = blocks_.all().size();
    now.caches                  = caches_.count();
    now.from_other_streams      = shared_.waits_for_others();
    now.from_other_caches       = caches_.taken_from_others();
    now.put_together            = search_.coalesced();
    now.device_synchronizations = free_.device_synchronizations();
    RMM_ASSERT(now.free_bytes + now.live_bytes + now.graph_bytes == blocks_.usable_bytes());  // H1
    RMM_ASSERT(now.reserved_bytes == blocks_.total_bytes());
    now.largest_free_bytes = free_.largest_piece();
    if (contents != nullptr || free.pieces_elsewhere() <= most_pieces_in_figures) {
      free_pieces runs{free_, {now.largest_free_bytes + heap_granule, nullptr, true, true}};  // only longer ones
      for (auto const run : runs.runs()) { now.largest_free_bytes = detail::max(now.largest_free_bytes, run.bytes); }
    }
    if (contents != nullptr) {
      pieces.reserve(free.pieces);
      free_.for_each_piece([&](free_piece const& each) { pieces.push_back(each); });
      graphs_.for_each_unused([&](address_range range) {
        pieces.push_back({range, free_piece::place::graphs, true, 0});
      });
      contents->blocks = blocks_.all();
    }
  }
  RMM_ASSERT(now.largest_free_bytes <= now.free_bytes && (now.largest_free_bytes != 0) == (now.free_bytes != 0));
  if (contents != nullptr) {  // without the lock, because sorting takes longer than everything before
    detail::sort(pieces.begin(), pieces.end(), [](free_piece const& a, free_piece const& b) {
      return a.range.begin < b.range.begin;
    });
    contents->pieces = std::move(pieces);
  }
  return now;
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::fence_in_turn(stream_cache& cache) noexcept
{
  if (!is_of_this_process()) { return; }
  context_scope const with_context{context_for(cache.stream())};
  bool current = false;
  {
    cache_entered const inside{cache};
    if (!inside) { return; }  // the next free comes here again
    current = cache.is_current();
    if (current) {
      if (!caches_.fence_current(cache)) { return; }
      caches_.count_eager_fence();
      if (!caches_.has_to_flush(cache) && !shared_.is_behind()) { return; }
      if (caches_.flushes_all(cache)) { cache.empty_stacks(); }  // takes long, so before the lock
    }
  }
  // The handle names a new stream, which made some of these frees. No event can cover the frees of the old one.
  if (!current) { return caches_.drop(cache); }
  run_locked(cache.stream(), &cache, [&]() noexcept { caches_.flush(cache); });
}

using stream_ordered_heap = basic_stream_ordered_heap<void>;
RMM_COMPILED_ONCE(basic_stream_ordered_heap<void>);
RMM_COMPILED_ONCE(graph_arena<stream_ordered_heap>);

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>
#endif
