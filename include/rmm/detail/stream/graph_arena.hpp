// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/failure.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_device.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/stream/capture_memory.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The memory of a heap that CUDA graphs use: one captured_memory for each rmm::graph_memory.
///
/// A client of the heap: it takes idle chunks from the heap, and hands parts of them to captures. When the last handle of a graph_memory
/// is gone, end_memory() gives its chunks back to the heap. The heap forwards two kinds of calls: those of streams that capture, and
/// frees of blocks that lie between the bounds of the chunks.
///
/// Invariants:
///  A1  to the heap a chunk is one allocated block, until its memory is released and the chunk has no live block
///  A2  all chunks lie between the bounds, which are written before a block of a chunk is handed out
///  A3  a block that is kept because a capture freed it also stays allocated in the heap
///  A4  each memory has a number of its own, which is not 0; no chunk belongs to two memories
///  A5  each chunk of a released memory has a live block
///
/// Order: the mutex guards the memories. The bounds are written with it and read without, relaxed: a thread that frees a block got it after
/// its chunk was added, so it reads the bounds of that moment or later ones. All of those have the chunk between them, whichever two are
/// read together, because the chunk stays while the block is live. Other blocks may seem to lie between bounds; then the lock decides.
/// unannounced_was_logged_ guards no data: of several updates, one reads false.
///
/// Thread-safe. The order of locks: announced captures, this one, the heap's. `Heap` is a parameter because the class of the heap is not
/// complete where it declares its graph_arena.
template <class Heap>
class graph_arena {
 public:
  explicit graph_arena(Heap& heap) noexcept : heap_{heap} {}
  graph_arena(graph_arena const&)            = delete;
  graph_arena& operator=(graph_arena const&) = delete;

  /// Registers for announcements of captures and for ends of graph_memory. Throws std::bad_alloc.
  void begin_to_listen()
  {
    listener_.captures_are_announced = [](capture_listener& self, bool any) noexcept {
      static_cast<listener&>(self).arena->heap_.set_captures_are_announced(any);
    };
    listener_.graph_memory_ends = [](capture_listener& self, graph_memory_end const& end) noexcept {
      static_cast<listener&>(self).arena->end_memory(end);
    };
    listener_.arena = this;
    captures_.add(listener_);
  }
  void end_listening() noexcept { captures_.remove(listener_); }

  /// Takes `bytes` bytes for a stream that captures, from the graph_memory of the announcement. Returns null if the heap has too little
  /// idle memory: a graph may be launched on any stream, so its memory must not need a wait. Throws logic_error if the capture was not
  /// announced, and std::bad_alloc if host memory runs out.
  [[nodiscard]] RMM_COLD void* allocate(std::size_t bytes, cudaStream_t stream, capture_state const& state)
  {
    auto const from = find_announced(stream, state);
    auto const who  = name_of(from.capture, stream);
    capture_exemption const exemption;
    detail::mutex_lock const lock{mutex_};
    auto& memory = find_or_make(from.memory);
    if (void* const ptr = memory.try_allocate(bytes, who, from.is_shared)) { return ptr; }
    memory.make_room_for_chunk();
    auto chunk = heap_.take_idle(usual_chunk(bytes));
    if (chunk.bytes == 0) { chunk = heap_.take_idle(bytes); }
    if (chunk.bytes == 0) { return nullptr; }
    RMM_ASSERT(chunk.bytes >= bytes);
    memory.add_chunk(chunk);
    set_bounds();
    RMM_ASSERT(find_owner(chunk.begin) == &memory);
    return memory.try_allocate(bytes, who, from.is_shared);
  }

  /// Adds a block that no work uses to the heap, and allocates from it. If it throws, as allocate() does, the caller keeps the block.
  /// Returns null if `bytes` is 0. Requires that `bytes` is at most the size of the block.
  [[nodiscard]] RMM_COLD void* add_block_and_allocate(address_range block,
                                                      std::size_t bytes,
                                                      cudaStream_t stream,
                                                      capture_state const& state)
  {
    auto const from = find_announced(stream, state);
    auto const who  = name_of(from.capture, stream);
    capture_exemption const exemption;
    detail::mutex_lock const lock{mutex_};
    auto& memory = find_or_make(from.memory);
    memory.make_room_for_chunk();
    auto const whole = align_down(block.bytes, heap_granule);
    auto const chunk = heap_.add_idle_block(block, bytes != 0 ? detail::min(usual_chunk(bytes, whole), whole) : 0);
    if (bytes == 0) { return nullptr; }
    RMM_ASSERT(bytes <= chunk.bytes && chunk.bytes <= whole);
    memory.add_chunk(chunk);
    set_bounds();
    return memory.try_allocate(bytes, who, from.is_shared);
  }

  /// Frees memory that a graph may use: blocks of chunks, and blocks that a stream frees while it captures. Returns false for other blocks,
  /// which the heap frees. `asks`: whether the stream may capture.
  [[nodiscard]] RMM_COLD bool try_deallocate(address_range range, cudaStream_t stream, bool asks) noexcept
  {
    bool const is_near = is_between_bounds(range.begin);
    if (!is_near && !asks) { return false; }
    auto const state = query_capture(stream);
    announced_memory from;
    if (state.is_capturing()) { from = captures_.find(stream, state); }
    auto const who = name_of(from.capture, stream);

    detail::mutex_lock const lock{mutex_};
    auto* const owner = is_near ? find_owner(range.begin) : nullptr;
    if (owner != nullptr && !state.is_capturing()) {
      free_outside_of_captures(*owner, range, stream, state);
      return true;
    }
    if (owner != nullptr && owner->number() == from.memory) {
      owner->free_in_capture(range, who);
      return true;
    }
    if (!state.is_capturing()) { return false; }
    if (from.memory == 0) {
      log_unannounced();
      return true;
    }
    try {
      static_cast<void>(find_or_make(from.memory).try_keep(range));
    } catch (std::bad_alloc const&) {  // the block stays allocated
    }
    return true;
  }

  /// Logs, once, that an unannounced capture freed memory.
  RMM_COLD void log_unannounced() noexcept
  {
    if (unannounced_was_logged_.exchange(true, std::memory_order_relaxed)) { return; }
    log(
      log_level::error,
      "Memory was freed on a stream that captures a CUDA graph, and no rmm::capture_scope announces the capture. The "
      "memory stays unused until its resource is destroyed, because the graph may use it: make a capture_scope first");
  }

  /// Forgets all memories, and their live blocks.
  void clear() noexcept
  {
    detail::mutex_lock const lock{mutex_};
    memories_.clear();
    RMM_ASSERT_EXPENSIVE(check_invariants());
  }

  // --- figures; with the lock ---

  [[nodiscard]] detail::mutex& mutex() const noexcept { return mutex_; }

  [[nodiscard]] bool is_empty() const noexcept { return memories_.empty(); }

  /// Returns the bytes of chunks outside live blocks, and of kept blocks.
  [[nodiscard]] std::size_t bytes() const noexcept
  {
    std::size_t sum{};
    for (auto const& memory : memories_) { sum += memory->bytes(); }
    return sum;
  }

  /// Calls visit(range) for the noted ranges among these bytes.
  template <class Visit>
  void for_each_unused(Visit&& visit) const
  {
    for (auto const& memory : memories_) { memory->for_each_unused(visit); }
  }

  /// Calls visit(range) for each chunk.
  template <class Visit>
  void for_each_chunk(Visit&& visit) const
  {
    for (auto const& memory : memories_) { memory->for_each_chunk(visit); }
  }

  /// Whether A2, A4 and A5, and the invariants of all memories hold. Only the heap can tell of A1 and A3.
  [[nodiscard]] bool check_invariants() const noexcept
  {
    bool good = true;
    for (auto const& memory : memories_) {
      good = good && memory->number() != 0 && find(memory->number()) == memory.get();                  // A4
      good = good && memory->check_invariants() && (!memory->is_released() || memory->is_all_live());  // A5
      memory->for_each_chunk([&](address_range range) {
        good = good && find_owner(range.begin) == memory.get() && find_owner(range.end() - 1) == memory.get();  // A4
        good = good && is_between_bounds(range.begin) && is_between_bounds(range.end() - 1);                    // A2
      });
    }
    return good;
  }

 private:
  static constexpr std::size_t most_usual_chunk = std::size_t{2} << 20;

  struct listener : capture_listener {
    graph_arena* arena{};
  };

  /// Returns the announced memory of the capture that a stream is in. Throws logic_error if the capture was not announced.
  [[nodiscard]] announced_memory find_announced(cudaStream_t stream, capture_state const& state) const
  {
    auto const found = captures_.find(stream, state);
    if (found.memory == 0) {
      throw_as<logic_error>(
        "The stream captures a CUDA graph that no rmm::capture_scope announces, so other work could get the graph's "
        "memory: make a capture_scope before you allocate (see rmm/capture_scope.hpp)");
    }
    return found;
  }

  [[nodiscard]] static captured_stream name_of(std::uint64_t capture, cudaStream_t stream) noexcept
  {
    return {capture,
            reinterpret_cast<std::uintptr_t>(stream),
            is_default_stream(stream) ? static_cast<std::uint64_t>(thread_number()) : 0,
            known_streams().ends().load(std::memory_order_acquire)};
  }

  [[nodiscard]] bool is_between_bounds(std::uintptr_t address) const noexcept
  {
    return address >= begin_.load(std::memory_order_relaxed) && address < end_.load(std::memory_order_relaxed);
  }

  /// Returns the size of the chunk to take for a request: small requests share a larger chunk. `added`: bytes that the heap is about to
  /// get.
  [[nodiscard]] std::size_t usual_chunk(std::size_t bytes, std::size_t added = 0) const noexcept
  {
    return detail::max(bytes,
                       detail::min(align_down((heap_.block_bytes() + added) / 64, heap_granule), most_usual_chunk));
  }

  /// Frees a block of a graph's memory outside of captures.
  void free_outside_of_captures(captured_memory& memory,
                                address_range range,
                                cudaStream_t stream,
                                capture_state const& state) noexcept
  {
    bool noted = false;
    if (state.is_none() && !memory.is_released()) {
      try {
        owned_event event{device_of_stream(stream)};
        noted = event.try_record(stream) && memory.free_after(range, event);
      } catch (std::exception const&) {}  // without an event, only a wait for the devices makes it idle
    }
    if (!noted) { memory.free_without_event(range); }
    if (memory.is_released()) { give_back(memory, {memory.number(), false, nullptr}); }
  }

  /// Releases the memory whose last handle is gone, and gives its chunks back.
  RMM_COLD void end_memory(graph_memory_end const& end) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    auto* const memory = find(end.memory);
    if (memory == nullptr) { return; }
    RMM_ASSERT(!memory->is_released());
    memory->set_released();
    give_back(*memory, end);
  }

  /// Gives chunks without live blocks, and kept blocks, of released memories back to the heap. Chunks of `memory`, which ends, go to
  /// the store of the stream in `end`, if it names one. All other chunks and all kept blocks are reused only after the devices were synchronised.
  void give_back(captured_memory& memory, graph_memory_end const& end) noexcept
  {
    RMM_ASSERT(find(end.memory) == &memory);
    RMM_ASSERT(memory.is_released());
    std::uint64_t store = 0;
    {
      capture_exemption const exemption;
      bool const has_stream = end.has_stream && query_capture(end.stream).is_none();
      if (memory.forget_free(has_stream, end.stream)) { store = heap_.fence_for_frees(end.stream); }
    }
    memory.leave(leave_to(store));
    for (auto const& each : memories_) {  // a kept block may have been the last live block of one of these
      if (each->is_released()) { each->leave(leave_to(0)); }
    }
    memories_.erase(
      detail::remove_if(
        memories_.begin(), memories_.end(), [](auto const& each) { return each->is_released() && each->is_empty(); }),
      memories_.end());
    set_bounds();
  }

  /// Returns the function for captured_memory::leave(). Chunks go to the store with this identity, from fence_for_frees(). If that is 0,
  /// they wait for the devices.
  [[nodiscard]] auto leave_to(std::uint64_t store) noexcept
  {
    return [this, store](address_range range, bool is_chunk) noexcept {
      if (auto* const owner = is_chunk ? nullptr : find_owner(range.begin)) {  // one graph freed a block of another
        owner->free_without_event(range);
      } else {
        heap_.free_fenced(range, is_chunk ? store : 0);  // a graph runs wherever it is launched
      }
      return true;
    };
  }

  /// Returns the memory that has the chunk of an address; null if no chunk contains it.
  [[nodiscard]] captured_memory* find_owner(std::uintptr_t address) const noexcept
  {
    return find_if([&](captured_memory const& each) { return each.owns(address); });
  }

  [[nodiscard]] captured_memory* find(std::uint64_t number) const noexcept
  {
    return find_if([&](captured_memory const& each) { return each.number() == number; });
  }

  template <class Predicate>
  [[nodiscard]] captured_memory* find_if(Predicate&& is_it) const noexcept
  {
    auto const found =
      detail::find_if(memories_.begin(), memories_.end(), [&](auto const& each) { return is_it(*each); });
    return found == memories_.end() ? nullptr : found->get();
  }

  /// Throws std::bad_alloc.
  [[nodiscard]] captured_memory& find_or_make(std::uint64_t number)
  {
    if (auto* const found = find(number)) { return *found; }
    RMM_ASSERT(number != 0);  // A4
    memories_.push_back(detail::make_owned<captured_memory>(number));
    RMM_ASSERT_EXPENSIVE(check_invariants());
    return *memories_.back();
  }

  /// Writes the bounds (A2). A thread that has a block sees bounds that cover it, for its chunk stays as long as the block is live.
  void set_bounds() noexcept
  {
    std::uintptr_t begin{};
    std::uintptr_t end{};
    for (auto const& memory : memories_) {
      auto const [first, last] = memory->bounds();
      if (last == 0) { continue; }
      begin = end == 0 ? first : detail::min(begin, first);
      end   = detail::max(end, last);
    }
    begin_.store(begin, std::memory_order_relaxed);
    end_.store(end, std::memory_order_relaxed);
    heap_.set_has_graph_memory(end != 0);
    RMM_ASSERT(begin <= end && (begin == 0) == (end == 0));
    RMM_ASSERT_EXPENSIVE(check_invariants());
  }

  Heap& heap_;
  capture_announcements& captures_{announced_captures()};
  // The bounds: no chunk lies below or above them.
  std::atomic<std::uintptr_t> begin_{0};
  std::atomic<std::uintptr_t> end_{0};
  std::atomic<bool> unannounced_was_logged_{false};
  mutable detail::mutex mutex_;  // guards what follows
  std::vector<detail::owned_ptr<captured_memory>> memories_;
  listener listener_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
