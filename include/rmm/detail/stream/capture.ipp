// SPDX-License-Identifier: Apache-2.0
// What stream_ordered_heap.hpp, which includes it, does for streams that capture.

namespace RMM_NAMESPACE {
namespace detail {

/// What the capture that a stream is in was announced with. Throws logic_error if it was not.
template <class Unused>
inline announced_memory basic_stream_ordered_heap<Unused>::find_announced(cudaStream_t stream,
                                                                          capture_state const& state) const
{
  auto const found = captures_.find(stream, state);
  if (found.memory == 0) {
    throw_as<logic_error>(
      "The stream captures a CUDA graph, and no rmm::capture_scope announces that: whoever allocates while the graph "
      "runs "
      "would get the same memory (see rmm/capture_scope.hpp)");
  }
  return found;
}

template <class Unused>
inline captured_stream basic_stream_ordered_heap<Unused>::name_captured(std::uint64_t capture,
                                                                        cudaStream_t stream) const noexcept
{
  return {capture,
          reinterpret_cast<std::uintptr_t>(stream),
          is_default_stream(stream) ? static_cast<std::uint64_t>(thread_number()) : 0,
          streams_.ends().load(std::memory_order_acquire)};
}

/// A stream captures: from the memory that the capture was announced with. Null if there is no room for `bytes` that no work
/// uses: a graph may be launched on any stream, so that it cannot wait for anything now.
template <class Unused>
void* basic_stream_ordered_heap<Unused>::allocate_for_capture(std::size_t bytes,
                                                              cudaStream_t stream,
                                                              capture_state const& state)
{
  auto const from = find_announced(stream, state);
  auto const who  = name_captured(from.capture, stream);
  capture_exemption const exemption;
  std::lock_guard<std::mutex> const lock{mutex_};
  return allocate_captured(bytes, who, from);
}

/// The same for add_block_and_allocate(). Once the block is taken nothing is thrown.
template <class Unused>
void* basic_stream_ordered_heap<Unused>::add_block_for_capture(address_range block,
                                                               std::size_t bytes,
                                                               cudaStream_t stream,
                                                               capture_state const& state)
{
  auto const from = find_announced(stream, state);
  auto const who  = name_captured(from.capture, stream);
  capture_exemption const exemption;
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!everyones_.try_make_room(1)) { throw std::bad_alloc{}; }
  adopt(block);
  everyones_.ranges().insert({block.begin, align_down(block.bytes, heap_granule)}, 0, seams());
  try {
    return bytes != 0 ? allocate_captured(bytes, who, from) : nullptr;
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}

/// With the lock, and exempt from captures.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::allocate_captured(std::size_t bytes,
                                                                  captured_stream who,
                                                                  announced_memory const& from)
{
  auto& memory = find_or_make_captured(from.memory);
  if (void* const ptr = memory.try_allocate(bytes, who, from.is_shared)) { return ptr; }

  // Small requests get a part of a larger chunk, unless there is none.
  auto const usual = std::max(bytes, std::min(align_down(block_bytes() / 64, heap_granule), usual_captured_chunk));
  if (!limits_.reserve.try_claim(1)) { throw std::bad_alloc{}; }  // by H4: the chunk comes back in one piece
  scope_guard cancel{[&]() noexcept { limits_.reserve.release(1); }};
  auto chunk = take_idle(usual);
  if (chunk.bytes == 0 && usual != bytes) { chunk = take_idle(bytes); }
  if (chunk.bytes == 0) { return nullptr; }
  try {
    memory.add_chunk(chunk);
  } catch (...) {
    everyones_.ranges().insert(chunk, 0, seams());  // where it was, so there is room
    throw;
  }
  cancel.dismiss();
  live_without_cache_ += static_cast<std::int64_t>(chunk.bytes);
  set_captured_bounds();
  return memory.try_allocate(bytes, who, from.is_shared);
}

/// Takes memory that no work can use. Looks further only if need be: nothing, if there is none of that size.
template <class Unused>
inline address_range basic_stream_ordered_heap<Unused>::take_idle(std::size_t bytes)
{
  auto taken = everyones_.ranges().take_best(bytes);
  if (!taken) {
    poll(std::numeric_limits<std::size_t>::max());
    taken = everyones_.ranges().take_best(bytes);
  }
  if (!taken) {
    all_caches_closed const closed{*this};
    collect_idle();
    taken = everyones_.ranges().take_best(bytes);
  }
  return taken ? address_range{taken.begin, bytes} : address_range{};
}

/// Waits on the host for all events; a capture allows that, but no synchronisation of the device.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::wait_for_marked_memory() noexcept
{
  capture_exemption const exemption;
  all_caches_closed const closed{*this};
  for (auto const& cache : caches_) { cache->event().synchronize_no_throw(); }
  for (auto const& store : stores_) { store->synchronize(); }
}

/// Takes back what a graph may use: memory of graphs, and memory that a stream frees while it captures. False if it is neither.
template <class Unused>
bool basic_stream_ordered_heap<Unused>::try_deallocate_captured(address_range range, cudaStream_t stream) noexcept
{
  bool const is_near = range.begin >= captured_begin_.load(std::memory_order_relaxed) &&
                       range.begin < captured_end_.load(std::memory_order_relaxed);
  if (!is_near && (!asks_for_captures() || is_legacy_stream(stream))) { return false; }
  auto const state = query_capture(stream);
  announced_memory from;
  if (state.is_capturing()) { from = captures_.find(stream, state); }
  auto const who = name_captured(from.capture, stream);

  std::lock_guard<std::mutex> const lock{mutex_};
  auto* const owner = is_near ? find_owner(range.begin) : nullptr;
  if (owner != nullptr && !state.is_capturing()) {
    free_captured(*owner, range, stream, state);
    return true;
  }
  if (owner != nullptr && owner->number() == from.memory) {
    owner->free_in_capture(range, who);
    return true;
  }
  if (!state.is_capturing()) { return false; }
  if (from.memory == 0) {
    log_unannounced_capture();
    return true;
  }
  try {
    static_cast<void>(find_or_make_captured(from.memory).try_keep(range));
  } catch (std::bad_alloc const&) {  // it stays what it is, allocated
  }
  return true;
}

/// Memory of a graph is freed outside of captures.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::free_captured(captured_memory& memory,
                                                             address_range range,
                                                             cudaStream_t stream,
                                                             capture_state const& state) noexcept
{
  bool noted = false;
  if (state.is_none() && !memory.is_released()) {
    try {
      owned_event event = take_spare_event(device_of_stream(stream));
      noted             = event.try_record(stream) && memory.free_after(range, event);
    } catch (std::exception const&) {}  // no event: nobody knows when it is idle
  }
  if (!noted) { memory.free_for_good(range); }
  if (memory.is_released()) { give_back_captured({memory.number(), false, nullptr}); }
}

/// The memory of graphs that a block lies in; null if it is none.
template <class Unused>
inline captured_memory* basic_stream_ordered_heap<Unused>::find_owner(std::uintptr_t block) const noexcept
{
  auto const found =
    std::find_if(captured_.begin(), captured_.end(), [&](auto const& each) { return each->owns(block); });
  return found == captured_.end() ? nullptr : found->get();
}

template <class Unused>
inline captured_memory* basic_stream_ordered_heap<Unused>::find_captured(std::uint64_t number) const noexcept
{
  auto const found =
    std::find_if(captured_.begin(), captured_.end(), [&](auto const& each) { return each->number() == number; });
  return found == captured_.end() ? nullptr : found->get();
}

/// Throws std::bad_alloc.
template <class Unused>
inline captured_memory& basic_stream_ordered_heap<Unused>::find_or_make_captured(std::uint64_t number)
{
  if (auto* const found = find_captured(number)) { return *found; }
  captured_.push_back(std::make_unique<captured_memory>(number));
  return *captured_.back();
}

/// Nobody has a handle of a graph memory any more.
template <class Unused>
void basic_stream_ordered_heap<Unused>::graph_memory_ends(capture_listener& self, graph_memory_end const& end) noexcept
{
  auto& heap = *static_cast<listener_for_captures&>(self).heap;
  std::lock_guard<std::mutex> const lock{heap.mutex_};
  auto* const memory = heap.find_captured(end.memory);
  if (memory == nullptr) { return; }
  memory->set_released();
  heap.give_back_captured(end);
}

/// Frees the chunks of released memories in which nothing lives, and what they kept: those of one memory in the order of a
/// stream, the others, or without a stream all, for whoever needs them after the device was synchronised.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::give_back_captured(graph_memory_end const& end) noexcept
{
  auto& memory = *find_captured(end.memory);
  free_store* ordered{};
  {
    capture_exemption const exemption;
    bool const has_stream = end.has_stream && query_capture(end.stream).is_none();
    if (memory.forget_free(has_stream, end.stream)) {
      ordered = find_or_make_store(stream_identity(end.stream), device_of_stream(end.stream));
      if (ordered != nullptr && !try_add_ticket(*ordered, end.stream)) { ordered = nullptr; }
    }
  }
  auto const leave_in = [&](free_store* in) {
    return [this, in](address_range range, bool is_chunk) noexcept {
      if (auto* const owner =
            is_chunk ? nullptr : find_owner(range.begin)) {  // freed by one graph, allocated by another
        owner->free_for_good(range);
        return true;
      }
      leave_graph(range, is_chunk ? in : nullptr);
      return true;
    };
  };
  memory.leave(leave_in(ordered));
  for (auto const& each : captured_) {  // what it kept may have been the last block of one of these
    if (each->is_released()) { each->leave(leave_in(nullptr)); }
  }
  captured_.erase(
    std::remove_if(
      captured_.begin(), captured_.end(), [](auto const& each) { return each->is_released() && each->is_empty(); }),
    captured_.end());
  set_captured_bounds();
}

/// Memory that graphs used is free in the order of a store's stream, whose newest ticket is later, or without one for whoever
/// needs it after the devices were synchronised.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::leave_graph(address_range range, free_store* ordered) noexcept
{
  live_without_cache_ -= static_cast<std::int64_t>(range.bytes);
  if (ordered != nullptr && ordered->try_make_room(1)) {
    ordered->ranges().insert(range, ordered->newest(), seams());
    limits_.reserve.release(1);
  } else {
    lose(range, every_device);  // a graph runs wherever it is launched
  }
}

/// Who has a block of a captured_memory sees bounds around it: they are written before it is given out, and cover all such
/// memory at each moment, for none is given back with a live block in it.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::set_captured_bounds() noexcept
{
  std::uintptr_t begin{};
  std::uintptr_t end{};
  for (auto const& memory : captured_) {
    auto const [first, last] = memory->bounds();
    if (last == 0) { continue; }
    begin = end == 0 ? first : std::min(begin, first);
    end   = std::max(end, last);
  }
  captured_begin_.store(begin, std::memory_order_relaxed);
  captured_end_.store(end, std::memory_order_relaxed);
  set_detour(detour_has_memory, end != 0);
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::log_unannounced_capture() noexcept
{
  if (unannounced_was_logged_.exchange(true, std::memory_order_relaxed)) { return; }
  log(
    log_level::error,
    "Memory was freed on a stream that captures a CUDA graph, and no rmm::capture_scope announces that: it is not used "
    "again until its memory resource is destroyed, for the graph may use it whenever it runs");
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
