// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/failure.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/owner_lock.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/capture_memory.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/stream_cache.hpp>
#include <rmm/detail/stream/thread_caches.hpp>
#include <rmm/heap_figures.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Hands out parts of upstream blocks, so that memory freed on one stream reaches another only in the order of their work.
///
/// Each thread has a cache for each stream that it uses (stream_cache.hpp); it enters that with plain stores and no CUDA
/// call. What caches do not hold lies in stores (free_store.hpp), under a lock: one for each stream, and one for memory that
/// no work can use any more. What a cache lacks is looked for in this order, and the first that has it gives it:
///
///   1. the cache's own stacks, recent frees and ranges
///   2. the store of memory free for all, from which a cache takes somewhat more than is asked; events of other stores that
///      are found reached move their memory there; then the stream's own store
///   3. the cache's own stacks again, emptied and joined with its ranges
///   4. one range of another stream's store, after a wait for its event on the device
///   5. one range of another cache, whose owner is kept out meanwhile, after a wait if it is another stream's
///   6. neighbours that lie in different caches and stores, put together; waits for those that they are taken from
///   7. nothing: the caller may add a block, or call allocate_synchronized(), which waits on the host for the device, after
///      which all that is free is free for all
///
/// As long as there is one cache it holds everything. As soon as there are more, large blocks go past them (is_wide()): they
/// are marked one by one, and looked for in the stores first, where all streams' free memory joins. Small blocks are cut from
/// the ends of ranges, and what caches take at a time from the top of memory, so that they do not lie between large ones.
///
/// Invariants:
///  H1  sum(free) + sum(allocated) == sum(blocks), each rounded down to granules; no two free ranges overlap
///  H2  memory reaches a stream that did not free it only behind a wait for an event recorded, on the stream that freed it,
///      after it was freed; or when such an event is reached; or when the device was synchronised after it was freed
///  H3  a stream's handle is used only in calls that the program makes with it, and while rmm::cuda_stream ends it
///  H4  deallocate() needs no host memory: C3 of the caches, F3 of the stores
///  H5  no event is recorded on a stream that captures, nor waited for by one; what a capture allocates, and what it frees,
///      is in a captured_memory, and goes to no other work while the graph may run
///
/// While captures are announced, detour_ sends all calls out of line, where the runtime is asked what the stream does. While
/// it is 0 only slow paths ask.
///
/// Thread-safe. The order of locks: that of the known streams or that of the announced captures, a heap_link's, the heap's.
/// Events are recorded and waited for under the heap's lock or inside a cache: what is free and what the event marks have to
/// change together.
///
/// A template without a use for its parameter: whoever includes it and makes no heap does not compile what it does.
template <class Unused>
class basic_stream_ordered_heap {
 public:
  /// Rounding up more would wrap.
  static constexpr std::size_t largest_request = std::numeric_limits<std::size_t>::max() - (heap_granule - 1);

  /// Throws std::bad_alloc.
  basic_stream_ordered_heap() : streams_{known_streams()}, link_{std::make_shared<heap_link>()}
  {
    link_->heap   = this;
    link_->retire = [](basic_stream_ordered_heap& heap, stream_cache& cache) noexcept { heap.retire(cache); };
    end_listener_.stream_ends = stream_ends;
    end_listener_.heap        = this;
    spare_events_.reserve(most_spare_events);
    capture_listener_.captures_are_announced = captures_are_announced;
    capture_listener_.graph_memory_ends      = graph_memory_ends;
    capture_listener_.heap                   = this;
    streams_.add(end_listener_);
    scope_guard undo{[&]() noexcept { streams_.remove(end_listener_); }};
    captures_.add(capture_listener_);
    undo.dismiss();
  }
  basic_stream_ordered_heap(basic_stream_ordered_heap const&)            = delete;
  basic_stream_ordered_heap& operator=(basic_stream_ordered_heap const&) = delete;

  ~basic_stream_ordered_heap()
  {
    release_blocks([](void*, std::size_t) {});
  }

  /// Takes `bytes` bytes, at least 1, that `stream` may use at once. Null if no free memory has so many, put together as
  /// far as possible. Throws std::bad_alloc if there is no host memory to note it; logic_error if it finds that the stream
  /// captures and nobody announced that.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate(std::size_t bytes, cuda_stream_view stream)
  {
    if (void* const ptr = try_allocate_at_once(bytes, stream)) { return ptr; }
    return try_allocate_elsewhere(bytes, stream);
  }

  /// The short part of that: null if the block is not small, or not in the thread's own cache, or anybody wants to see all calls.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate_at_once(std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= small_block_limit || (detour_.load(std::memory_order_relaxed) & detours_to_allocate) != 0) {
      return nullptr;
    }
    auto* const cache = find_cache_at_once(stream.value());
    if (cache == nullptr || !cache->is_trusted() || !cache->lock().try_enter()) { return nullptr; }
    void* const ptr = cache->try_pop((bytes + heap_granule - 1) / heap_granule);
    cache->lock().leave();
    return ptr;
  }

  /// The rest of it.
  [[nodiscard]] void* try_allocate_elsewhere(std::size_t bytes, cuda_stream_view stream)
  {
    return allocate_out_of_line(bytes, stream.value());
  }

  /// Gives back what was allocated for the same `bytes`. What is freed by a stream that captures is used for nothing else while
  /// the graph may run: without an announcement until the heap goes, which is logged once.
  RMM_ALWAYS_INLINE void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (!try_deallocate_at_once(ptr, bytes, stream)) { deallocate_elsewhere(ptr, bytes, stream); }
  }

  /// The short part of that; false, and nothing has changed, as with try_allocate_at_once().
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_deallocate_at_once(void* ptr,
                                                              std::size_t bytes,
                                                              cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= small_block_limit || detour_.load(std::memory_order_relaxed) != 0) { return false; }
    auto* const cache = find_cache_at_once(stream.value());
    if (cache == nullptr || !cache->lock().try_enter()) { return false; }
    bool const pushed = cache->try_push(ptr, (bytes + heap_granule - 1) / heap_granule);
    bool const due    = cache->is_mark_due();
    cache->lock().leave();
    if (pushed && due) { mark_out_of_line(*cache); }
    return pushed;
  }

  /// The rest of it.
  void deallocate_elsewhere(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    deallocate_out_of_line(ptr, bytes, stream.value());
  }

  /// What try_allocate() takes from the thread's own cache, if that needs no lock, no call of CUDA and no joining; else null, and
  /// nothing has changed. See mr/detail/immediate_resource.hpp for who needs that.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate_without_waiting(std::size_t bytes,
                                                                     cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= largest_request || takes_detour(detours_to_allocate, stream.value())) { return nullptr; }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = find_cache_at_once(stream.value());
    if (cache == nullptr || !cache->is_trusted() || is_wide(bytes)) { return nullptr; }
    cache_entered const inside{*cache};
    if (!inside) { return nullptr; }
    try {
      return take_at_once(*cache, bytes);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  /// What deallocate() puts into the thread's own cache, if that needs none of these either, so if it is not time to record an
  /// event; else false, and nothing has changed.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_deallocate_without_waiting(void* ptr,
                                                                      std::size_t bytes,
                                                                      cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= largest_request || takes_detour(all_detours, stream.value())) { return false; }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = find_cache_at_once(stream.value());
    if (cache == nullptr || is_wide(bytes)) { return false; }
    cache_entered const inside{*cache};
    if (!inside || cache->makes_mark_due(bytes)) { return false; }
    return bytes > small_block_limit ? cache->try_add_recent(ptr, bytes) : cache->try_push(ptr, granules_of(bytes));
  }

  /// Tells that an allocated block will be given back in one part more than so far, each with its own address and size. False if
  /// the host has no memory to note that.
  [[nodiscard]] RMM_COLD bool try_divide() noexcept
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return everyones_.try_claim();
  }

  /// The devices whose work may use the memory; none: the one that is current in each call. Before any other call.
  void set_devices(std::vector<int> devices) noexcept { devices_ = std::move(devices); }
  [[nodiscard]] std::vector<int> const& devices() const noexcept { return devices_; }

  /// Whether the short parts serve nothing: for an owner of the heap that wants to see all calls.
  void set_detour(bool on) noexcept { set_detour(detour_owner, on); }

  /// The last resort: waits on the host for all work of the current device, and joins all that is free. Null if that is not
  /// enough either, or the runtime cannot wait. Does not wait unless that makes at least `worth` bytes free that try_allocate()
  /// could not take.
  [[nodiscard]] RMM_COLD inline void* allocate_synchronized(std::size_t bytes,
                                                            cuda_stream_view stream,
                                                            std::size_t worth = 1);

  /// Adds a block that upstream gave for use on `stream`, and takes its first `bytes` bytes. A block for a stream that captures,
  /// or is blocked by a capture, is one that no work uses (see suballocator_upstream). Throws std::bad_alloc, and has not
  /// taken the block then. Requires `bytes <= block_bytes`, rounded up and down to granules.
  [[nodiscard]] RMM_COLD inline void* add_block_and_allocate(void* block,
                                                             std::size_t block_bytes,
                                                             std::size_t bytes,
                                                             cuda_stream_view stream);

  /// Adds memory that no work uses, and that joins with the block that it touches: one that grows in place. Throws
  /// std::bad_alloc, and has not taken it then.
  RMM_COLD inline void extend(address_range added);

  /// What is free, whoever freed it, joined with its neighbours, ascending: all that an event marks. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> free_runs();

  /// The blocks, ascending.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> blocks() const;

  /// When memory may leave the heap.
  enum class leaving {
    at_once,      ///< only if no work uses it any more
    after_a_wait  ///< if an event says when; what is enqueued on the given stream later comes after that
  };

  /// Takes those of `wanted`, ascending, out of the heap that lie in one block, whole ones possibly, and are free by `when`.
  /// Returns them. Seams at their ends go. Throws std::bad_alloc, and has taken nothing then.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> withdraw(std::vector<address_range> const& wanted,
                                                                    leaving when,
                                                                    cuda_stream_view waiting);

  /// The same, after a wait, for blocks that are to go back to where they came from: those of `wanted` that are still blocks,
  /// and whole ones. Since the caller looked, another thread may have given one back, and got its addresses as a part of a new
  /// one.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> withdraw_blocks(std::vector<address_range> wanted,
                                                                           cuda_stream_view waiting);

  /// Waits on the host for the device, after which all that is free is free for all. False if the runtime cannot wait.
  RMM_COLD bool wait_for_all()
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    all_caches_closed const closed{*this};
    return everything_is_reached();
  }

  /// Whether all calls ask if their stream captures, also while no capture is announced.
  void set_checks_captures(bool on) noexcept { set_detour(detour_checks, on); }
  [[nodiscard]] bool checks_captures() const noexcept
  {
    return (detour_.load(std::memory_order_relaxed) & detour_checks) != 0;
  }

  /// Makes free for all what no work uses any more, as far as CUDA says so without waiting. Not for hot paths.
  RMM_COLD void settle() noexcept
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    poll(std::numeric_limits<std::size_t>::max());
  }

  /// Waits for the work that may use free memory, calls release(pointer, bytes) for each block and forgets it, with all that
  /// is free or allocated in it. No other call may run, and the only one that may follow is the destructor.
  template <class Release>
  RMM_COLD void release_blocks(Release&& release) noexcept
  {
    {
      std::lock_guard<std::mutex> const lock{link_->mutex};
      link_->heap = nullptr;  // threads that end leave their caches alone from now on
    }
    streams_.remove(end_listener_);
    captures_.remove(capture_listener_);
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      wait_for_free_memory();
      captured_.clear();
      caches_.clear();
      stores_.clear();
      everyones_.ranges().clear();
    }
    // Without the lock: upstream may be a heap too, which looks at what links this thread to others.
    for (auto const& [begin, bytes] : blocks_) { release(to_pointer(begin), bytes); }
    blocks_.clear();
    block_bytes_.store(0, std::memory_order_relaxed);
  }

  /// Bytes of all blocks.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_.load(std::memory_order_relaxed); }

  /// The figures; writes what they count to `contents` as well, if that is given.
  [[nodiscard]] RMM_COLD inline heap_figures figures(heap_contents* contents = nullptr) const;

  /// Whether H1, and the invariants of all parts, hold; O(free ranges). For tests.
  [[nodiscard]] RMM_COLD inline bool check_invariants() const;

  /// A thread ends, or has no more use for a cache: what is in it goes to the stores. Called by its owner.
  RMM_COLD void retire(stream_cache& cache) noexcept
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    retire_locked(cache);
  }

 private:
  static constexpr std::size_t most_spare_events    = 32;
  static constexpr std::size_t most_polls           = 8;  // with one miss
  static constexpr std::size_t stack_shortening     = 16;
  static constexpr std::size_t most_thread_caches   = 256;
  static constexpr std::size_t largest_lease        = std::size_t{8} << 20;
  static constexpr std::size_t most_unmarked_alone  = std::size_t{16} << 20;
  static constexpr std::size_t few_ranges           = 64;
  static constexpr std::size_t least_wide           = std::size_t{1} << 20;
  static constexpr std::size_t usual_captured_chunk = std::size_t{2} << 20;
  // Of a store for what graphs used, whatever stream they ran on: no stream has it.
  static constexpr std::uint64_t identity_of_graphs = std::numeric_limits<std::uint64_t>::max() - 1;

  struct listener : stream_end_listener {
    basic_stream_ordered_heap* heap{};
  };
  struct listener_for_captures : capture_listener {
    basic_stream_ordered_heap* heap{};
  };

  // Bits of detour_. Deallocations take the detour for each of them.
  static constexpr unsigned detour_announced    = 1;  // captures are announced
  static constexpr unsigned detour_checks       = 2;  // the heap was told to ask always
  static constexpr unsigned detour_has_memory   = 4;  // of graphs, so each free has to be looked at
  static constexpr unsigned detour_owner        = 8;  // the owner wants to see each call
  static constexpr unsigned detours_that_ask    = detour_announced | detour_checks;
  static constexpr unsigned detours_to_allocate = detours_that_ask | detour_owner;
  static constexpr unsigned all_detours         = detours_to_allocate | detour_has_memory;

  /// Keeps the owners of all caches out as long as it lives, but for one, the caller's own. With the heap's lock.
  class all_caches_closed {
   public:
    explicit all_caches_closed(basic_stream_ordered_heap const& heap, stream_cache const* own = nullptr) noexcept
      : heap_{heap}, own_{own}
    {
      bool any = false;
      for_each_other([&](owner_lock& lock) {
        lock.begin_keeping_out();
        any = true;
      });
      if (!any) { return; }
      process_barrier::pass_all_threads();
      for_each_other([](owner_lock& lock) { lock.wait_until_left(); });
    }
    ~all_caches_closed()
    {
      for_each_other([](owner_lock& lock) { lock.end_keeping_out(); });
    }
    all_caches_closed(all_caches_closed const&)            = delete;
    all_caches_closed& operator=(all_caches_closed const&) = delete;

   private:
    template <class Visit>
    void for_each_other(Visit&& visit) const noexcept
    {
      for (auto const& cache : heap_.caches_) {
        if (cache.get() != own_) { visit(cache->lock()); }
      }
    }

    basic_stream_ordered_heap const& heap_;
    stream_cache const* own_;
  };

  /// Inside a cache, as its owner.
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

  /// Who asks: the stream, as handle and number, and the cache, if the thread has one. Only for the time of one call.
  struct asker {
    cudaStream_t stream;
    std::uint64_t identity;  // 0: unknown to the runtime
    stream_cache* cache;
    bool may_wait{true};  // for events: the stream is not blocked by a capture
  };

  /// Free memory and the set that it lies in, one of the two.
  struct piece {
    address_range range;
    std::uint64_t stamp;
    free_store* store;
    stream_cache* cache;

    [[nodiscard]] range_set& ranges() const noexcept { return store != nullptr ? store->ranges() : cache->ranges(); }
  };

  [[nodiscard]] static void* to_pointer(std::uintptr_t address) noexcept
  {
    return reinterpret_cast<void*>(address);  // NOLINT: the heap works on addresses
  }

  [[nodiscard]] static std::size_t granules_of(std::size_t bytes) noexcept { return bytes / heap_granule; }

  // --- a thread's own cache (caches.ipp) ---

  [[nodiscard]] RMM_ALWAYS_INLINE stream_cache* find_cache_at_once(cudaStream_t stream) const noexcept
  {
    auto const& slot = cache_slot_of(number_, stream);
    return slot.heap == number_ && slot.stream == stream ? slot.cache : nullptr;
  }

  [[nodiscard]] void* allocate_out_of_line(std::size_t bytes, cudaStream_t stream);
  void deallocate_out_of_line(void* ptr, std::size_t bytes, cudaStream_t stream) noexcept;

  /// From what the cache has. Inside it, or with the lock.
  [[nodiscard]] void* take(stream_cache& cache, std::size_t bytes) const
  {
    if (void* const ptr = take_at_once(cache, bytes)) { return ptr; }
    // What was freed lately may do, once it is joined.
    if (cache.join_marked()) {
      if (void* const ptr = take_at_once(cache, bytes)) { return ptr; }
    }
    if (cache.unmarked_bytes() < bytes || !mark(cache)) { return nullptr; }
    static_cast<void>(cache.join_marked());
    return take_at_once(cache, bytes);
  }

  [[nodiscard]] void* take_at_once(stream_cache& cache, std::size_t bytes) const
  {
    if (bytes > small_block_limit) { return cache.take(bytes); }
    if (void* const ptr = cache.try_pop(granules_of(bytes))) { return ptr; }
    return cache.take_run(granules_of(bytes), is_shared());
  }

  /// Puts a block into the cache. Inside it, or with the lock. False if there is no place.
  [[nodiscard]] bool put(stream_cache& cache, void* ptr, std::size_t bytes) const noexcept
  {
    if (bytes > small_block_limit) {
      return cache.try_add_recent(ptr, bytes) || (mark(cache) && cache.try_add_recent(ptr, bytes));
    }
    auto const granules = granules_of(bytes);
    if (cache.try_push(ptr, granules)) { return true; }
    if (!cache.has_marked(granules) && !mark(cache)) { return false; }
    return cache.shorten_stack(granules, stack_shortening) && cache.try_push(ptr, granules);
  }

  /// Marks what was freed; where no event can be recorded, waits on the host. False if that cannot be done either, or the
  /// handle does not name the cache's stream any more.
  bool mark(stream_cache& cache) const noexcept { return cache.is_current() && mark_current(cache); }

  bool mark_current(stream_cache& cache) const noexcept
  {
    if (cache.mark(cache.stream())) { return true; }
    if (!query_capture(cache.stream()).is_none() || !wait_for_devices()) { return false; }
    cache.all_marked();
    return true;
  }

  RMM_COLD inline void mark_out_of_line(stream_cache& cache) noexcept;

  /// The cache of the calling thread for `stream`, made if there is none. Null if there can be none. With `ask` it is
  /// certain that it is for the stream that the handle names now.
  [[nodiscard]] stream_cache* find_or_make_cache(cudaStream_t stream, bool ask) noexcept;
  [[nodiscard]] RMM_COLD inline stream_cache* make_cache(thread_caches& mine, cudaStream_t stream) noexcept;
  RMM_COLD void drop(thread_caches& mine, stream_cache& cache) noexcept
  {
    mine.forget(number_, &cache);
    retire(cache);
  }
  void retire_locked(stream_cache& cache) noexcept;

  /// A known stream is about to end, so this is the last chance to mark what was freed on it.
  static void stream_ends(stream_end_listener& self, cudaStream_t stream) noexcept;

  // --- under the lock (search.ipp, caches.ipp) ---

  [[nodiscard]] RMM_COLD inline void* allocate_locked(std::size_t bytes, asker const& who);
  [[nodiscard]] void* allocate_through_cache(std::size_t bytes, stream_cache& cache, free_store* own);
  [[nodiscard]] void* take_joined(stream_cache& cache, std::size_t bytes);
  [[nodiscard]] bool lease(free_store& from, std::size_t bytes, stream_cache& to);
  [[nodiscard]] void* from_stores_at_once(std::size_t bytes, free_store* own, asker const& who);
  [[nodiscard]] void* from_other_store(std::size_t bytes, asker const& who);
  [[nodiscard]] void* from_other_cache(std::size_t bytes, asker const& who);
  [[nodiscard]] inline std::vector<piece> collect_pieces(std::size_t least = 0);
  [[nodiscard]] bool joins(piece const& lower, piece const& upper) const noexcept
  {
    return upper.range.begin == lower.range.end() && (seams() == nullptr || !seams()->contains(upper.range.begin));
  }
  [[nodiscard]] void* put_together(std::size_t bytes, asker const& who);
  [[nodiscard]] void* hand_out(taken_range taken, std::size_t bytes, asker const& who) noexcept;
  [[nodiscard]] bool try_claim(asker const& who) noexcept
  {
    return who.cache != nullptr ? who.cache->try_claim() : everyones_.try_claim();
  }
  void cancel_claim(asker const& who) noexcept
  {
    if (who.cache != nullptr) {
      who.cache->cancel_claim();
    } else {
      everyones_.add_claims(-1);
    }
  }

  void note_live(asker const& who, std::int64_t bytes) noexcept
  {
    if (who.cache != nullptr) {
      who.cache->note_live(bytes);
    } else {
      live_without_cache_ += bytes;
    }
  }

  void free_to_store(address_range range, asker const& who) noexcept;
  void free_without_memory(address_range range) noexcept;

  /// Whether there is more than one cache.
  [[nodiscard]] bool is_shared() const noexcept { return wide_.load(std::memory_order_relaxed) != range_set::no_limit; }

  /// Whether a block is so large that it is better kept where all can join it with its neighbours.
  [[nodiscard]] bool is_wide(std::size_t bytes) const noexcept { return bytes > wide_.load(std::memory_order_relaxed); }
  /// The same of a range in a cache. One that takes back what others allocated gives all at a time, and need not.
  [[nodiscard]] bool has_to_spill(stream_cache const& cache) const noexcept
  {
    return is_shared() && cache.live_bytes() >= 0 &&
           cache.ranges().largest() / 4 >= wide_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_beyond_share(stream_cache const& cache) const noexcept;
  void overflow(stream_cache& cache) noexcept;
  void poll(std::size_t most) noexcept;
  void move_reached(free_store& store) noexcept;
  [[nodiscard]] bool everything_is_reached() noexcept;

  /// Waits on the host for all work that may use the memory. False if the runtime cannot wait, or that would break a capture.
  [[nodiscard]] RMM_COLD bool wait_for_devices() const noexcept
  {
    if (devices_.empty()) { return try_wait_for_device(); }
    return std::all_of(devices_.begin(), devices_.end(), [](int device) {
      cuda_set_device_raii const scope{cuda_device_id{device}};
      return try_wait_for_device();
    });
  }
  [[nodiscard]] std::size_t unmarked_bytes() const noexcept;
  void mark_store(free_store& store, cudaStream_t stream) noexcept;
  void insert_unmarked(free_store& from, free_store& to) noexcept;
  void wait_for_free_memory() noexcept;

  [[nodiscard]] free_store* find_store(std::uint64_t identity) noexcept
  {
    auto const found =
      std::find_if(stores_.begin(), stores_.end(), [&](auto const& store) { return store->identity() == identity; });
    return found == stores_.end() ? nullptr : found->get();
  }

  [[nodiscard]] free_store* find_or_make_store(std::uint64_t identity) noexcept
  {
    if (identity == 0) { return nullptr; }
    if (auto* const found = find_store(identity)) { return found; }
    try {
      drop_empty_stores();
      stores_.push_back(std::make_unique<free_store>(identity));
      return stores_.back().get();
    } catch (std::exception const&) {
      return nullptr;
    }
  }

  /// Streams come and go; an empty store has nothing to remember.
  void drop_empty_stores() noexcept
  {
    stores_.erase(
      std::remove_if(
        stores_.begin(), stores_.end(), [](auto const& store) { return store->is_empty() && !store->has_tickets(); }),
      stores_.end());
  }

  /// Takes over claims that were a cache's, less what was returned, so that H4 goes on to hold. False if the host has no
  /// memory for that.
  [[nodiscard]] bool try_take_over_claims(std::int64_t claims) noexcept
  {
    everyones_.add_claims(claims - limits_.returned_claims.exchange(0, std::memory_order_relaxed));
    if (everyones_.claims() < 0) {
      limits_.returned_claims.fetch_sub(everyones_.claims(), std::memory_order_relaxed);
      everyones_.add_claims(-everyones_.claims());
    }
    if (everyones_.try_make_room(0)) { return true; }
    everyones_.add_claims(-claims);
    return false;
  }

  /// Records a ticket for `store` on its own stream, in a call that the program makes with `stream`.
  [[nodiscard]] bool try_add_ticket(free_store& store, cudaStream_t stream) noexcept
  {
    try {
      owned_event event = take_spare_event();
      return event.try_record(stream) && store.try_add_ticket(event);
    } catch (std::exception const&) {
      return false;
    }
  }

  [[nodiscard]] owned_event take_spare_event()
  {
    if (spare_events_.empty()) { return owned_event{}; }
    owned_event event = std::move(spare_events_.back());
    spare_events_.pop_back();
    return event;
  }

  [[nodiscard]] seam_list const* seams() const noexcept { return limits_.seams(); }

  // --- captures (capture.ipp) ---

  [[nodiscard]] RMM_ALWAYS_INLINE bool asks_for_captures() const noexcept
  {
    return (detour_.load(std::memory_order_relaxed) & detours_that_ask) != 0;
  }
  /// Whether one of these bits sends a call on `stream` out of line. That the heap was told to ask is no reason where it does not
  /// ask: the legacy default stream never captures.
  [[nodiscard]] bool takes_detour(unsigned bits, cudaStream_t stream) const noexcept
  {
    auto const set = detour_.load(std::memory_order_relaxed) & bits;
    return set != 0 && (set != detour_checks || !is_legacy_stream(stream));
  }
  void set_detour(unsigned bit, bool on) noexcept
  {
    if (on) {
      detour_.fetch_or(bit, std::memory_order_relaxed);
    } else {
      detour_.fetch_and(~bit, std::memory_order_relaxed);
    }
  }

  static void captures_are_announced(capture_listener& self, bool any) noexcept
  {
    static_cast<listener_for_captures&>(self).heap->set_detour(detour_announced, any);
  }
  RMM_COLD inline static void graph_memory_ends(capture_listener& self, graph_memory_end const& end) noexcept;

  [[nodiscard]] RMM_COLD inline void* allocate_for_capture(std::size_t bytes,
                                                           cudaStream_t stream,
                                                           capture_state const& state);
  [[nodiscard]] inline announced_memory find_announced(cudaStream_t stream, capture_state const& state) const;
  [[nodiscard]] RMM_COLD inline void* add_block_for_capture(address_range block,
                                                            std::size_t bytes,
                                                            cudaStream_t stream,
                                                            capture_state const& state);
  [[nodiscard]] inline captured_stream name_captured(std::uint64_t capture, cudaStream_t stream) const noexcept;
  [[nodiscard]] inline void* allocate_captured(std::size_t bytes, captured_stream who, announced_memory const& from);
  [[nodiscard]] RMM_COLD inline bool try_deallocate_captured(address_range range, cudaStream_t stream) noexcept;
  inline void free_captured(captured_memory& memory,
                            address_range range,
                            cudaStream_t stream,
                            capture_state const& state) noexcept;
  RMM_COLD inline void free_to_unmarked(address_range range, asker const& who) noexcept;
  [[nodiscard]] inline captured_memory* find_captured(std::uint64_t number) const noexcept;
  [[nodiscard]] inline captured_memory* find_owner(std::uintptr_t block) const noexcept;
  [[nodiscard]] inline bool try_leave_graph(address_range range, free_store* ordered) noexcept;
  [[nodiscard]] inline captured_memory& find_or_make_captured(std::uint64_t number);
  [[nodiscard]] inline address_range take_idle(std::size_t bytes);
  inline void collect_idle() noexcept;
  inline void wait_for_marked_memory() noexcept;
  inline void give_back_captured(graph_memory_end const& end) noexcept;
  inline void set_captured_bounds() noexcept;
  RMM_COLD inline void log_unannounced_capture() noexcept;

  // --- blocks that grow and shrink (growth.ipp) ---

  [[nodiscard]] inline std::vector<address_range> withdraw_locked(std::vector<address_range> const& wanted,
                                                                  leaving when,
                                                                  cuda_stream_view waiting);
  [[nodiscard]] inline bool try_take_out(typename std::vector<piece>::iterator first,
                                         typename std::vector<piece>::iterator last,
                                         address_range range,
                                         leaving when,
                                         cudaStream_t waiting) noexcept;
  [[nodiscard]] inline bool try_cut_block(address_range range) noexcept;

  // --- blocks and shares of them (books.ipp) ---

  void adopt(std::uintptr_t begin, std::size_t bytes);
  void set_limits() noexcept;

  // Read by all threads, written hardly ever.
  stream_lifetimes& streams_;
  std::uint64_t const number_{
    streams_.new_number()};  // in this process, so that no slot of another heap is taken for its own
  heap_limits limits_;
  std::vector<int> devices_;
  capture_announcements& captures_{announced_captures()};
  std::atomic<unsigned> detour_{0};
  std::atomic<std::uintptr_t> captured_begin_{0};  // where memory of graphs lies: no other address below or above does
  std::atomic<std::uintptr_t> captured_end_{0};
  std::atomic<std::size_t> block_bytes_{0};
  std::atomic<std::size_t> share_{0};  // what a cache may keep
  std::atomic<std::size_t> share_of_consumer_{0};
  std::atomic<std::size_t> wide_{range_set::no_limit};  // larger blocks go past caches

  alignas(64) mutable std::mutex mutex_;  // guards all that follows
  std::vector<std::unique_ptr<stream_cache>> caches_;
  std::vector<std::unique_ptr<free_store>> stores_;
  free_store everyones_{0};
  std::vector<owned_event> spare_events_;
  std::map<std::uintptr_t, std::size_t> blocks_;
  std::vector<std::uintptr_t> seam_addresses_;  // those of the limits
  std::size_t usable_bytes_{};                  // of all blocks, in whole granules
  std::size_t lease_bytes_{};
  std::size_t next_polled_{};
  bool wait_failed_{false};  // since the last allocation began to look
  std::int64_t live_without_cache_{};
  std::uint64_t from_other_stores_{};
  std::uint64_t from_other_caches_{};
  std::uint64_t put_together_{};
  std::uint64_t device_synchronizations_{};
  std::shared_ptr<heap_link> link_;
  listener end_listener_{};
  std::vector<std::unique_ptr<captured_memory>> captured_;
  listener_for_captures capture_listener_{};
  std::atomic<bool> unannounced_was_logged_{false};
};

using stream_ordered_heap = basic_stream_ordered_heap<void>;

}  // namespace detail
}  // namespace RMM_NAMESPACE

#include <rmm/detail/stream/books.ipp>
#include <rmm/detail/stream/caches.ipp>
#include <rmm/detail/stream/capture.ipp>
#include <rmm/detail/stream/growth.ipp>
#include <rmm/detail/stream/search.ipp>
