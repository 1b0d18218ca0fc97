// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/biased_lock.hpp>
#include <rmm/detail/base/failure.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_device.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/block_map.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/graph_arena.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/stream_cache.hpp>
#include <rmm/detail/stream/thread_caches.hpp>
#include <rmm/heap_figures.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
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
///   3. the cache's own stacks again, emptied and coalesced with its ranges
///   4. one range of another stream's store, after a wait for its event on the device
///   5. one range of another cache, whose owner is kept out meanwhile, after a wait if it is another stream's
///   6. neighbours that lie in different caches and stores, coalesced; waits for those that they are taken from
///   7. nothing: the caller calls allocate_reclaimed() before it adds a block. That records events for all free memory whose
///      stream is known to be alive, and looks once more; and if there is a large enough run of neighbours that lacks nothing but
///      events, it waits on the host for the devices of the streams that freed it
///
/// As long as there is one cache it holds everything. As soon as there are more, large blocks go past them (is_large()): they
/// are fenced one by one, and looked for in the stores first, where all streams' free memory coalesces. Small blocks are cut from
/// the ends of ranges, and what caches take at a time from the top of memory, so that they do not lie between large ones.
///
/// Invariants:
///  H1  sum(free) + sum(allocated) == sum(blocks), each rounded down to granules; no two free ranges overlap
///  H2  memory reaches a stream that did not free it only behind a wait for an event recorded, on the stream that freed it,
///      after it was freed; or when such an event is reached; or when the device of that stream was synchronised after it was
///      freed
///  H3  a stream's handle is used only in calls that the program makes with it, while rmm::cuda_stream ends it, and while the
///      library keeps it from ending: with the lock of the known streams. The legacy default stream never ends
///  H4  deallocate() needs no host memory: each allocated block has a claim of the reserve
///  H5  no event is recorded on a stream that captures, nor waited for by one; what a capture allocates, and what it frees,
///      belongs to the graph_arena, and goes to no other work while the graph may run
///
/// While captures are announced, all calls are sent out of line, where the runtime is asked what the stream does. Otherwise only
/// slow paths ask.
///
/// Streams of several devices may use the memory. A stream's device is asked for when its cache is made; events are made, and
/// devices waited for, where the stream is, whatever device is current. The handle of a default stream names another stream on
/// each device: where the process sees several devices, calls with such a handle are sent out of line, where the current
/// device tells which.
///
/// Thread-safe. The order of locks: that of a recovery_ladder, that of the known streams or that of the announced captures, a heap_link's or the
/// graph_arena's, the heap's, the reserve's.
/// Events are recorded and waited for under the heap's lock or inside a cache: what is free and what the event fences have to
/// change together.
///
/// A template without a use for its parameter: whoever includes it and makes no heap does not compile what it does.
template <class Unused>
class basic_stream_ordered_heap {
 public:
  /// Rounding up more would wrap.
  static constexpr std::size_t largest_request = std::numeric_limits<std::size_t>::max() - (heap_granule - 1);

  /// Handles below name default streams.
  static constexpr std::uintptr_t first_plain_handle = 3;

  /// `home`: the device that the memory belongs to; the current one if it is negative. Throws std::bad_alloc.
  explicit basic_stream_ordered_heap(int home = -1)
    : streams_{known_streams()},
      home_device_{home >= 0 ? home : current_device_if_known()},
      link_{std::make_shared<heap_link>()}
  {
    link_->heap = this;
    link_->retire =
      [](basic_stream_ordered_heap& heap, stream_cache& cache, pointer_bag const& known, bool has_own_stream) noexcept {
        heap.retire(cache, known, has_own_stream);
      };
    end_listener_.stream_ends = stream_ends;
    end_listener_.heap        = this;
    set_floors();
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

  /// Takes `bytes` bytes, at least 1, that `stream` may use at once. Null if no free memory has so many, coalesced as
  /// far as possible. Throws std::bad_alloc if there is no host memory to note it; logic_error if it finds that the stream
  /// captures and nobody announced that.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate(std::size_t bytes, cuda_stream_view stream)
  {
    if (void* const ptr = try_allocate_local(bytes, stream)) { return ptr; }
    return try_allocate_slow(bytes, stream);
  }

  /// The short part of that: null if the block is not small, or not in the thread's own cache, or anybody wants to see all calls.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate_local(std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= small_block_limit || is_below(allocate_floor_, stream.value())) { return nullptr; }
    auto* const cache = find_local_cache(stream.value());
    if (cache == nullptr || !cache->is_trusted() || !cache->lock().try_enter()) { return nullptr; }
    void* const ptr = cache->try_pop((bytes + heap_granule - 1) / heap_granule);
    cache->lock().leave();
    return ptr;
  }

  /// The rest of it.
  [[nodiscard]] void* try_allocate_slow(std::size_t bytes, cuda_stream_view stream)
  {
    return allocate_out_of_line(bytes, stream.value());
  }

  /// Gives back what was allocated for the same `bytes`. What is freed by a stream that captures is used for nothing else while
  /// the graph may run: without an announcement until the heap goes, which is logged once.
  RMM_ALWAYS_INLINE void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (!try_deallocate_local(ptr, bytes, stream)) { deallocate_slow(ptr, bytes, stream); }
  }

  /// The short part of that; false, and nothing has changed, as with try_allocate_local().
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_deallocate_local(void* ptr,
                                                            std::size_t bytes,
                                                            cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= small_block_limit || is_below(deallocate_floor_, stream.value())) { return false; }
    auto* const cache = find_local_cache(stream.value());
    if (cache == nullptr || !cache->lock().try_enter()) { return false; }
    bool const pushed = cache->try_push(ptr, (bytes + heap_granule - 1) / heap_granule);
    bool const due    = cache->is_fence_due();
    cache->lock().leave();
    if (pushed && due) { fence_out_of_line(*cache); }
    return pushed;
  }

  /// The rest of it.
  void deallocate_slow(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    deallocate_out_of_line(ptr, bytes, stream.value());
  }

  /// What try_allocate() takes from the thread's own cache, if that needs no lock, no call of CUDA and no coalescing; else null, and
  /// nothing has changed. See mr/detail/immediate_resource.hpp for who needs that.
  [[nodiscard]] RMM_ALWAYS_INLINE void* try_allocate_nonblocking(std::size_t bytes, cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= largest_request) { return nullptr; }
    auto key = stream.value();
    if (is_below(allocate_floor_, key)) {
      if (takes_slow_path(slow_paths_to_allocate, key)) { return nullptr; }
      key = key_of(key);
    }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = find_local_cache(key);
    if (cache == nullptr || !cache->is_trusted() || is_large(bytes)) { return nullptr; }
    cache_entered const inside{*cache};
    if (!inside) { return nullptr; }
    try {
      return take_local(*cache, bytes);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  /// What deallocate() puts into the thread's own cache, if that needs none of these either, so if it is not time to record an
  /// event; else false, and nothing has changed.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_deallocate_nonblocking(void* ptr,
                                                                  std::size_t bytes,
                                                                  cuda_stream_view stream) noexcept
  {
    if (bytes - 1 >= largest_request) { return false; }
    auto key = stream.value();
    if (is_below(deallocate_floor_, key)) {
      if (takes_slow_path(all_slow_paths, key)) { return false; }
      key = key_of(key);
    }
    bytes             = align_up(bytes, heap_granule);
    auto* const cache = find_local_cache(key);
    if (cache == nullptr || is_large(bytes)) { return false; }
    cache_entered const inside{*cache};
    if (!inside || cache->makes_fence_due(bytes)) { return false; }
    return bytes > small_block_limit ? cache->try_add_recent(ptr, bytes) : cache->try_push(ptr, granules_of(bytes));
  }

  /// Tells that an allocated block will be given back in one part more than so far, each with its own address and size. False if
  /// the host has no memory to note that.
  [[nodiscard]] RMM_COLD bool try_divide() noexcept { return limits_.reserve.try_claim(1); }

  /// Whether the short parts serve nothing: for an owner of the heap that wants to see all calls.
  void set_slow_path(bool on) noexcept { set_slow_path(slow_path_owner, on); }

  /// What an allocation may do that finds no free memory.
  enum class reclaiming {
    before_growth,  ///< another way may serve it too: does not wait on the host while the stream captures
    at_last         ///< nothing else can serve it
  };

  /// For a request that try_allocate() could not serve: gives events to all free memory whose stream is known to be alive, and
  /// takes what then coalesces. If enough neighbours are free that nothing but missing events keeps apart, waits on the host for
  /// their devices. So it waits only where that serves the request. Null if all that is free is too little or too scattered, or
  /// cannot be waited for. Throws as try_allocate() does.
  [[nodiscard]] RMM_COLD inline void* allocate_reclaimed(std::size_t bytes,
                                                         cuda_stream_view stream,
                                                         reclaiming how = reclaiming::at_last);

  /// Adds a block that upstream gave for use on `stream`, and takes its first `bytes` bytes. A block for a stream that captures,
  /// or is blocked by a capture, is one that no work uses (see suballocator_upstream). Throws std::bad_alloc, and has not
  /// taken the block then. Requires `bytes <= block_bytes`, rounded up and down to granules.
  [[nodiscard]] RMM_COLD inline void* add_block_and_allocate(void* block,
                                                             std::size_t block_bytes,
                                                             std::size_t bytes,
                                                             cuda_stream_view stream);

  /// Adds memory that no work uses, and that coalesces with the block that it touches: one that grows in place. Throws
  /// std::bad_alloc, and has not taken it then.
  RMM_COLD inline void extend(address_range added);

  /// Gives events to all that was freed on streams that are known to be alive: those that rmm::cuda_stream made or the program
  /// announced, which do not end meanwhile, and the legacy default streams.
  RMM_COLD inline void fence_live_streams() noexcept;

  /// What is free, whoever freed it, coalesced with its neighbours, ascending: all that an event fences, or with `with_unfenced`
  /// all. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> free_runs(bool with_unfenced = false);

  /// The blocks, ascending.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> blocks() const;

  /// When memory may leave the heap.
  enum class leaving {
    at_once,  ///< only if no work uses it any more
    in_order,  ///< if no work uses it any more but that of the given stream; what is enqueued there later comes after that
    after_a_wait  ///< if an event says when; what is enqueued on the given stream later comes after that
  };

  /// Takes those of `wanted`, ascending, out of the heap that lie in one block, whole ones possibly, and are free by `when`.
  /// Returns them. Seams at their ends go. Throws std::bad_alloc, and has taken nothing then.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> withdraw(std::vector<address_range> const& wanted,
                                                                    leaving when,
                                                                    cuda_stream_view waiting);

  /// Withdraws blocks that are to go back to where they came from: those of `wanted` that are still blocks, and whole ones.
  /// Since the caller looked, another thread may have given one back, and got its addresses as a part of a new one.
  [[nodiscard]] RMM_COLD inline std::vector<address_range> withdraw_blocks(std::vector<address_range> wanted,
                                                                           cuda_stream_view waiting,
                                                                           leaving when = leaving::after_a_wait);

  /// Waits on the host for the devices of all streams that freed memory, after which all that is free is free for all. False if
  /// the runtime cannot wait.
  RMM_COLD bool wait_for_all()
  {
    context_scope const with_context{home_device_};
    auto const waiting = ask_to_wait();
    std::lock_guard<std::mutex> const lock{mutex_};
    all_caches_closed const closed{*this};
    return everything_is_reached(waiting);
  }

  /// Whether all calls ask if their stream captures, also while no capture is announced.
  void set_checks_captures(bool on) noexcept { set_slow_path(slow_path_checks, on); }
  [[nodiscard]] bool checks_captures() const noexcept
  {
    return (slow_path_.load(std::memory_order_relaxed) & slow_path_checks) != 0;
  }

  /// Makes free for all what no work uses any more, as far as CUDA says so without waiting. Not for hot paths.
  RMM_COLD void settle() noexcept
  {
    context_scope const with_context{home_device_};
    std::lock_guard<std::mutex> const lock{mutex_};
    shared_.poll(std::numeric_limits<std::size_t>::max());
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
    gone_heaps.fetch_add(1, std::memory_order_relaxed);
    streams_.remove(end_listener_);
    graphs_.end_listening();
    context_scope const with_context{home_device_};
    auto const waiting = ask_to_wait();
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      wait_for_free_memory(waiting);
      caches_.clear();
      shared_.clear();
    }
    graphs_.clear();
    // Without the lock: upstream may be a heap too, which looks at what links this thread to others.
    blocks_.for_each([&](address_range block) { release(to_pointer(block.begin), block.bytes); });
    blocks_.clear();
    block_bytes_.store(0, std::memory_order_relaxed);
  }

  /// The device that the memory belongs to; -1 if the runtime did not say which was current.
  [[nodiscard]] int home_device() const noexcept { return home_device_; }

  /// The device whose context a thread without one needs for calls about a stream; -1 if it needs none.
  [[nodiscard]] int context_for(cudaStream_t stream) const noexcept
  {
    return is_default_stream(stream) ? -1 : home_device_;
  }

  /// Bytes of all blocks.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_.load(std::memory_order_relaxed); }

  /// The figures; writes what they count to `contents` as well, if that is given. Where very many pieces are free, the largest
  /// of them is not coalesced with neighbours that another thread or stream freed, unless `contents` is given.
  [[nodiscard]] RMM_COLD inline heap_figures figures(heap_contents* contents = nullptr) const;

  /// Whether H1, and the invariants of all parts, hold; O(free ranges). For tests.
  [[nodiscard]] RMM_COLD inline bool check_invariants() const;

  /// A thread ends: what is in its cache goes to the stores. Called by its owner, with the lock of the known streams.
  /// `has_own_stream`: whether the thread's default stream is still there.
  RMM_COLD void retire(stream_cache& cache, pointer_bag const& known, bool has_own_stream) noexcept
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    retire_locked(cache, is_kept_alive(cache, known) || (has_own_stream && is_per_thread_stream(cache.stream())));
  }

  // --- for graph_arena ---

  /// Takes `bytes` bytes that no work can use; nothing, if there are not so many in one piece. Throws std::bad_alloc.
  [[nodiscard]] RMM_COLD inline address_range take_idle(std::size_t bytes);

  /// Gives back what take_idle() gave and nobody has used.
  RMM_COLD inline void put_idle(address_range range) noexcept;

  /// Adds a block that no work uses, and takes its first `bytes` bytes, possibly none. Throws std::bad_alloc, and has not taken the
  /// block then.
  [[nodiscard]] RMM_COLD inline address_range add_idle_block(address_range block, std::size_t bytes);

  /// Records a fence on `stream`, which does not capture, for memory that its later work may use. Returns the number of the store
  /// that has it, 0 if there is none.
  [[nodiscard]] RMM_COLD inline std::uint64_t fence_for_frees(cudaStream_t stream) noexcept;

  /// Gives memory back that the newest fence of that store covers.
  RMM_COLD inline void free_fenced(address_range range, std::uint64_t store) noexcept;

  /// Gives memory back for whoever needs it after the devices were synchronised.
  RMM_COLD inline void free_after_a_wait(address_range range) noexcept;

  void set_captures_are_announced(bool any) noexcept { set_slow_path(slow_path_announced, any); }
  void set_has_graph_memory(bool any) noexcept { set_slow_path(slow_path_has_memory, any); }

 private:
  static constexpr std::size_t most_polls         = 8;  // with one miss
  static constexpr std::size_t polls_for_retired  = 4;  // with each cache that may leave an event
  static constexpr std::size_t stack_shortening   = 16;
  static constexpr std::size_t most_thread_caches = 4096;
  static constexpr unsigned eager_fences          = 4096;
  static constexpr int most_devices               = 64;
  static constexpr std::uint64_t every_device     = shared_free_lists::every_device;
  // In contents: of memory that has lost its stream.
  static constexpr std::uint64_t lost_stream          = std::numeric_limits<std::uint64_t>::max() / 2;
  static constexpr std::size_t largest_refill         = std::size_t{8} << 20;
  static constexpr std::size_t most_unfenced_alone    = std::size_t{16} << 20;
  static constexpr std::size_t many_pieces            = 4096;
  static constexpr std::size_t most_pieces_in_figures = 16384;
  static constexpr std::size_t least_large            = std::size_t{1} << 20;

  struct listener : stream_end_listener {
    basic_stream_ordered_heap* heap{};
  };

  // Bits of slow_path_. Deallocations take the slow path for each of them.
  static constexpr unsigned slow_path_announced    = 1;  // captures are announced
  static constexpr unsigned slow_path_checks       = 2;  // the heap was told to ask always
  static constexpr unsigned slow_path_has_memory   = 4;  // of graphs, so each free has to be looked at
  static constexpr unsigned slow_path_owner        = 8;  // the owner wants to see each call
  static constexpr unsigned slow_paths_that_ask    = slow_path_announced | slow_path_checks;
  static constexpr unsigned slow_paths_to_allocate = slow_paths_that_ask | slow_path_owner;
  static constexpr unsigned all_slow_paths         = slow_paths_to_allocate | slow_path_has_memory;

  /// Whether the host may wait for devices now, as far as captures are concerned. Asked without the heap's lock.
  enum class waiting_is : unsigned char { allowed, forbidden };
  [[nodiscard]] static waiting_is ask_to_wait() noexcept
  {
    return may_wait_for_device() ? waiting_is::allowed : waiting_is::forbidden;
  }
  /// As ask_to_wait(), with the heap's lock or inside a cache: forbidden where it cannot be told.
  [[nodiscard]] static waiting_is ask_to_wait_locked() noexcept
  {
    return is_known_to_allow_waiting() ? waiting_is::allowed : waiting_is::forbidden;
  }

  /// Keeps the owners of all caches out as long as it lives, but for one, the caller's own. With the heap's lock.
  class all_caches_closed {
   public:
    explicit all_caches_closed(basic_stream_ordered_heap const& heap, stream_cache const* own = nullptr) noexcept
      : heap_{heap}, own_{own}
    {
      bool any = false;
      for_each_other([&](biased_lock& lock) {
        lock.begin_keeping_out();
        any = true;
      });
      if (!any) { return; }
      process_barrier::pass_all_threads();
      for_each_other([](biased_lock& lock) { lock.wait_until_left(); });
    }
    ~all_caches_closed()
    {
      for_each_other([](biased_lock& lock) { lock.end_keeping_out(); });
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
    int device{-1};       // of the stream
  };

  [[nodiscard]] static asker make_asker(cudaStream_t stream, stream_cache* cache, bool may_wait = true) noexcept
  {
    if (cache != nullptr) { return {stream, cache->identity(), cache, may_wait, cache->device()}; }
    return {stream, stream_identity(stream), nullptr, may_wait, device_of_stream(stream)};
  }

  [[nodiscard]] static bool is_own(free_store const& store, asker const& who) noexcept
  {
    return who.identity != 0 && store.identity() == who.identity;
  }
  [[nodiscard]] static bool is_own(stream_cache const& cache, asker const& who) noexcept
  {
    return who.identity != 0 && cache.identity() == who.identity;
  }

  /// Free memory and the set that it lies in, one of the two.
  struct piece {
    address_range range;
    std::uint64_t epoch;
    free_store* store;
    stream_cache* cache;
    bool is_fenced{true};  // if not, it lies beside the set of ranges

    [[nodiscard]] range_set& ranges() const noexcept { return store != nullptr ? store->ranges() : cache->ranges(); }
  };

  [[nodiscard]] static void* to_pointer(std::uintptr_t address) noexcept
  {
    return reinterpret_cast<void*>(address);  // NOLINT: the heap works on addresses
  }

  [[nodiscard]] static std::size_t granules_of(std::size_t bytes) noexcept { return bytes / heap_granule; }

  // --- a thread's own cache (caches.ipp) ---

  [[nodiscard]] RMM_ALWAYS_INLINE stream_cache* find_local_cache(cudaStream_t key) const noexcept
  {
    auto const& slot = cache_slot_of(number_, key);
    return slot.heap == number_ && slot.stream == key ? slot.cache : nullptr;
  }

  /// What the cache for a stream is found by: the handle, but for default streams where the process sees several devices.
  [[nodiscard]] cudaStream_t key_of(cudaStream_t stream) const noexcept
  {
    auto const handle = reinterpret_cast<std::uintptr_t>(stream);
    if (handle >= default_floor_) { return stream; }
    auto const device = current_device();
    return reinterpret_cast<cudaStream_t>(handle + (static_cast<std::uintptr_t>(device + 2) << 2U));  // NOLINT
  }

  /// The stream that a handle names now. The identity is 0 if the runtime does not say.
  [[nodiscard]] stream_cache::stream_name name_of(cudaStream_t stream) const noexcept
  {
    return {stream, key_of(stream), stream_identity(stream), device_of_stream(stream)};
  }

  [[nodiscard]] RMM_ALWAYS_INLINE static bool is_below(std::atomic<std::uintptr_t> const& floor,
                                                       cudaStream_t stream) noexcept
  {
    return reinterpret_cast<std::uintptr_t>(stream) < floor.load(std::memory_order_relaxed);
  }

  [[nodiscard]] void* allocate_out_of_line(std::size_t bytes, cudaStream_t stream);
  void deallocate_out_of_line(void* ptr, std::size_t bytes, cudaStream_t stream) noexcept;

  /// From what the cache has. Inside it, or with the lock.
  [[nodiscard]] void* take(stream_cache& cache, std::size_t bytes) const
  {
    if (void* const ptr = take_local(cache, bytes)) { return ptr; }
    // What was freed lately may do, once it is coalesced.
    if (cache.coalesce_fenced()) {
      if (void* const ptr = take_local(cache, bytes)) { return ptr; }
    }
    if (cache.unfenced_bytes() < bytes || !fence(cache)) { return nullptr; }
    static_cast<void>(cache.coalesce_fenced());
    return take_local(cache, bytes);
  }

  [[nodiscard]] RMM_FLATTEN void* take_local(stream_cache& cache, std::size_t bytes) const
  {
    if (bytes > small_block_limit) { return cache.take(bytes); }
    if (void* const ptr = cache.try_pop(granules_of(bytes))) { return ptr; }
    return cache.take_run(granules_of(bytes), is_shared());
  }

  /// Puts a block into the cache. Inside it, or with the lock. False if there is no place.
  [[nodiscard]] bool put(stream_cache& cache, void* ptr, std::size_t bytes) const noexcept
  {
    if (bytes > small_block_limit) {
      return cache.try_add_recent(ptr, bytes) || (fence(cache) && cache.try_add_recent(ptr, bytes));
    }
    auto const granules = granules_of(bytes);
    if (cache.try_push(ptr, granules)) { return true; }
    if (cache.try_add_stack(granules)) { return cache.try_push(ptr, granules); }
    if (!cache.has_fenced(granules) && !fence(cache)) { return false; }
    return cache.shorten_stack(granules, stack_shortening) && cache.try_push(ptr, granules);
  }

  /// Fences what was freed; where no event can be recorded, waits on the host. False if that cannot be done either, or the
  /// handle does not name the cache's stream any more.
  bool fence(stream_cache& cache) const noexcept { return cache.is_current() && fence_current(cache); }

  bool fence_current(stream_cache& cache) const noexcept
  {
    if (cache.fence(cache.stream())) { return true; }
    if (!query_capture(cache.stream()).is_none() || !try_wait_for(cache.device(), ask_to_wait_locked())) {
      return false;
    }
    cache.all_fenced();
    return true;
  }

  RMM_COLD inline void fence_out_of_line(stream_cache& cache) noexcept;

  /// The cache of the calling thread for `stream`, made if there is none. Null if there can be none. With `ask` it is
  /// certain that it is for the stream that the handle names now.
  [[nodiscard]] stream_cache* find_or_make_cache(cudaStream_t stream, bool ask) noexcept;
  [[nodiscard]] RMM_COLD inline stream_cache* make_cache(thread_caches& mine, cudaStream_t stream) noexcept;
  RMM_COLD void drop(thread_caches& mine, stream_cache& cache) noexcept
  {
    mine.forget(number_, cache.key());
    std::lock_guard<std::mutex> const lock{mutex_};
    retire_locked(cache, false);
  }
  RMM_COLD inline void drop_ended(thread_caches& mine) noexcept;
  void retire_locked(stream_cache& cache, bool is_alive) noexcept;
  [[nodiscard]] free_store* store_for_event(stream_cache const& cache, bool is_newest) noexcept;

  /// A known stream is about to end, so this is the last chance to fence what was freed on it.
  static void stream_ends(stream_end_listener& self, cudaStream_t stream) noexcept;

  // --- under the lock (search.ipp, caches.ipp) ---

  [[nodiscard]] RMM_COLD inline void* allocate_locked(std::size_t bytes, asker const& who);
  [[nodiscard]] void* allocate_through_cache(std::size_t bytes, stream_cache& cache, free_store* own);
  [[nodiscard]] void* take_coalesced(stream_cache& cache, std::size_t bytes);
  [[nodiscard]] bool refill(free_store& from, std::size_t bytes, stream_cache& to);
  [[nodiscard]] void* take_from_own_or_idle(std::size_t bytes, free_store* own, asker const& who);
  [[nodiscard]] void* take_from_other_store(std::size_t bytes, free_store const* own, asker const& who);
  [[nodiscard]] void* take_from_other_cache(std::size_t bytes, asker const& who);
  [[nodiscard]] inline std::vector<piece> collect_pieces(std::size_t least = 0, bool with_unfenced = false);
  [[nodiscard]] inline void* take_run(std::vector<piece> const& pieces, std::size_t bytes, asker const& who);
  [[nodiscard]] bool are_neighbours(piece const& lower, piece const& upper) const noexcept
  {
    return upper.range.begin == lower.range.end() && (seams() == nullptr || !seams()->contains(upper.range.begin));
  }
  [[nodiscard]] void* coalesce_for(std::size_t bytes, asker const& who);
  inline void collect_idle() noexcept;
  inline void wait_for_fenced_memory() noexcept;
  [[nodiscard]] void* hand_out(taken_range taken, std::size_t bytes, asker const& who) noexcept;
  [[nodiscard]] bool try_claim(asker const& who) noexcept
  {
    return who.cache != nullptr ? who.cache->try_claim() : limits_.reserve.try_claim(1);
  }
  void return_claim(asker const& who) noexcept
  {
    if (who.cache != nullptr) {
      who.cache->return_claim();
    } else {
      limits_.reserve.release(1);
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
  /// Whether the cache's handle is sure to name its stream while the lock of the known streams is held.
  [[nodiscard]] static bool is_kept_alive(stream_cache const& cache, pointer_bag const& known) noexcept
  {
    return is_legacy_stream(cache.stream()) ||
           (cache.is_lasting() && !cache.has_ended() && known.contains(cache.stream()));
  }

  void begin_eager_fences() noexcept;
  [[nodiscard]] bool is_scattered() const noexcept;
  void count_eager_fence() noexcept;
  [[nodiscard]] inline bool has_run(std::vector<piece> const& pieces, std::size_t bytes) const noexcept;

  /// Calls visit(range) for all that is free and lacks an event.
  template <class Visit>
  void for_each_unfenced(Visit&& visit) const
  {
    for (auto const& cache : caches_) {
      cache->for_each_free([&](address_range range, bool is_fenced) {
        if (!is_fenced) { visit(range); }
      });
    }
    shared_.for_each_unfenced(visit);
  }

  /// Whether there is more than one cache.
  [[nodiscard]] bool is_shared() const noexcept
  {
    return large_.load(std::memory_order_relaxed) != range_set::no_limit;
  }

  /// Whether a block is so large that it is better kept where all can coalesce it with its neighbours.
  [[nodiscard]] bool is_large(std::size_t bytes) const noexcept
  {
    return bytes > large_.load(std::memory_order_relaxed);
  }
  /// The same of a range in a cache. One that takes back what others allocated gives all at a time, and need not.
  [[nodiscard]] bool has_to_flush(stream_cache const& cache) const noexcept
  {
    return is_shared() && cache.live_bytes() >= 0 &&
           cache.ranges().largest() / 4 >= large_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_beyond_share(stream_cache const& cache) const noexcept;
  void flush(stream_cache& cache) noexcept;
  [[nodiscard]] bool everything_is_reached(waiting_is permission) noexcept;

  /// Waits on the host for all work of a device; if its number is negative, of the one that the heap was made on. False if the
  /// runtime cannot wait, or that would break a capture.
  [[nodiscard]] RMM_COLD bool try_wait_for(int device, waiting_is permission) const noexcept
  {
    if (permission == waiting_is::forbidden) { return false; }
    device_scope const on_device{device >= 0 ? device : home_device_};
    return query_capture(cudaStreamLegacy).is_none() && try_synchronize_device();
  }

  /// Waits for the devices of all streams that free memory waits for. They have contexts: their streams were used.
  [[nodiscard]] RMM_COLD bool wait_for_devices(waiting_is permission) const noexcept
  {
    auto devices = shared_.lost_devices();
    for (auto const& cache : caches_) {
      if (cache->has_fenced_blocks() || !cache->ranges().empty()) { devices |= bit_of(cache->device()); }
      if (cache->has_unfenced()) { devices |= devices_of_unfenced(*cache); }
    }
    for (auto const& store : shared_.stores()) {
      if (!store->ranges().empty() || store->has_fences()) { devices |= bit_of(store->device()); }
      if (!store->unfenced().empty()) { devices |= every_device; }
    }
    if (devices == 0) { return try_wait_for(-1, permission); }
    auto const count = std::clamp(known_device_count.load(std::memory_order_relaxed), 1, most_devices);
    for (int device = 0; device != count; ++device) {
      if ((devices & bit_of(device)) == 0) { continue; }
      bool const is_used = count == 1 || devices != every_device || may_have_context(device);
      if (is_used && !try_wait_for(device, permission)) { return false; }
    }
    return true;
  }

  /// The devices whose work may use what was freed without an event. A handle whose stream may have ended can name a stream of
  /// another device since then, and a free does not ask.
  [[nodiscard]] std::uint64_t devices_of_unfenced(stream_cache const& cache) const noexcept
  {
    bool const is_certain = is_default_stream(cache.stream()) || (cache.is_lasting() && !cache.has_ended());
    return is_certain ? bit_of(cache.device()) : every_device;
  }

  /// The bit of a device in a set of devices.
  [[nodiscard]] std::uint64_t bit_of(int device) const noexcept
  {
    auto const known = device >= 0 ? device : home_device_ >= 0 ? home_device_ : 0;
    return std::uint64_t{1} << static_cast<unsigned>(known % most_devices);
  }

  [[nodiscard]] std::size_t unfenced_bytes() const noexcept;
  void wait_for_free_memory(waiting_is permission) noexcept;

  [[nodiscard]] seam_list const* seams() const noexcept { return limits_.seams(); }

  // --- the slow path ---

  [[nodiscard]] RMM_ALWAYS_INLINE bool asks_for_captures() const noexcept
  {
    return (slow_path_.load(std::memory_order_relaxed) & slow_paths_that_ask) != 0;
  }
  /// Whether one of these bits sends a call on `stream` out of line. That the heap was told to ask is no reason where it does not
  /// ask: the legacy default stream never captures.
  [[nodiscard]] bool takes_slow_path(unsigned bits, cudaStream_t stream) const noexcept
  {
    auto const set = slow_path_.load(std::memory_order_relaxed) & bits;
    return set != 0 && (set != slow_path_checks || !is_legacy_stream(stream));
  }
  void set_slow_path(unsigned bit, bool on) noexcept
  {
    if (on) {
      slow_path_.fetch_or(bit, std::memory_order_seq_cst);
    } else {
      slow_path_.fetch_and(~bit, std::memory_order_seq_cst);
    }
    set_floors();
  }

  /// Sets the handles below which calls are sent out of line: all, those of default streams, or none.
  void set_floors() noexcept
  {
    constexpr auto all = std::numeric_limits<std::uintptr_t>::max();
    for (auto bits = slow_path_.load(std::memory_order_seq_cst);;) {
      allocate_floor_.store((bits & slow_paths_to_allocate) != 0 ? all : default_floor_, std::memory_order_seq_cst);
      deallocate_floor_.store(bits != 0 ? all : default_floor_, std::memory_order_seq_cst);
      auto const now = slow_path_.load(std::memory_order_seq_cst);  // another thread may have changed it meanwhile
      if (now == bits) { return; }
      bits = now;
    }
  }

  // --- blocks that grow and shrink (growth.ipp) ---

  [[nodiscard]] inline std::vector<address_range> withdraw_locked(std::vector<address_range> const& wanted,
                                                                  leaving when,
                                                                  cuda_stream_view waiting);
  [[nodiscard]] inline bool try_take_out(typename std::vector<piece>::iterator first,
                                         typename std::vector<piece>::iterator last,
                                         address_range range,
                                         leaving when,
                                         cudaStream_t waiting) noexcept;
  // --- blocks and shares of them (books.ipp) ---

  [[nodiscard]] inline std::size_t add_up(heap_figures& now) const;
  template <class Visit>
  inline void for_each_free(Visit&& visit) const;
  [[nodiscard]] inline std::size_t largest_piece() const;
  void adopt(address_range block);
  void set_limits() noexcept;

  // Read by all threads, written hardly ever.
  stream_lifetimes& streams_;
  std::uint64_t const number_{
    streams_.new_number()};  // in this process, so that no slot of another heap is taken for its own
  heap_limits limits_;
  int const home_device_;
  std::uintptr_t const default_floor_{sees_one_device() ? 0 : first_plain_handle};
  std::atomic<std::uintptr_t> allocate_floor_{0};
  std::atomic<std::uintptr_t> deallocate_floor_{0};
  std::atomic<unsigned> slow_path_{0};
  std::atomic<std::size_t> block_bytes_{0};
  std::atomic<std::size_t> share_{0};  // what a cache may keep
  std::atomic<std::size_t> share_of_consumer_{0};
  std::atomic<std::size_t> large_{range_set::no_limit};  // larger blocks go past caches

  alignas(64) mutable std::mutex mutex_;  // guards all that follows
  std::vector<std::unique_ptr<stream_cache>> caches_;
  shared_free_lists shared_{limits_};
  block_map blocks_{limits_.seam_addresses};
  std::atomic<std::size_t> ended_caches_{0};  // whose owners have not dropped them yet
  std::size_t refill_bytes_{};
  std::size_t pieces_searched_{};               // by coalesce_for() since the last collect_idle()
  std::atomic<unsigned> eager_fences_left_{0};  // until then each free on a stream is fenced
  bool wait_failed_{false};                     // since the last allocation began to look
  std::int64_t live_without_cache_{};
  std::uint64_t from_other_stores_{};
  std::uint64_t from_other_caches_{};
  std::uint64_t coalesced_{};
  std::uint64_t device_synchronizations_{};
  std::shared_ptr<heap_link> link_;
  listener end_listener_{};
  graph_arena<basic_stream_ordered_heap> graphs_{*this};
};

using stream_ordered_heap = basic_stream_ordered_heap<void>;

}  // namespace detail
}  // namespace RMM_NAMESPACE

#include <rmm/detail/stream/books.ipp>
#include <rmm/detail/stream/caches.ipp>
#include <rmm/detail/stream/growth.ipp>
#include <rmm/detail/stream/search.ipp>
