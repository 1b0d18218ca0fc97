// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/scope_guard.hpp>
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
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/graph_arena.hpp>
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
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Hands out parts of upstream blocks, so that memory freed on one stream reaches another only in the order of their work.
///
/// Each thread has a cache for each stream that it uses (stream_cache.hpp), which it enters with plain stores and no CUDA call. All
/// other free memory lies in stores (free_store.hpp), under a lock: one store for each stream, and the idle store for memory that no
/// work can use any more. allocate_shared() searches in this order, and takes the first memory that fits:
///
///   1. the cache's own stacks, recent frees and ranges
///   2. the idle store, from which the cache takes somewhat more than the request; the idle store again, after memory whose events are
///      found reached has moved there; then the stream's own store
///   3. the cache's own stacks again, emptied and coalesced with its ranges
///   4. one range of another stream's store, after a wait for its event on the device
///   5. one range of another cache, whose owner is locked out meanwhile; after a wait if the cache is for another stream
///   6. a run of neighbours from different caches and stores, coalesced, after waits for the streams that freed them
///
/// If nothing fits, the caller calls allocate_reclaimed() before it adds a block. That records events for all free memory whose stream
/// is known to be alive, and searches again. If a run of neighbours is large enough but lacks events, the host waits for the devices of
/// the streams that freed it.
///
/// While there is one cache, it holds everything. With more caches, large blocks go past them (cache_set::is_large()): each gets a fence
/// of its own and goes to a store, where the memory of all streams coalesces. Requests of that size skip step 1 and begin with the
/// stores. Small blocks are cut from the ends of ranges, and caches refill from the top of memory, so that small blocks do not lie
/// between large ones. While free memory is scarce (cache_set::note_scarcity()), all but small blocks are large.
///
/// Invariants:
///  H1  sum(free) + sum(allocated) == sum(blocks), each rounded down to granules; no two free ranges overlap
///  H2  memory that stream A freed reaches another stream only in one of three ways: behind a wait for an event that A recorded after
///      the free; after such an event was reached; or after A's device was synchronised after the free
///  H3  a stream's handle is used only in calls that the program makes with it, while rmm::cuda_stream ends it, and while the lock of
///      the known streams keeps it from ending. The legacy default stream never ends
///  H4  deallocate() needs no host memory: each allocated block has a claim of the reserve
///  H5  a stream that captures records no event and waits for none. What a capture allocates or frees belongs to the graph_arena, and
///      no other work gets it while the graph may run
///  H6  for a stream that does not capture, allocate_reclaimed() with reclaiming::at_last returns null only if no run of neighbours,
///      wherever its pieces lie, was large enough while it held the lock; or if the host cannot wait for the devices, or lacks memory
///
/// Streams of several devices may use the memory. The device of a stream is looked up when its cache is made. Events and waits are made
/// for that device, whatever device is current.
///
/// Thread-safe. The order of locks: recovery_ladder; known streams or announced captures; heap_link or graph_arena; heap; reserve. Events
/// are recorded and waited for under the heap's lock or inside a cache, because the set of free blocks and the event that covers them
/// change together.
///
/// A template only so that translation units that make no heap do not compile its members.
template <class Unused>
class basic_stream_ordered_heap {
 public:
  /// The largest request: rounding a larger one up would wrap.
  static constexpr std::size_t largest_request = max_value<std::size_t> - (heap_granule - 1);

  /// Handles below name default streams.
  static constexpr std::uintptr_t first_plain_handle = slow_path::first_plain_handle;

  /// `home`: the device that the memory belongs to; the current one if it is negative. Throws std::bad_alloc.
  explicit basic_stream_ordered_heap(int home = -1) : waits_{home >= 0 ? home : current_device_if_known()}
  {
    caches_.link().heap = this;
    caches_.link().retire =
      [](basic_stream_ordered_heap& heap, stream_cache& cache, pointer_bag const& known, bool has_own_stream) noexcept {
        heap.retire(cache, known, has_own_stream);
      };
    end_listener_.stream_ends = stream_ends;
    end_listener_.heap        = this;
    streams_.add(end_listener_);
    scope_guard undo{[&]() noexcept { streams_.remove(end_listener_); }};
    graphs_.begin_to_listen();
    undo.dismiss();
  }
  basic_stream_ordered_heap(basic_stream_ordered_heap const&)            = delete;
  basic_stream_ordered_heap& operator=(basic_stream_ordered_heap const&) = delete;

  ~basic_stream_ordered_heap()
  {
    release_blocks([](void*, std::size_t) {});
  }

  // --- allocating ---

  /// Takes `bytes` bytes, at least 1, that `stream` may use at once. Returns null if no free memory is large enough, coalesced as far as
  /// possible. Throws std::bad_alloc if host memory runs out, and logic_error if the stream is found to be in an unannounced capture.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate(std::size_t bytes, cuda_stream_view stream)
  {
    if (void* const ptr = try_allocate_local(bytes, stream)) { return ptr; }
    return try_allocate_slow(bytes, stream);
  }

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
  /// that mr/detail/immediate_resource.hpp allows. Returns null, and changes nothing, if that is impossible.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate_nonblocking(std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= largest_request) { return nullptr; }
    auto key  = stream.value();
    bool runs = false;
    if (slow_path_.takes_allocation(key)) {
      auto const reasons = slow_path_.reasons_for(slow_path::any_to_allocate, key);
      runs               = reasons == slow_path::checks_captures && is_known_to_run(key);
      if (reasons != 0 && !runs) { return nullptr; }
      key = caches_.key_of(key);
    }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = caches_.find_local(key);
    if (cache == nullptr || caches_.is_large(bytes)) { return nullptr; }
    if (runs ? !cache->is_current() : !cache->is_trusted()) {
      return nullptr;
    }  // a stream that captures must not be asked
    cache_entered const inside{*cache};
    if (!inside) { return nullptr; }
    try {
      return caches_.take_local(*cache, bytes);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  /// The slow path of try_allocate(): looks for a capture, tries the cache with all that it holds, and then searches with the lock.
  [[nodiscard]] RMM_OUT_OF_LINE void* try_allocate_slow(std::size_t bytes, cuda_stream_view stream)
  {
    context_scope const with_context{context_for(stream.value())};
    bytes            = align_up(bytes, heap_granule);
    bool const asked = slow_path_.asks_for_captures() && !is_legacy_stream(stream.value());
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
    auto who = asker::make(stream.value(), cache, capture.is_none());
    detail::mutex_lock const lock{mutex_};
    return allocate_shared(bytes, who);
  }

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
                                                  reclaiming how = reclaiming::at_last)
  {
    context_scope const with_context{context_for(stream.value())};
    bytes              = align_up(bytes, heap_granule);
    auto const capture = query_capture(stream.value());
    if (capture.is_capturing()) {
      if (how == reclaiming::before_growth) { return nullptr; }
      {
        detail::mutex_lock const lock{mutex_};
        wait_for_fenced_memory();
      }
      return graphs_.allocate(bytes, stream.value(), capture);
    }
    bool has_none = false;
    {
      detail::mutex_lock const lock{mutex_};
      has_none = knows_no_run_of(bytes);
      if (has_none && (how == reclaiming::before_growth || caches_.are_many())) { return nullptr; }
      all_closed closed{caches_};
      if (free_pieces::bound_of_runs(shared_, caches_) < bytes) {
        caches_.note_no_run_of(bytes, closed);
        return nullptr;
      }
    }
    if (has_none) {
      coalesce_caches();
      return nullptr;
    }
    auto* const cache  = caches_.find_or_make(stream.value(), true);
    auto who           = asker::make(stream.value(), cache, capture.is_none());
    auto const waiting = device_waits::ask();
    fence_live_streams();
    detail::mutex_lock const lock{mutex_};
    if (!caches_.try_claim(cache)) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept { caches_.return_claim(cache); }};
    all_closed closed{caches_, cache};
    auto pieces = list_pieces({bytes, nullptr, true});
    auto taken  = pieces.take(bytes, who);
    coalesced_ += taken ? 1U : 0U;
    if (!taken && (who.wait_failed || wait_failed_ || pieces.has_run(bytes)) && everything_is_reached(waiting)) {
      who.wait_failed = false;
      caches_.begin_eager_fences();
      taken = take_coalesced(bytes, who, closed);
    }
    wait_failed_ = who.wait_failed;
    RMM_ASSERT_EXPENSIVE(check_sum(taken ? bytes : 0));
    if (!taken) { return nullptr; }
    cancel.dismiss();
    return hand_out(taken, bytes, who);
  }

  // --- freeing ---

  /// Frees a block that was allocated for the same `bytes`. A block that a capturing stream frees is not reused while the graph may run.
  /// If the capture was not announced, that is until the heap is destroyed, which is logged once.
  RMM_ALWAYS_INLINE void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (!try_deallocate_local(ptr, bytes, stream)) { deallocate_slow(ptr, bytes, stream); }
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
    bool const due    = cache->is_fence_due();
    cache->lock().leave();
    if (pushed && due) { fence_in_turn(*cache); }
    return pushed;
  }

  /// Puts a block into the thread's own cache under the conditions of try_allocate_nonblocking(), and if no event is due. Returns false,
  /// and changes nothing, otherwise.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_deallocate_nonblocking(void* ptr,
                                                                  std::size_t bytes,
                                                                  cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= largest_request) { return false; }
    auto key = stream.value();
    if (slow_path_.takes_deallocation(key)) {
      auto const reasons = slow_path_.reasons_for(slow_path::any, key);
      if (reasons != 0 && (reasons != slow_path::checks_captures || !is_known_to_run(key))) { return false; }
      key = caches_.key_of(key);
    }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = caches_.find_local(key);
    if (cache == nullptr || caches_.is_large(bytes)) { return false; }
    cache_entered const inside{*cache};
    if (!inside || cache->makes_fence_due(bytes)) { return false; }
    return bytes > small_block_limit ? cache->try_add_recent(ptr, bytes) : cache->try_push(ptr, bytes / heap_granule);
  }

  /// The slow path of deallocate(): memory of graphs, the cache with coalescing, or a store.
  RMM_OUT_OF_LINE void deallocate_slow(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
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
    if (cache != nullptr && !caches_.is_large(bytes)) {
      {
        cache_entered const inside{*cache};
        placed = inside && caches_.put(*cache, ptr, bytes);
        due    = placed && (cache->is_fence_due() || caches_.has_to_flush(*cache));
      }
      if (!placed) {  // kept out, no host memory, or the handle names another stream now
        cache = caches_.find_or_make(stream.value(), true);
        detail::mutex_lock const lock{mutex_};
        caches_.reopen(cache);
        placed = cache != nullptr && caches_.put(*cache, ptr, bytes);
        due    = placed && cache->is_fence_due();
      }
    }
    if (due) { fence_in_turn(*cache); }
    if (!placed) {
      bool const known = cache != nullptr && cache->is_current();
      auto const who   = asker::make(stream.value(), known ? cache : nullptr);
      detail::mutex_lock const lock{mutex_};
      free_to_store(range, who);
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_stream_ordered_heap>(steps_between_checks) || check_invariants());
  }

  /// Prepares that an allocated block will be freed in one part more than so far, each with an address and size of its own. Returns false
  /// if host memory runs out.
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
    detail::mutex_lock const lock{mutex_};
    if (!caches_.try_claim(cache)) { throw std::bad_alloc{}; }
    scope_guard give_up{[&]() noexcept { caches_.return_claim(cache); }};
    auto* store     = shared_.find_or_make(who.identity, who.device);
    auto const rest = align_down(block_bytes, heap_granule) - bytes;
    if (rest == 0) {
      adopt({begin, block_bytes});
    } else {
      if (store == nullptr || !store->try_make_room(1) || !shared_.try_add_fence(*store, who.stream)) {
        bool const is_idle = !capture.is_none();  // no work uses such a block (see the declaration)
        if (!shared_.idle().try_make_room(1) ||
            !(is_idle || waits_.try_wait_for(device_waits::set_of(who.device), device_waits::ask_locked()))) {
          throw std::bad_alloc{};
        }
        store = &shared_.idle();
      }
      adopt({begin, block_bytes});
      store->ranges().insert({begin + bytes, rest}, store->newest(), seams());
    }
    if (bytes == 0) { return nullptr; }
    give_up.dismiss();
    return hand_out({begin, 0}, bytes, who);
  }

  /// Adds memory that no work uses, and coalesces it with the block that it touches, which thus grows in place. If it throws
  /// std::bad_alloc, the caller keeps the memory.
  RMM_COLD void extend(address_range added)
  {
    detail::mutex_lock const lock{mutex_};
    if (!shared_.idle().try_make_room(1)) { throw std::bad_alloc{}; }
    blocks_.extend(added);
    RMM_ASSERT(blocks_.holds(added));
    shared_.idle().ranges().insert(added, 0, seams());
    caches_.set_block_bytes(blocks_.total_bytes());
  }

  /// Records events for all memory freed on streams that are known to be alive: streams that rmm::cuda_stream made or the program
  /// announced, which cannot end during the call, and the legacy default streams.
  RMM_COLD void fence_live_streams() noexcept
  {
    context_scope const with_context{home_device()};
    streams_.with_known([&](pointer_bag const& known) {
      detail::mutex_lock const lock{mutex_};
      all_closed const closed{caches_};
      for (auto const& cache : caches_) {
        if (!cache->has_unfenced() || !caches_.is_kept_alive(*cache, known)) { continue; }
        device_scope const on_device{cache->device()};  // the handle of a default stream names that of the current one
        static_cast<void>(cache->fence(cache->stream()));
        RMM_ASSERT(!cache->has_ended());  // H3
      }
      for (auto const& store : shared_.stores()) {
        if (store->unfenced().empty()) { continue; }
        device_scope const on_device{store->device()};
        if (store->identity() != legacy_stream_identity()) { continue; }
        shared_.fence_left(*store, cudaStreamLegacy);
      }
    });
  }

  /// Returns the wanted runs of free memory, ascending. A run coalesces neighbours of all caches and stores. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD std::vector<address_range> free_runs(wanted_runs const& wanted = {})
  {
    context_scope const with_context{home_device()};
    detail::mutex_lock const lock{mutex_};
    all_closed const closed{caches_};
    shared_.poll(max_value<std::size_t>);
    if (wanted.edges == nullptr && free_pieces::bound_of_runs(shared_, caches_) < wanted.least_bytes) { return {}; }
    return list_pieces(wanted).runs();
  }

  /// Returns the upstream blocks, ascending.
  [[nodiscard]] RMM_COLD std::vector<address_range> blocks() const
  {
    detail::mutex_lock const lock{mutex_};
    std::vector<address_range> all;
    all.reserve(blocks_.count());
    blocks_.for_each([&](address_range block) { all.push_back(block); });
    return all;
  }

  /// Which free memory may leave the heap.
  enum class leaving {
    at_once,   ///< memory that no work uses any more
    in_order,  ///< also memory that only work of the given stream still uses: later work of that stream comes after it
    after_a_wait  ///< also memory that an event covers: the given stream waits for the event
  };

  /// Takes free ranges out of the heap, and returns them. Takes those of `wanted` (ascending) that lie in one block, or are whole blocks,
  /// and may leave according to `when`. Removes seams at their ends. If it throws std::bad_alloc, nothing has left.
  [[nodiscard]] RMM_COLD std::vector<address_range> withdraw(std::vector<address_range> const& wanted,
                                                             leaving when,
                                                             cuda_stream_view waiting)
  {
    detail::mutex_lock const lock{mutex_};
    return withdraw_locked(wanted, when, waiting);
  }

  /// As withdraw(), for whole upstream blocks. Skips ranges of `wanted` that are no longer whole blocks: since the caller looked, another
  /// thread may have given a block back, and its addresses may be part of a new block.
  [[nodiscard]] RMM_COLD std::vector<address_range> withdraw_blocks(std::vector<address_range> wanted,
                                                                    cuda_stream_view waiting,
                                                                    leaving when = leaving::after_a_wait)
  {
    detail::mutex_lock const lock{mutex_};
    wanted.erase(
      detail::remove_if(wanted.begin(), wanted.end(), [&](address_range range) { return !blocks_.is_block(range); }),
      wanted.end());
    auto usable = wanted;
    for (auto& range : usable) { range.bytes = align_down(range.bytes, heap_granule); }
    auto taken = withdraw_locked(usable, when, waiting);
    auto block = wanted.begin();
    for (auto& range : taken) {
      while (block->begin != range.begin) { ++block; }
      range = *block;
    }
    return taken;
  }

  /// Waits on the host for the devices of all streams that freed memory. After that, any stream may use all free memory. Returns false if
  /// the runtime cannot wait.
  RMM_COLD bool wait_for_all()
  {
    context_scope const with_context{home_device()};
    auto const waiting = device_waits::ask();
    detail::mutex_lock const lock{mutex_};
    all_closed const closed{caches_};
    return everything_is_reached(waiting);
  }

  /// Moves memory whose events are reached to the idle store, without waiting. Do not call it in hot paths.
  RMM_COLD void settle() noexcept
  {
    context_scope const with_context{home_device()};
    detail::mutex_lock const lock{mutex_};
    shared_.poll(max_value<std::size_t>);
  }

  /// Waits for the work that may use free memory, and calls release(pointer, bytes) for each block. The heap is empty afterwards, whatever
  /// was allocated. No other call may run at the same time, and only the destructor may follow. Does nothing in a forked child of the
  /// process that made the heap.
  template <class Release>
  RMM_COLD void release_blocks(Release&& release) noexcept
  {
    if (!is_of_this_process()) { return; }
    context_scope const with_context{home_device()};
    auto const waiting = device_waits::ask();
    // While another stream captures, the host can wait for events, but not for devices.
    if (waiting == device_waits::permission::forbidden) { fence_live_streams(); }
    {
      detail::mutex_lock const lock{caches_.link().mutex};
      caches_.link().heap = nullptr;  // threads that end leave their caches alone from now on
    }
    gone_heaps.fetch_add(1, std::memory_order_relaxed);
    streams_.remove(end_listener_);
    graphs_.end_listening();
    {
      detail::mutex_lock const lock{mutex_};
      wait_for_free_memory(waiting);
      caches_.clear();
      shared_.clear();
    }
    graphs_.clear();
    // Without the lock: upstream may be a heap too, which looks at what links this thread to others.
    blocks_.for_each([&](address_range block) { release(to_pointer(block.begin), block.bytes); });
    blocks_.clear();
    caches_.set_block_bytes(0);
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
  /// pieces outside the largest store and without `contents`, the largest piece is not coalesced with neighbours in other sets.
  [[nodiscard]] RMM_COLD heap_figures figures(heap_contents* contents = nullptr) const
  {
    using place         = free_piece::place;
    auto const in_order = [](free_piece const& a, free_piece const& b) { return a.range.begin < b.range.begin; };
    heap_figures now;
    std::vector<free_piece> graph_pieces;
    std::vector<free_piece> pieces;
    std::vector<std::uintptr_t> seam_addresses;
    {
      detail::mutex_lock const graphs_stay{graphs_.mutex()};
      detail::mutex_lock const lock{mutex_};
      all_closed const closed{caches_};
      auto const count = add_up(now);
      RMM_ASSERT(now.free_bytes + now.live_bytes + now.graph_bytes == blocks_.usable_bytes());  // H1
      RMM_ASSERT(now.cached_bytes <= now.free_bytes && now.reserved_bytes == blocks_.total_bytes());
      auto const* const left_out = contents == nullptr ? &largest_store() : nullptr;
      if (contents != nullptr || count - left_out->count() <= most_pieces_in_figures) {
        pieces.reserve(left_out == nullptr ? count : 3 * (count - left_out->count()) + 1);
        for_each_free([&](free_piece const& each) { pieces.push_back(each); }, left_out);
        if (left_out != nullptr) { add_pieces_in_runs(pieces, *left_out); }
        if (auto const* const all = seams()) { seam_addresses.assign(all->first, all->first + all->count); }
      } else {
        now.largest_free_bytes = largest_piece();
      }
      if (contents != nullptr) {
        graphs_.for_each_unused([&](address_range range) { graph_pieces.push_back({range, place::graphs, true, 0}); });
        contents->blocks.clear();
        blocks_.for_each([&](address_range block) { contents->blocks.push_back(block); });
      }
    }
    // Without the lock, because sorting takes longer than everything before.
    detail::sort(pieces.begin(), pieces.end(), in_order);
    auto const is_seam = [&](std::uintptr_t address) {
      return detail::binary_search(seam_addresses.begin(), seam_addresses.end(), address);
    };
    std::size_t run{};
    std::uintptr_t end{};
    for (auto const& [range, where, is_fenced, stream] : pieces) {
      if (range.end() == end) { continue; }  // it is there twice
      RMM_ASSERT(range.begin >= end);
      run                    = range.begin == end && !is_seam(end) ? run + range.bytes : range.bytes;
      end                    = range.end();
      now.largest_free_bytes = detail::max(now.largest_free_bytes, run);
    }
    RMM_ASSERT(now.largest_free_bytes <= now.free_bytes && (now.largest_free_bytes != 0) == (now.free_bytes != 0));
    if (contents != nullptr) {
      contents->pieces = std::move(pieces);
      contents->pieces.insert(contents->pieces.end(), graph_pieces.begin(), graph_pieces.end());
      detail::sort(contents->pieces.begin(), contents->pieces.end(), in_order);
    }
    return now;
  }

  /// Whether H1, and the invariants of all parts, hold; O(free ranges * log free ranges). Defined in stream_ordered_heap_validation.hpp.
  [[nodiscard]] RMM_COLD bool check_invariants() const noexcept;

  /// Moves the contents of a cache to the stores, because its thread ends. That thread calls it, with the lock of the known streams.
  /// `has_own_stream`: whether the thread's default stream still exists.
  RMM_COLD void retire(stream_cache& cache, pointer_bag const& known, bool has_own_stream) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    bool const is_alive =
      caches_.is_kept_alive(cache, known) || (has_own_stream && is_per_thread_stream(cache.stream()));
    caches_.retire(cache, is_alive);
  }

  // --- for graph_arena ---

  /// Takes `bytes` bytes of idle memory. Returns an empty range if no idle piece is large enough. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD address_range take_idle(std::size_t bytes)
  {
    detail::mutex_lock const lock{mutex_};
    if (!caches_.try_claim(nullptr)) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept { caches_.return_claim(nullptr); }};
    auto taken = shared_.idle().ranges().take_best(bytes);
    if (!taken) {
      shared_.poll(max_value<std::size_t>);
      taken = shared_.idle().ranges().take_best(bytes);
    }
    if (!taken) {
      all_closed const closed{caches_};
      collect_idle();
      taken = shared_.idle().ranges().take_best(bytes);
    }
    if (!taken) { return {}; }
    RMM_ASSERT(blocks_.holds({taken.begin, bytes}));
    cancel.dismiss();
    caches_.note_live(nullptr, static_cast<std::int64_t>(bytes));
    return {taken.begin, bytes};
  }

  /// Frees unused memory that take_idle() returned.
  RMM_COLD void put_idle(address_range range) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    RMM_ASSERT(blocks_.holds(range));
    caches_.note_live(nullptr, -static_cast<std::int64_t>(range.bytes));
    if (!shared_.try_insert_idle(range)) { return shared_.lose(range, device_waits::set_of(home_device())); }
    caches_.return_claim(nullptr);
  }

  /// Adds a block that no work uses, and takes its first `bytes` bytes, possibly 0. If it throws std::bad_alloc, the caller keeps the
  /// block.
  [[nodiscard]] RMM_COLD address_range add_idle_block(address_range block, std::size_t bytes)
  {
    detail::mutex_lock const lock{mutex_};
    auto const rest          = align_down(block.bytes, heap_granule) - bytes;
    std::size_t const claims = bytes != 0 ? 1 : 0;
    if (!shared_.idle().try_make_room(1) || !limits_.reserve.try_claim(claims)) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept { limits_.reserve.release(claims); }};
    adopt(block);
    cancel.dismiss();
    if (rest != 0) { shared_.idle().ranges().insert({block.begin + bytes, rest}, 0, seams()); }
    caches_.note_live(nullptr, static_cast<std::int64_t>(bytes));
    return {block.begin, bytes};
  }

  /// Records a fence on `stream`, which does not capture, for free_fenced(). Returns the identity of the store that has the fence; 0 on
  /// failure.
  [[nodiscard]] RMM_COLD std::uint64_t fence_for_frees(cudaStream_t stream) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    auto const identity = stream_identity(stream);
    auto* const store   = shared_.find_or_make(identity, device_of_stream(stream));
    return store != nullptr && shared_.try_add_fence(*store, stream) ? identity : 0;
  }

  /// Frees memory that the newest fence of a store covers.
  RMM_COLD void free_fenced(address_range range, std::uint64_t store) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    RMM_ASSERT(blocks_.holds(range));
    caches_.note_live(nullptr, -static_cast<std::int64_t>(range.bytes));
    auto* const found = shared_.find(store);
    if (found == nullptr || !found->try_make_room(1)) { return shared_.lose(range, device_waits::every_device); }
    found->ranges().insert(range, found->newest(), seams());
    caches_.return_claim(nullptr);
  }

  /// Frees memory that no fence covers: it is reused only after the devices were synchronised.
  RMM_COLD void free_after_a_wait(address_range range) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    RMM_ASSERT(blocks_.holds(range));
    caches_.note_live(nullptr, -static_cast<std::int64_t>(range.bytes));
    shared_.lose(range, device_waits::every_device);
  }

  void set_captures_are_announced(bool any) noexcept { slow_path_.set(slow_path::captures_announced, any); }
  void set_has_graph_memory(bool any) noexcept { slow_path_.set(slow_path::has_graph_memory, any); }

 private:
  static constexpr std::size_t most_polls             = 8;  // with one miss
  static constexpr std::size_t many_pieces            = 4096;
  static constexpr std::size_t most_pieces_in_figures = 4096;
  static constexpr std::size_t steps_between_checks   = 4096;  // with expensive assertions
  // The stream number, in heap_contents, of memory that has lost its stream.
  static constexpr std::uint64_t lost_stream = max_value<std::uint64_t> / 2;

  using all_closed  = typename basic_cache_set<Unused>::closed;
  using free_pieces = basic_piece_list<Unused>;

  struct listener : stream_end_listener {
    basic_stream_ordered_heap* heap{};
  };

  /// A scope in which the owner of a cache has entered it; false if another thread keeps the owner out.
  class cache_entered {
   public:
    RMM_ALWAYS_INLINE explicit cache_entered(stream_cache& cache) noexcept
      : cache_{cache}, entered_{cache.lock().try_enter()}
    {}
    RMM_ALWAYS_INLINE ~cache_entered()
    {
      if (entered_) { cache_.lock().leave(); }
    }
    cache_entered(cache_entered const&)            = delete;
    cache_entered& operator=(cache_entered const&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return entered_; }

   private:
    stream_cache& cache_;
    bool entered_;
  };

  [[nodiscard]] seam_list const* seams() const noexcept { return limits_.seams(); }

  // --- the search; with the lock ---

  /// The whole search; the comment of the class lists its steps. Returns null if no step finds memory. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD void* allocate_shared(std::size_t bytes, asker& who)
  {
    if (knows_no_run_of(bytes)) {
      wait_failed_ = false;
      return nullptr;
    }
    caches_.reopen(who.cache);
    caches_.note_scarcity();
    auto* const own = shared_.find(who.identity);
    if (own != nullptr) { shared_.fence_left(*own, who.stream); }
    bool const through_cache = who.cache != nullptr && !caches_.is_large(bytes);
    if (through_cache) {
      auto& cache = *who.cache;
      if (void* const ptr = caches_.take(cache, bytes)) { return ptr; }  // it may have been kept out before
      if (!cache.try_make_room(1)) { throw std::bad_alloc{}; }
      bool refilled = caches_.refill(cache, shared_.idle(), bytes);
      if (!refilled) {
        shared_.poll(most_polls);
        refilled = caches_.refill(cache, shared_.idle(), bytes);
      }
      if (!refilled) { refilled = caches_.refill_from_own(cache, own, bytes); }
      void* const ptr = refilled ? caches_.take(cache, bytes) : nullptr;
      if (ptr != nullptr) { return ptr; }
      if (void* const coalesced = caches_.take_coalesced(cache, bytes)) { return coalesced; }
    }

    if (!caches_.try_claim(who.cache)) { throw std::bad_alloc{}; }
    scope_guard cancel{[&]() noexcept { caches_.return_claim(who.cache); }};
    taken_range taken{};
    if (!through_cache) {
      shared_.poll(most_polls);
      taken = shared_.take_own_or_idle(bytes, own);
      if (!taken && who.cache != nullptr) {
        if (void* const ptr = caches_.take_coalesced(*who.cache, bytes)) { return ptr; }  // has claimed for itself
      }
    }
    if (!taken) { taken = shared_.take_from_other(bytes, own, who); }
    if (!taken) { taken = take_from_caches(bytes, own, who); }
    wait_failed_ = who.wait_failed;
    if (!taken) { return nullptr; }
    cancel.dismiss();
    return hand_out(taken, bytes, who);
  }

  /// Fences and coalesces what lies in caches. A pool that fails is full, and packs better afterwards (PACKING_TEST).
  RMM_COLD void coalesce_caches() noexcept
  {
    fence_live_streams();
    detail::mutex_lock const lock{mutex_};
    all_closed const closed{caches_};
    for (auto const& cache : caches_) { cache->empty_stacks(); }
  }

  /// Whether no run of neighbours has `bytes` bytes, as a search has found, and nothing has changed since.
  [[nodiscard]] bool knows_no_run_of(std::size_t bytes)
  {
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_stream_ordered_heap>(shared_.idle().ranges().count()) || has_no_run());
    return caches_.has_no_run_of(bytes);
  }

  /// Steps 5 and 6: takes memory of other caches, or a run of neighbours from several caches and stores.
  [[nodiscard]] taken_range take_from_caches(std::size_t bytes, free_store* own, asker& who)
  {
    bool const collects = caches_.is_shared() && pieces_searched_ > many_pieces;
    if (auto const some = caches_.first_of_many(); some.count != 0 && !collects) {
      all_closed const closed{caches_, some, who.cache};
      if (auto const taken = caches_.take_from_other(bytes, some, who)) { return taken; }
    }
    all_closed closed{caches_, who.cache};
    if (free_pieces::bound_of_runs(shared_, caches_) < bytes) {
      caches_.note_no_run_of(bytes, closed);
      return {};
    }
    taken_range taken{};
    // Large blocks need neighbours that lie in different caches. Once they have coalesced, they serve the next requests too.
    if (collects) {
      collect_idle();
      taken = shared_.take_own_or_idle(bytes, own);
    }
    if (!taken) { taken = caches_.take_from_other(bytes, caches_.all(), who); }
    if (!taken) { taken = take_coalesced(bytes, who, closed); }
    RMM_ASSERT_EXPENSIVE(check_sum(taken ? bytes : 0));
    return taken;
  }

  /// Step 6: coalesces neighbours from different caches and stores. Requires that all caches but the caller's are closed.
  [[nodiscard]] taken_range take_coalesced(std::size_t bytes, asker& who, all_closed& closed)
  {
    shared_.poll(max_value<std::size_t>);  // memory whose work is done needs no wait
    auto pieces      = list_pieces({bytes, nullptr, true});
    auto const taken = pieces.take(bytes, who);
    coalesced_ += taken ? 1U : 0U;
    if (!taken && !pieces.has_run(bytes)) { caches_.note_no_run_of(bytes, closed); }
    return taken;
  }

  [[nodiscard]] free_pieces list_pieces(wanted_runs const& wanted)
  {
    free_pieces made{shared_, caches_, seams(), wanted};
    pieces_searched_ += made.count();
    return made;
  }

  /// Counts a block as live, and returns its address.
  [[nodiscard]] void* hand_out(taken_range taken, std::size_t bytes, asker const& who) noexcept
  {
    RMM_ASSERT(taken && blocks_.holds({taken.begin, bytes}));  // H1
    caches_.note_live(who.cache, static_cast<std::int64_t>(bytes));
    return to_pointer(taken.begin);
  }

  /// Moves idle memory from caches and stores to the idle store. Requires that all caches but the caller's are closed.
  void collect_idle() noexcept
  {
    capture_exemption const exemption;
    shared_.poll(max_value<std::size_t>);
    if (caches_.collect_idle()) { pieces_searched_ = 0; }
  }

  /// Frees a block to its stream's store: a large block, or one of a thread that has no cache, because it ends or host memory ran out. The
  /// block gets a fence of its own, so that the next large request, on any stream, finds it coalesced with its neighbours.
  void free_to_store(address_range range, asker const& who) noexcept
  {
    RMM_ASSERT(blocks_.holds(range));  // H1
    caches_.note_live(who.cache, -static_cast<std::int64_t>(range.bytes));
    auto* const store = shared_.find_or_make(who.identity, who.device);
    if (store != nullptr && store->try_make_room(1) && shared_.try_add_fence(*store, who.stream)) {
      store->ranges().insert(range, store->newest(), seams());
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
  RMM_COLD void fence_in_turn(stream_cache& cache) noexcept
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
      }
    }
    // The handle names a new stream, which made some of these frees. No event can cover the frees of the old one.
    if (!current) { return caches_.drop(cache); }
    detail::mutex_lock const lock{mutex_};
    caches_.flush(cache);
  }

  /// Fences all memory freed on a known stream that is about to end.
  static void stream_ends(stream_end_listener& self, cudaStream_t stream) noexcept
  {
    auto& heap = *static_cast<listener&>(self).heap;
    detail::mutex_lock const lock{heap.mutex_};
    auto const is_its       = [&](auto const& cache) { return cache->stream() == stream && !cache->has_ended(); };
    auto const any_unfenced = [](auto const& store) { return !store->unfenced().empty(); };
    auto const& stores      = heap.shared_.stores();
    if (detail::none_of(heap.caches_.begin(), heap.caches_.end(), is_its) &&
        detail::none_of(stores.begin(), stores.end(), any_unfenced)) {
      return;
    }
    auto const identity = stream_identity(stream);
    if (auto* const store = heap.shared_.find(identity)) { heap.shared_.fence_left(*store, stream); }
    all_closed const closed{heap.caches_};
    for (auto const& cache : heap.caches_) {
      if (!is_its(cache)) { continue; }
      // CUDA does not tell the identity of a capturing stream. A cache with a lasting handle belongs to this stream, though.
      if (identity != 0 ? cache->identity() != identity : !cache->is_lasting()) { continue; }
      if (cache->has_unfenced()) { static_cast<void>(cache->fence(stream)); }
      heap.caches_.note_end(*cache);
    }
    RMM_ASSERT_EXPENSIVE(heap.check_sum());
  }

  // --- waits on the host; with the lock ---

  /// Waits for all events, which is allowed during captures; synchronising the device is not.
  void wait_for_fenced_memory() noexcept
  {
    capture_exemption const exemption;
    all_closed const closed{caches_};
    for (auto const& cache : caches_) { cache->event().synchronize_no_throw(); }
    for (auto const& store : shared_.stores()) { store->synchronize(); }
  }

  /// Waits for the devices, and marks all free memory as fenced and all fences as reached. Returns false, and changes nothing, if it
  /// cannot wait. Requires that all caches are closed, because the wait covers only frees from before it.
  [[nodiscard]] bool everything_is_reached(device_waits::permission may) noexcept
  {
    if (!waits_.try_wait_for(devices_of_free_memory(), may)) { return false; }
    ++device_synchronizations_;
    for (auto const& cache : caches_) { cache->all_fenced(); }
    shared_.all_reached();
    RMM_ASSERT(detail::none_of(
      shared_.stores().begin(), shared_.stores().end(), [](auto const& store) { return store->has_fences(); }));
    RMM_ASSERT_EXPENSIVE(check_sum());
    return true;
  }

  void wait_for_free_memory(device_waits::permission may) noexcept
  {
    capture_exemption const exemption;
    bool unfenced = limits_.reserve.waiting() != 0;
    for (auto const& cache : caches_) {
      unfenced = unfenced || cache->has_unfenced();
      if (cache->free_pieces().first != 0) { cache->event().synchronize_no_throw(); }
    }
    for (auto const& store : shared_.stores()) {
      unfenced = unfenced || !store->unfenced().empty();
      if (!store->is_empty()) { store->synchronize(); }
    }
    if (unfenced) { static_cast<void>(waits_.try_wait_for(devices_of_free_memory(), may)); }
  }

  /// Returns the devices of all streams that free memory waits for. These devices have contexts, because their streams were used.
  [[nodiscard]] std::uint64_t devices_of_free_memory() const noexcept
  {
    auto devices = shared_.lost_devices();
    for (auto const& cache : caches_) {
      if (cache->has_fenced_blocks() || !cache->ranges().empty()) { devices |= device_waits::set_of(cache->device()); }
      if (cache->has_unfenced()) { devices |= caches_.devices_of_unfenced(*cache); }
    }
    for (auto const& store : shared_.stores()) {
      if (!store->ranges().empty() || store->has_fences()) { devices |= device_waits::set_of(store->device()); }
      if (!store->unfenced().empty()) { devices |= device_waits::every_device; }
    }
    return devices;
  }

  // --- blocks; with the lock ---

  /// Adds an upstream block, and a seam where it touches another. If it throws std::bad_alloc, nothing has changed.
  void adopt(address_range block)
  {
    if (blocks_.touches(block)) {
      all_closed const closed{caches_};
      blocks_.add(block);
    } else {
      blocks_.add(block);
    }
    caches_.set_block_bytes(blocks_.total_bytes());
  }

  [[nodiscard]] std::vector<address_range> withdraw_locked(std::vector<address_range> const& wanted,
                                                           leaving when,
                                                           cuda_stream_view waiting)
  {
    std::vector<address_range> taken;
    if (wanted.empty()) { return taken; }
    taken.reserve(wanted.size());
    context_scope const with_context{home_device()};
    all_closed const closed{caches_};
    capture_exemption const exemption;
    shared_.poll(max_value<std::size_t>);
    auto least = wanted.front().bytes;
    for (auto const range : wanted) { least = detail::min(least, range.bytes); }
    auto found = list_pieces({least});
    auto first = found.begin();
    for (auto const range : wanted) {
      first = detail::find_if(first, found.end(), [&](auto const& each) { return each.range.end() > range.begin; });
      if (first == found.end()) { break; }
      if (first->range.begin > range.begin) { continue; }
      auto last = first + 1;
      while (last != found.end() && (last - 1)->range.end() < range.end() && found.are_neighbours(last[-1], *last)) {
        ++last;
      }
      if ((last - 1)->range.end() < range.end() || !try_take_out(first, last, range, when, waiting.value())) {
        continue;
      }
      taken.push_back(range);
      first              = last - 1;
      first->range.bytes = first->range.end() - range.end();  // what is left above
      first->range.begin = range.end();
    }
    RMM_ASSERT(taken.size() <= wanted.size());
    RMM_ASSERT_EXPENSIVE(check_sum());
    return taken;
  }

  /// Takes a range out of its pieces and out of its block. Returns false, and takes nothing, if a piece may not leave now.
  [[nodiscard]] bool try_take_out(typename free_pieces::iterator first,
                                  typename free_pieces::iterator last,
                                  address_range range,
                                  leaving when,
                                  cudaStream_t waiting) noexcept
  {
    auto const own = when == leaving::in_order ? stream_identity(waiting) : 0;
    for (auto at = first; at != last; ++at) {
      auto* const store = at->store;
      if (!free_pieces::try_empty_stacks(at, at + 1)) { return false; }
      if (store != nullptr ? !store->try_make_room(1) : !at->cache->try_make_room(1)) { return false; }
      bool const at_once =
        store != nullptr ? store == &shared_.idle() || at->epoch <= store->reached() : at->cache->event().is_reached();
      if (at_once) { continue; }
      if (own != 0 && at->stream() == own) { continue; }
      if (when != leaving::after_a_wait) { return false; }
      if (store != nullptr ? !store->try_make_wait(waiting, at->epoch) : !at->cache->event().try_make_wait(waiting)) {
        return false;
      }
    }
    if (!blocks_.try_cut(range)) { return false; }
    caches_.set_block_bytes(blocks_.total_bytes());
    free_pieces::cut(first, last, range);
    return true;
  }

  // --- checks, and parts of figures(); with the lock, while all caches are closed ---

  [[nodiscard]] inline bool has_no_run();

  /// Whether the first part of H1 holds. `on_their_way`: bytes that were taken and do not count as live yet.
  [[nodiscard]] bool check_sum(std::size_t on_their_way = 0) const
  {
    auto sum = limits_.reserve.waiting_bytes() + shared_.idle().ranges().total_bytes() + on_their_way;
    for (auto const& store : shared_.stores()) {
      sum += store->ranges().total_bytes();
      for (auto const range : store->unfenced()) { sum += range.bytes; }
    }
    for (auto const& cache : caches_) { sum += cache->free_pieces().second; }
    return sum + static_cast<std::size_t>(caches_.live_bytes()) == blocks_.usable_bytes();
  }

  /// Writes all figures except the largest free piece. Returns the number of free pieces.
  [[nodiscard]] std::size_t add_up(heap_figures& now) const
  {
    auto count     = shared_.idle().ranges().count() + limits_.reserve.waiting();
    now.free_bytes = shared_.idle().ranges().total_bytes() + limits_.reserve.waiting_bytes();
    for (auto const& store : shared_.stores()) {
      count += store->ranges().count() + store->unfenced().size();
      now.free_bytes += store->ranges().total_bytes();
      for (auto const range : store->unfenced()) { now.free_bytes += range.bytes; }
    }
    for (auto const& cache : caches_) {
      auto const [pieces, bytes] = cache->free_pieces();
      count += pieces;
      now.cached_bytes += bytes;
    }
    now.free_bytes += now.cached_bytes;
    now.graph_bytes             = graphs_.bytes();
    now.live_bytes              = static_cast<std::size_t>(caches_.live_bytes()) - now.graph_bytes;
    now.reserved_bytes          = block_bytes();
    now.upstream_blocks         = blocks_.count();
    now.caches                  = caches_.count();
    now.from_other_streams      = shared_.waits_for_others();
    now.from_other_caches       = caches_.taken_from_others();
    now.put_together            = coalesced_;
    now.device_synchronizations = device_synchronizations_;
    return count;
  }

  /// Returns the ranges of the store with the most ranges.
  [[nodiscard]] range_set const& largest_store() const noexcept
  {
    auto const* largest = &shared_.idle().ranges();
    for (auto const& store : shared_.stores()) {
      if (store->ranges().count() > largest->count()) { largest = &store->ranges(); }
    }
    return *largest;
  }

  /// Adds to `pieces` those of `ranges` that touch one of the pieces, some twice, and the largest of `ranges`. Then the pieces contain the
  /// longest run.
  static void add_pieces_in_runs(std::vector<free_piece>& pieces, range_set const& ranges)
  {
    auto const add = [&](fenced_range const& found) {
      if (found) { pieces.push_back({found.range}); }
    };
    for (std::size_t at = 0, others = pieces.size(); at != others; ++at) {
      auto const other = pieces[at].range;
      add(ranges.range_ending_at(other.begin));
      add(ranges.range_beginning_at(other.end()));
    }
    fenced_range largest;
    ranges.for_each_of_at_least(ranges.largest(), [&](fenced_range const& found) {
      if (found.range.bytes > largest.range.bytes) { largest = found; }
    });
    add(largest);
  }

  /// Calls visit(free_piece) for each free piece, except the ranges of `left_out` if it is given.
  template <class Visit>
  void for_each_free(Visit&& visit, range_set const* left_out = nullptr) const
  {
    using place            = free_piece::place;
    auto const visit_store = [&](free_store const& store, free_piece piece) {
      if (&store.ranges() == left_out) { return; }
      store.ranges().for_each([&](address_range range, std::uint64_t) {
        piece.range = range;
        visit(piece);
      });
    };
    visit_store(shared_.idle(), free_piece{});
    for (auto const& store : shared_.stores()) {
      auto const stream = store->identity();
      visit_store(*store, {{}, place::store, true, stream});
      for (auto const range : store->unfenced()) { visit(free_piece{range, place::store, false, stream}); }
    }
    limits_.reserve.for_each([&](address_range range) { visit(free_piece{range, place::store, false, lost_stream}); });
    for (auto const& cache : caches_) {
      cache->for_each_free([&](address_range range, bool fenced) {
        visit(free_piece{range, place::cache, fenced, cache->identity()});
      });
    }
  }

  /// Bytes of the largest free piece, not coalesced with neighbours elsewhere.
  [[nodiscard]] std::size_t largest_piece() const
  {
    auto largest    = shared_.idle().ranges().largest();
    auto const look = [&](address_range range) { largest = detail::max(largest, range.bytes); };
    shared_.for_each_unfenced(look);
    for (auto const& store : shared_.stores()) { largest = detail::max(largest, store->ranges().largest()); }
    for (auto const& cache : caches_) { largest = detail::max(largest, cache->largest_piece()); }
    return largest;
  }

  // Read by all threads in each call, hardly ever written.
  slow_path slow_path_;
  basic_cache_set<Unused> caches_{known_streams().new_number(), mutex_, slow_path_, limits_, shared_, waits_};
  heap_limits limits_;
  device_waits const waits_;
  stream_lifetimes& streams_{known_streams()};

  alignas(64) mutable detail::mutex mutex_;  // guards what follows, and of caches_ what that says
  shared_free_lists shared_{limits_};
  block_map blocks_{limits_.seam_addresses};
  std::size_t pieces_searched_{};  // in other caches and stores, since the last collect_idle()
  bool wait_failed_{false};        // for memory that the last search found
  std::uint64_t coalesced_{};
  std::uint64_t device_synchronizations_{};
  listener end_listener_{};
  graph_arena<basic_stream_ordered_heap> graphs_{*this};
};

using stream_ordered_heap = basic_stream_ordered_heap<void>;
RMM_COMPILED_ONCE(basic_stream_ordered_heap<void>);
RMM_COMPILED_ONCE(graph_arena<stream_ordered_heap>);

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>
#endif
