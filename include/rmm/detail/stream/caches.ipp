// SPDX-License-Identifier: Apache-2.0
// The part of stream_ordered_heap.hpp, which includes it, that deals with caches: entering them, making and dropping them, and
// what they exchange with stores.

namespace RMM_NAMESPACE {
namespace detail {

template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::allocate_out_of_line(std::size_t bytes, cudaStream_t stream)
{
  context_scope const with_context{context_for(stream)};
  bytes            = align_up(bytes, heap_granule);
  bool const asked = asks_for_captures() && !is_legacy_stream(stream);
  capture_state capture;
  if (asked) {
    capture = query_capture(stream);
    if (capture.is_capturing()) { return graphs_.allocate(bytes, stream, capture); }
  }
  auto* cache = find_local_cache(key_of(stream));
  if (cache == nullptr || !cache->is_current()) { cache = find_or_make_cache(stream, true); }
  if (cache != nullptr && !is_large(bytes)) {
    cache_entered const inside{*cache};
    if (inside) {
      if (void* const ptr = take(*cache, bytes)) { return ptr; }
    }
  }
  if (!asked) {
    capture = query_capture(stream);
    if (capture.is_capturing()) { return graphs_.allocate(bytes, stream, capture); }
  }
  auto const who = make_asker(stream, cache, capture.is_none());
  std::lock_guard<std::mutex> const lock{mutex_};
  return allocate_locked(bytes, who);
}

template <class Unused>
inline void basic_stream_ordered_heap<Unused>::deallocate_out_of_line(void* ptr,
                                                                      std::size_t bytes,
                                                                      cudaStream_t stream) noexcept
{
  context_scope const with_context{context_for(stream)};
  bytes = align_up(bytes, heap_granule);
  if (slow_path_.load(std::memory_order_relaxed) != 0 &&
      graphs_.try_deallocate(
        {reinterpret_cast<std::uintptr_t>(ptr), bytes}, stream, asks_for_captures() && !is_legacy_stream(stream))) {
    return;
  }
  auto* cache = find_local_cache(key_of(stream));
  if (cache == nullptr) { cache = find_or_make_cache(stream, false); }
  bool placed = false;
  bool due    = false;
  if (cache != nullptr && !is_large(bytes)) {
    {
      cache_entered const inside{*cache};
      placed = inside && put(*cache, ptr, bytes);
      due    = placed && cache->is_fence_due();
    }
    if (!placed) {  // kept out, no host memory, or the handle names another stream now
      cache = find_or_make_cache(stream, true);
      std::lock_guard<std::mutex> const lock{mutex_};
      placed = cache != nullptr && put(*cache, ptr, bytes);
      due    = placed && cache->is_fence_due();
    }
  }
  if (!placed) {
    bool const known = cache != nullptr && cache->is_current();
    auto const who   = make_asker(stream, known ? cache : nullptr);
    std::lock_guard<std::mutex> const lock{mutex_};
    free_to_store({reinterpret_cast<std::uintptr_t>(ptr), bytes}, who);
    return;
  }
  if (due) { fence_out_of_line(*cache); }
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::fence_out_of_line(stream_cache& cache) noexcept
{
  context_scope const with_context{context_for(cache.stream())};
  bool current = false;
  {
    cache_entered const inside{cache};
    if (!inside) { return; }  // the next free comes here again
    current = cache.is_current();
    if (current) {
      if (!fence_current(cache)) { return; }
      count_eager_fence();
      if (!is_beyond_share(cache) && !has_to_flush(cache)) { return; }
    }
  }
  if (!current) {  // some of these frees are those of the stream that the handle names now: no event covers the others
    if (auto* const mine = thread_caches::mine()) { drop(*mine, cache); }
    return;
  }
  std::lock_guard<std::mutex> const lock{mutex_};
  flush(cache);
}

template <class Unused>
inline stream_cache* basic_stream_ordered_heap<Unused>::find_or_make_cache(cudaStream_t stream, bool ask) noexcept
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
  if (cache == nullptr) { cache = make_cache(*mine, stream); }
  if (cache != nullptr) { slot = {number_, key, cache}; }
  return cache;
}

template <class Unused>
stream_cache* basic_stream_ordered_heap<Unused>::make_cache(thread_caches& mine, cudaStream_t stream) noexcept
{
  drop_ended(mine);
  auto const name = name_of(stream);
  if (name.identity == 0) { return nullptr; }
  static std::atomic<std::uint64_t> const never_ends{0};
  bool const is_known = !is_default_stream(stream) && streams_.is_known(stream);
  auto const* ends    = is_default_stream(stream) ? &never_ends : is_known ? &streams_.ends() : nullptr;
  try {
    if (mine.has_many(most_thread_caches)) {
      if (auto* const another = mine.next_of(number_)) { drop(mine, *another); }
    }
    auto made         = std::make_unique<stream_cache>(name, ends, is_known || is_legacy_stream(stream), limits_);
    auto* const cache = made.get();
    mine.add({number_, name.key, cache, link_});
    scope_guard undo{[&]() noexcept { mine.forget(number_, name.key); }};
    if (is_per_thread_stream(stream)) { thread_caches::retire_before_own_stream_ends(); }
    std::lock_guard<std::mutex> const lock{mutex_};
    caches_.push_back(std::move(made));
    cache->set_place(caches_.size() - 1);
    set_limits();
    undo.dismiss();
    return cache;
  } catch (std::exception const&) {
    return nullptr;
  }
}

/// A store of the cache's stream that can have the cache's event as its next fence: F3. Null without host memory.
template <class Unused>
inline free_store* basic_stream_ordered_heap<Unused>::store_for_event(stream_cache const& cache,
                                                                      bool is_newest) noexcept
{
  auto* const own = shared_.find_or_make(cache.identity(), cache.device());
  return is_newest || own == nullptr || !own->has_fences() ? own : shared_.try_add(cache.identity(), cache.device());
}

/// Drops the calling thread's caches of streams that have ended.
template <class Unused>
void basic_stream_ordered_heap<Unused>::drop_ended(thread_caches& mine) noexcept
{
  if (ended_caches_.load(std::memory_order_relaxed) == 0) { return; }
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

/// Moves what a cache has to the stores, and destroys it, as far as there is host memory: what stays has no owner, and others
/// can still take from it. `is_alive`: whether the stream is sure not to end meanwhile.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::retire_locked(stream_cache& cache, bool is_alive) noexcept
{
  context_scope const with_context{home_device_};
  capture_exemption const exemption;
  shared_.poll(polls_for_retired);
  bool is_newest = false;  // whether the cache's event is newer than those of its stream's store
  if (is_alive || is_legacy_stream(cache.stream())) {
    device_scope const on_device{cache.device()};  // the handle of a default stream names that of the current one
    is_newest = cache.fence(cache.stream());
  }
  cache.empty_stacks();
  auto& ranges = cache.ranges();
  if (cache.has_fenced_blocks()) { return; }
  if (!ranges.empty()) {
    bool const reached = cache.event().is_reached();
    auto* const store  = reached ? &shared_.idle() : store_for_event(cache, is_newest);
    if (store == nullptr || !store->try_make_room(ranges.count())) { return; }
    if (!reached) {
      auto event = cache.take_event();
      if (!store->try_add_fence(event)) { return cache.give_event_back(std::move(event)); }
    }
    ranges.for_each(
      [&](address_range range, std::uint64_t) { store->ranges().insert(range, store->newest(), seams()); });
    ranges.clear();
  }
  // No fenced block is left. A stream may still be alive, and give the rest an event in its next call.
  bool const may_live = !cache.has_ended() && !is_default_stream(cache.stream());
  auto* const store =
    may_live && cache.has_unfenced() ? shared_.find_or_make(cache.identity(), cache.device()) : nullptr;
  cache.for_each_free([&](address_range range, bool) {
    if (store == nullptr || !store->try_add_unfenced(range)) { shared_.lose(range, devices_of_unfenced(cache)); }
  });
  live_without_cache_ += cache.live_bytes();
  cache.return_spare_claims();
  if (cache.has_ended()) { ended_caches_.fetch_sub(1, std::memory_order_relaxed); }
  auto const at = cache.place();
  std::swap(caches_[at], caches_.back());
  caches_[at]->set_place(at);
  caches_.pop_back();
  set_limits();
}

template <class Unused>
inline void basic_stream_ordered_heap<Unused>::stream_ends(stream_end_listener& self, cudaStream_t stream) noexcept
{
  auto& heap = *static_cast<listener&>(self).heap;
  std::lock_guard<std::mutex> const lock{heap.mutex_};
  auto const is_its       = [&](auto const& cache) { return cache->stream() == stream && !cache->has_ended(); };
  auto const any_unfenced = [](auto const& store) { return !store->unfenced().empty(); };
  if (std::none_of(heap.caches_.begin(), heap.caches_.end(), is_its) &&
      std::none_of(heap.shared_.stores().begin(), heap.shared_.stores().end(), any_unfenced)) {
    return;
  }
  auto const identity = stream_identity(stream);
  if (auto* const store = heap.shared_.find(identity)) { heap.shared_.fence_left(*store, stream); }
  all_caches_closed const closed{heap};
  for (auto const& cache : heap.caches_) {
    if (!is_its(cache)) { continue; }
    // A stream that captures tells no identity. A cache that was told of all ends is that of this stream.
    if (identity != 0 ? cache->identity() != identity : !cache->is_lasting()) { continue; }
    if (cache->has_unfenced()) { static_cast<void>(cache->fence(stream)); }
    cache->set_ended();
    heap.ended_caches_.fetch_add(1, std::memory_order_relaxed);
  }
}

/// From what the cache has, or gets from its stream's store or from that of all. Null if none has enough.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::allocate_through_cache(std::size_t bytes,
                                                                       stream_cache& cache,
                                                                       free_store* own)
{
  if (void* const ptr = take(cache, bytes)) { return ptr; }  // it may have been kept out before
  if (!cache.try_make_room(1)) { throw std::bad_alloc{}; }
  bool refilled = refill(shared_.idle(), bytes, cache);
  if (!refilled) {
    shared_.poll(most_polls);
    refilled = refill(shared_.idle(), bytes, cache);
  }
  if (!refilled && own != nullptr && own->ranges().total_bytes() >= bytes) {
    // What comes from the stream's own store may be used after the cache's event, once that is recorded again.
    refilled = fence(cache) && refill(*own, bytes, cache);
  }
  if (refilled) {
    if (void* const ptr = take(cache, bytes)) { return ptr; }
  }
  return take_coalesced(cache, bytes);
}

/// From all that is free in the cache, coalesced as far as possible.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::take_coalesced(stream_cache& cache, std::size_t bytes)
{
  if (!cache.has_unfenced() || fence(cache)) { cache.empty_stacks(); }
  return cache.take_best(bytes);
}

/// Moves a range with room for `bytes` to a cache, if possible with more; everything, if there is no other cache. False if there is
/// none, or no host memory to note it.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::refill(free_store& from, std::size_t bytes, stream_cache& to)
{
  if (from.ranges().total_bytes() < bytes || !to.try_make_room(1)) { return false; }
  if (caches_.size() == 1 && to.try_make_room(from.ranges().count())) {
    from.ranges().for_each([&](address_range range, std::uint64_t) { to.add_range(range); });
    from.ranges().clear();
    return true;
  }
  auto size = bytes;
  taken_range taken{};
  if (bytes <= refill_bytes_ / 2) {
    // A fragment that fits whole; else from the top of memory, where few ranges are so large that they are looked at.
    auto const fit = from.ranges().good_fit(bytes);
    if (fit == 0) { return false; }
    size  = fit <= refill_bytes_ ? fit : refill_bytes_;
    taken = fit <= refill_bytes_ ? from.ranges().take_good(size) : from.ranges().take_highest(size);
    if (!taken) { size = bytes; }
  }
  if (!taken) { taken = from.ranges().take_good(size); }
  if (!taken) { return false; }
  to.add_range({taken.begin, size});
  return true;
}

/// Whether other threads and streams have more use for what a cache has. Less is enough if it takes back what others allocated:
/// then it will hardly need it itself.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::is_beyond_share(stream_cache const& cache) const noexcept
{
  auto const& share = cache.live_bytes() < 0 ? share_of_consumer_ : share_;
  return cache.ranges().total_bytes() > share.load(std::memory_order_relaxed);
}

/// A cache that grows beyond its share frees more than it takes: moves all that it has to the store, small pieces too, for
/// those would keep their neighbours apart. Called by the owner, in a call that the program makes on the stream, after fence().
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::flush(stream_cache& cache) noexcept
{
  auto& ranges      = cache.ranges();
  auto* const store = shared_.find_or_make(cache.identity(), cache.device());
  bool const all    = is_beyond_share(cache);
  if (all) { cache.empty_stacks(); }
  if (store == nullptr || !store->try_make_room(ranges.count()) || !shared_.try_add_fence(*store, cache.stream())) {
    return;
  }
  if (all) {
    ranges.for_each(
      [&](address_range range, std::uint64_t) { store->ranges().insert(range, store->newest(), seams()); });
    ranges.clear();
    return;
  }
  while (has_to_flush(cache)) {
    store->ranges().insert(ranges.take_up_to(range_set::no_limit).range, store->newest(), seams());
  }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
