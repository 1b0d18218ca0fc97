// SPDX-License-Identifier: Apache-2.0
// The rarely called part of stream_ordered_heap.hpp, which includes it.

namespace RMM_NAMESPACE {
namespace detail {

// --- a thread's own cache --------------------------------------------------------------------------------------------

template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::allocate_out_of_line(std::size_t bytes, cudaStream_t stream)
{
  bytes            = align_up(bytes, heap_granule);
  bool const asked = asks_for_captures() && !is_legacy_stream(stream);
  capture_state capture;
  if (asked) {
    capture = query_capture(stream);
    if (capture.is_capturing()) { return allocate_for_capture(bytes, stream, capture); }
  }
  auto* cache = find_cache_at_once(stream);
  if (cache == nullptr || !cache->is_current()) { cache = find_or_make_cache(stream, true); }
  if (cache != nullptr && !is_wide(bytes)) {
    cache_entered const inside{*cache};
    if (inside) {
      if (void* const ptr = take(*cache, bytes)) { return ptr; }
    }
  }
  if (!asked) {
    capture = query_capture(stream);
    if (capture.is_capturing()) { return allocate_for_capture(bytes, stream, capture); }
  }
  asker const who{stream, cache != nullptr ? cache->identity() : stream_identity(stream), cache, capture.is_none()};
  std::lock_guard<std::mutex> const lock{mutex_};
  return allocate_locked(bytes, who);
}

template <class Unused>
inline void basic_stream_ordered_heap<Unused>::deallocate_out_of_line(void* ptr,
                                                                      std::size_t bytes,
                                                                      cudaStream_t stream) noexcept
{
  bytes = align_up(bytes, heap_granule);
  if (detour_.load(std::memory_order_relaxed) != 0 &&
      try_deallocate_captured({reinterpret_cast<std::uintptr_t>(ptr), bytes}, stream)) {
    return;
  }
  auto* cache = find_cache_at_once(stream);
  if (cache == nullptr) { cache = find_or_make_cache(stream, false); }
  bool placed = false;
  bool due    = false;
  if (cache != nullptr && !is_wide(bytes)) {
    {
      cache_entered const inside{*cache};
      placed = inside && put(*cache, ptr, bytes);
      due    = placed && cache->is_mark_due();
    }
    if (!placed) {  // kept out, no host memory, or the handle names another stream now
      cache = find_or_make_cache(stream, true);
      std::lock_guard<std::mutex> const lock{mutex_};
      placed = cache != nullptr && put(*cache, ptr, bytes);
      due    = placed && cache->is_mark_due();
    }
  }
  if (!placed) {
    bool const known    = cache != nullptr && cache->is_current();
    auto const identity = known ? cache->identity() : stream_identity(stream);
    std::lock_guard<std::mutex> const lock{mutex_};
    free_to_store({reinterpret_cast<std::uintptr_t>(ptr), bytes}, {stream, identity, known ? cache : nullptr});
    return;
  }
  if (due) { mark_out_of_line(*cache); }
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::mark_out_of_line(stream_cache& cache) noexcept
{
  bool current = false;
  {
    cache_entered const inside{cache};
    if (!inside) { return; }  // the next free comes here again
    current = cache.is_current();
    if (current) {
      if (!mark_current(cache)) { return; }
      if (!is_beyond_share(cache) && !has_to_spill(cache)) { return; }
    }
  }
  if (!current) {  // some of these frees are those of the stream that the handle names now: no event covers the others
    if (auto* const mine = thread_caches::mine()) { drop(*mine, cache); }
    return;
  }
  std::lock_guard<std::mutex> const lock{mutex_};
  overflow(cache);
}

template <class Unused>
inline stream_cache* basic_stream_ordered_heap<Unused>::find_or_make_cache(cudaStream_t stream, bool ask) noexcept
{
  auto* const mine = thread_caches::mine();
  if (mine == nullptr) { return nullptr; }
  auto& slot  = cache_slot_of(number_, stream);
  auto* cache = slot.heap == number_ && slot.stream == stream ? slot.cache : mine->find(number_, stream);
  if (cache != nullptr && ask && !cache->is_current()) {
    drop(*mine, *cache);
    cache = nullptr;
  }
  if (cache == nullptr) { cache = make_cache(*mine, stream); }
  if (cache != nullptr) { slot = {number_, stream, cache}; }
  return cache;
}

template <class Unused>
stream_cache* basic_stream_ordered_heap<Unused>::make_cache(thread_caches& mine, cudaStream_t stream) noexcept
{
  // Those of streams that have ended, and, if there are very many, all.
  auto const count =
    std::count_if(mine.entries().begin(), mine.entries().end(), [&](auto const& e) { return e.heap == number_; });
  bool const too_many = static_cast<std::size_t>(count) >= most_thread_caches;
  for (std::size_t i = mine.entries().size(); i-- > 0;) {
    auto const& each = mine.entries()[i];
    if (each.heap == number_ && (too_many || each.cache->has_ended())) { drop(mine, *each.cache); }
  }

  auto const identity = stream_identity(stream);
  if (identity == 0) { return nullptr; }
  static std::atomic<std::uint64_t> const never_ends{0};
  auto const* ends = is_default_stream(stream) ? &never_ends : streams_.is_known(stream) ? &streams_.ends() : nullptr;
  try {
    auto made         = std::make_unique<stream_cache>(stream, identity, ends, limits_);
    auto* const cache = made.get();
    mine.add({number_, stream, cache, link_});
    scope_guard undo{[&]() noexcept { mine.forget(number_, cache); }};
    std::lock_guard<std::mutex> const lock{mutex_};
    caches_.push_back(std::move(made));
    set_limits();
    undo.dismiss();
    return cache;
  } catch (std::exception const&) {
    return nullptr;
  }
}

template <class Unused>
inline void basic_stream_ordered_heap<Unused>::retire_locked(stream_cache& cache) noexcept
{
  auto* const store = find_or_make_store(cache.identity());
  if (store == nullptr) { return; }  // it stays, with no owner: others can still take from it
  cache.empty_stacks();
  auto& ranges = cache.ranges();
  try {
    store->unmarked().reserve(store->unmarked().size() + cache.unmarked_count());
  } catch (std::exception const&) {
    return;
  }
  if (cache.has_marked_blocks() || !store->try_make_room(ranges.count()) || !try_take_over_claims(cache.claims())) {
    return;
  }
  if (!ranges.empty()) {
    auto event = cache.take_event();
    if (!store->try_add_ticket(event)) {
      event.synchronize_no_throw();  // nothing to note the event with: wait for it, and no stamp is needed
    }
    ranges.for_each(
      [&](address_range range, std::uint64_t) { store->ranges().insert(range, store->newest(), seams()); });
    ranges.clear();
  }
  cache.take_unmarked([&](address_range range) { store->unmarked().push_back(range); });
  live_without_cache_ += cache.live_bytes();
  caches_.erase(std::find_if(caches_.begin(), caches_.end(), [&](auto const& each) { return each.get() == &cache; }));
  set_limits();
}

template <class Unused>
inline void basic_stream_ordered_heap<Unused>::stream_ends(stream_end_listener& self, cudaStream_t stream) noexcept
{
  auto& heap = *static_cast<listener&>(self).heap;
  std::lock_guard<std::mutex> const lock{heap.mutex_};
  auto const is_its       = [&](auto const& cache) { return cache->stream() == stream && !cache->has_ended(); };
  auto const any_unmarked = [](auto const& store) { return !store->unmarked().empty(); };
  if (std::none_of(heap.caches_.begin(), heap.caches_.end(), is_its) &&
      std::none_of(heap.stores_.begin(), heap.stores_.end(), any_unmarked)) {
    return;
  }
  auto const identity = stream_identity(stream);
  if (auto* const store = heap.find_store(identity)) { heap.mark_store(*store, stream); }
  all_caches_closed const closed{heap};
  for (auto const& cache : heap.caches_) {
    if (!is_its(cache) || cache->identity() != identity) { continue; }
    if (cache->has_unmarked()) { static_cast<void>(cache->mark(stream)); }
    cache->set_ended();
  }
}

// --- under the lock --------------------------------------------------------------------------------------------------

template <class Unused>
void* basic_stream_ordered_heap<Unused>::allocate_locked(std::size_t bytes, asker const& who)
{
  wait_failed_    = false;
  auto* const own = find_store(who.identity);
  if (own != nullptr) { mark_store(*own, who.stream); }
  bool const through_cache = who.cache != nullptr && !is_wide(bytes);
  if (through_cache) {
    if (void* const ptr = allocate_through_cache(bytes, *who.cache, own)) { return ptr; }
  }

  if (!try_claim(who)) { throw std::bad_alloc{}; }
  scope_guard cancel{[&]() noexcept { cancel_claim(who); }};
  void* ptr = nullptr;
  if (!through_cache) {
    poll(most_polls);
    ptr = from_stores_at_once(bytes, own, who);
    if (ptr == nullptr && who.cache != nullptr) {
      if (void* const its_own = take_joined(*who.cache, bytes)) { return its_own; }  // claimed there
    }
  }
  if (ptr == nullptr) { ptr = from_other_store(bytes, who); }
  if (ptr == nullptr) {
    all_caches_closed const closed{*this, who.cache};
    ptr = from_other_cache(bytes, who);
    if (ptr == nullptr) { ptr = put_together(bytes, who); }
  }
  if (ptr != nullptr) { cancel.dismiss(); }
  return ptr;
}

/// Marks what threads that ended left in their stream's store, in a call that the program makes with that stream.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::mark_store(free_store& store, cudaStream_t stream) noexcept
{
  if (store.unmarked().empty() || !store.try_make_room(store.unmarked().size()) || !try_add_ticket(store, stream)) {
    return;
  }
  insert_unmarked(store, store);
}

/// What was unmarked in one store may be used after the newest ticket of another, which has room. Blocks come back with that.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::insert_unmarked(free_store& from, free_store& to) noexcept
{
  for (auto const range : from.unmarked()) { to.ranges().insert(range, to.newest(), seams()); }
  everyones_.add_claims(-static_cast<std::int64_t>(from.unmarked().size()));
  from.unmarked().clear();
}

/// From what the cache has, or gets from its stream's store or from that of all. Null if none has enough.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::allocate_through_cache(std::size_t bytes,
                                                                       stream_cache& cache,
                                                                       free_store* own)
{
  if (void* const ptr = take(cache, bytes)) { return ptr; }  // it may have been kept out before
  if (!cache.try_make_room(1)) { throw std::bad_alloc{}; }
  bool leased = lease(everyones_, bytes, cache);
  if (!leased) {
    poll(most_polls);
    leased = lease(everyones_, bytes, cache);
  }
  if (!leased && own != nullptr && own->ranges().total_bytes() >= bytes) {
    // What comes from the stream's own store may be used after the cache's event, once that is recorded again.
    leased = mark(cache) && lease(*own, bytes, cache);
  }
  if (leased) {
    if (void* const ptr = take(cache, bytes)) { return ptr; }
  }
  return take_joined(cache, bytes);
}

/// From all that is free in the cache, joined as far as possible.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::take_joined(stream_cache& cache, std::size_t bytes)
{
  if (!cache.has_unmarked() || mark(cache)) { cache.empty_stacks(); }
  return cache.take_best(bytes);
}

/// Moves a range with room for `bytes` to a cache, if possible with more; everything, if there is no other cache. Requires
/// room for one range in the cache.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::lease(free_store& from, std::size_t bytes, stream_cache& to)
{
  if (from.ranges().total_bytes() < bytes) { return false; }
  if (caches_.size() == 1 && to.try_make_room(from.ranges().count())) {
    from.ranges().for_each([&](address_range range, std::uint64_t) { to.add_range(range); });
    from.ranges().clear();
    return true;
  }
  auto size = bytes;
  taken_range taken{};
  if (bytes <= lease_bytes_ / 2) {  // from the top of memory, unless that would be a long search
    size  = lease_bytes_;
    taken = from.ranges().count() <= few_ranges ? from.ranges().take_highest(size) : from.ranges().take_back(size);
    if (!taken) { size = bytes; }
  }
  if (!taken) { taken = from.ranges().take_best(size); }
  if (!taken) { return false; }
  to.add_range({taken.begin, size});
  return true;
}

/// From the stream's own store or from that of all, whichever fits better; nothing has to be waited for.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::from_stores_at_once(std::size_t bytes,
                                                                    free_store* own,
                                                                    asker const& who)
{
  auto const everyones = everyones_.ranges().best_fit(bytes);
  auto const its_own   = own != nullptr ? own->ranges().best_fit(bytes) : 0;
  if (its_own != 0 && (everyones == 0 || its_own <= everyones)) {
    return hand_out(own->ranges().take_best(bytes), bytes, who);
  }
  return everyones != 0 ? hand_out(everyones_.ranges().take_best(bytes), bytes, who) : nullptr;
}

/// A block that was cut and claimed; null if nothing was.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::hand_out(taken_range taken,
                                                         std::size_t bytes,
                                                         asker const& who) noexcept
{
  if (!taken) { return nullptr; }
  note_live(who, static_cast<std::int64_t>(bytes));
  return to_pointer(taken.begin);
}

template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::from_other_store(std::size_t bytes, asker const& who)
{
  for (auto const& store : stores_) {
    if (store->identity() == who.identity) { continue; }
    auto const taken = store->ranges().take_best(bytes);
    if (!taken) { continue; }
    if (who.may_wait && store->try_make_wait(who.stream, taken.stamp)) {
      ++from_other_stores_;
      return hand_out(taken, bytes, who);
    }
    wait_failed_ = true;
    store->ranges().insert({taken.begin, bytes}, taken.stamp, seams());  // where it was, so there is room
  }
  return nullptr;
}

/// Requires that all other caches are closed.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::from_other_cache(std::size_t bytes, asker const& who)
{
  capture_exemption const exemption;
  for (auto const& cache : caches_) {
    if (cache.get() == who.cache) { continue; }
    bool const same_stream = who.identity != 0 && cache->identity() == who.identity;
    if (same_stream && cache->has_unmarked()) { static_cast<void>(cache->mark(who.stream)); }
    static_cast<void>(cache->join_marked());
    auto& ranges = cache->ranges();
    if (ranges.total_bytes() < bytes) { continue; }
    auto const taken = ranges.take_best(bytes);
    if (!taken) { continue; }
    bool const reached = cache->event().is_reached();
    if (!same_stream && !reached && !(who.may_wait && cache->event().try_make_wait(who.stream))) {
      wait_failed_ = true;
      ranges.insert({taken.begin, bytes}, 0, seams());
      continue;
    }
    ++from_other_caches_;
    if (reached && is_beyond_share(*cache) && everyones_.try_make_room(ranges.count())) {
      ranges.move_all_to(everyones_.ranges(),
                         seams());  // more than its share, and free for all: nobody need come again
    }
    return hand_out(taken, bytes, who);
  }
  return nullptr;
}

/// All that is free and marked, ascending, with where it lies; nothing if it is less than `least` bytes. Requires that all caches
/// are closed, and empties their stacks.
template <class Unused>
inline auto basic_stream_ordered_heap<Unused>::collect_pieces(std::size_t least) -> std::vector<piece>
{
  std::size_t count{};
  std::size_t total{};
  auto const add_up = [&](range_set const& ranges) {
    count += ranges.count();
    total += ranges.total_bytes();
  };
  add_up(everyones_.ranges());
  for (auto const& store : stores_) { add_up(store->ranges()); }
  for (auto const& cache : caches_) {
    cache->empty_stacks();
    add_up(cache->ranges());
  }
  std::vector<piece> pieces;
  if (total < least) { return pieces; }
  pieces.reserve(count);
  auto const collect = [&](range_set const& ranges, free_store* store, stream_cache* cache) {
    ranges.for_each([&](address_range range, std::uint64_t stamp) { pieces.push_back({range, stamp, store, cache}); });
  };
  collect(everyones_.ranges(), &everyones_, nullptr);
  for (auto const& store : stores_) { collect(store->ranges(), store.get(), nullptr); }
  for (auto const& cache : caches_) { collect(cache->ranges(), nullptr, cache.get()); }
  std::sort(pieces.begin(), pieces.end(), [](piece const& a, piece const& b) { return a.range.begin < b.range.begin; });
  return pieces;
}

/// Finds neighbours that are free, marked, and large enough together, wherever they lie; takes the first `bytes` of the
/// smallest such run. Nothing else of what the others have is touched, and no other stream is waited for. Requires that all
/// caches are closed.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::put_together(std::size_t bytes, asker const& who)
{
  auto const pieces = collect_pieces(bytes);

  // The smallest run of neighbours that is large enough.
  auto best             = pieces.end();
  std::size_t best_size = std::numeric_limits<std::size_t>::max();
  for (auto first = pieces.begin(); first != pieces.end();) {
    auto last = std::next(first);
    while (last != pieces.end() && joins(*std::prev(last), *last)) { ++last; }
    auto const size = std::prev(last)->range.end() - first->range.begin;
    if (size >= bytes && size < best_size) {
      best      = first;
      best_size = size;
    }
    first = last;
  }
  if (best == pieces.end()) { return nullptr; }

  auto const begin = best->range.begin;
  auto const end   = begin + bytes;
  bool waits       = true;
  for (auto at = best; at != pieces.end() && at->range.begin < end; ++at) {
    if (at->store != nullptr) {
      bool const at_once = at->store == &everyones_ || at->store->identity() == who.identity;
      if (!at_once && !(who.may_wait && at->store->try_make_wait(who.stream, at->stamp))) { waits = false; }
    } else {
      bool const same_stream = who.identity != 0 && at->cache->identity() == who.identity;
      if (!same_stream && !(who.may_wait && at->cache->event().try_make_wait(who.stream))) { waits = false; }
    }
  }
  if (!waits) {
    wait_failed_ = true;
    return nullptr;
  }
  for (auto at = best; at != pieces.end() && at->range.begin < end; ++at) {
    auto& ranges = at->store != nullptr ? at->store->ranges() : at->cache->ranges();
    static_cast<void>(ranges.take_exact({at->range.begin, std::min(at->range.end(), end) - at->range.begin}));
  }
  ++put_together_;
  return hand_out({begin, 0}, bytes, who);
}

template <class Unused>
void* basic_stream_ordered_heap<Unused>::allocate_synchronized(std::size_t bytes,
                                                               cuda_stream_view stream,
                                                               std::size_t worth)
{
  bytes              = align_up(bytes, heap_granule);
  auto const capture = query_capture(stream.value());
  if (capture.is_capturing()) {
    if (worth > 1) { return nullptr; }  // rather something else than a wait of the host in the middle of a capture
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      wait_for_marked_memory();
    }
    return allocate_for_capture(bytes, stream.value(), capture);
  }
  auto* const cache = find_or_make_cache(stream.value(), true);
  asker const who{
    stream.value(), cache != nullptr ? cache->identity() : stream_identity(stream.value()), cache, capture.is_none()};
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!try_claim(who)) { throw std::bad_alloc{}; }
  scope_guard cancel{[&]() noexcept { cancel_claim(who); }};
  all_caches_closed const closed{*this, who.cache};
  if ((unmarked_bytes() < worth && !wait_failed_) || !everything_is_reached()) { return nullptr; }
  wait_failed_    = false;
  void* const ptr = put_together(bytes, who);
  if (ptr != nullptr) { cancel.dismiss(); }
  return ptr;
}

/// What put_together() must not take for anyone but the stream that freed it. Requires that all other caches are closed.
template <class Unused>
inline std::size_t basic_stream_ordered_heap<Unused>::unmarked_bytes() const noexcept
{
  std::size_t sum{};
  for (auto const& cache : caches_) { sum += cache->unmarked_bytes(); }
  for (auto const& store : stores_) {
    for (auto const range : store->unmarked()) { sum += range.bytes; }
  }
  return sum;
}

/// Waits on the host for the device, after which all that is free is marked, and its events are reached. Returns whether it
/// could. Requires that all caches are closed: what they hold has to stay what it was when the wait began.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::everything_is_reached() noexcept
{
  if (!wait_for_devices()) { return false; }
  ++device_synchronizations_;
  for (auto const& cache : caches_) { cache->all_marked(); }
  for (auto const& store : stores_) {
    store->all_reached(spare_events_);
    if (everyones_.try_make_room(store->unmarked().size())) { insert_unmarked(*store, everyones_); }
    move_reached(*store);
  }
  return true;
}

/// A free of what is too wide for caches, or of a thread that has none, because it ends or the host has no memory. Marked at
/// once: who asks for so much next, on any stream, shall find it joined with its neighbours.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::free_to_store(address_range range, asker const& who) noexcept
{
  auto* const store = find_or_make_store(who.identity);
  bool const noted  = store != nullptr && store->try_make_room(1) && try_add_ticket(*store, who.stream);
  if (!noted) {
    auto const capture = query_capture(who.stream);
    if (capture.is_capturing()) { return log_unannounced_capture(); }
    if (!capture.is_none() || !may_wait_for_device()) { return free_to_unmarked(range, who); }
  }
  note_live(who, -static_cast<std::int64_t>(range.bytes));
  if (!noted) { return free_without_memory(range); }
  store->ranges().insert(range, store->newest(), seams());
  cancel_claim(who);
}

/// The same if there is not even memory to note what has to be waited for: waits. By H4 there is room in some set.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::free_without_memory(address_range range) noexcept
{
  all_caches_closed const closed{*this};
  static_cast<void>(everything_is_reached());
  auto const try_put = [&](range_set& ranges) {
    if (ranges.count() == ranges.capacity()) { return false; }
    ranges.insert(range, 0, seams());
    return true;
  };
  for (auto const& cache : caches_) {
    if (cache->try_add_without_memory(range)) { return; }
  }
  everyones_.add_claims(-1);
  if (everyones_.try_make_room(1)) {
    everyones_.ranges().insert(range, 0, seams());
    return;
  }
  bool placed = try_put(everyones_.ranges());
  for (auto const& store : stores_) { placed = placed || try_put(store->ranges()); }
  RMM_ASSERT(placed);
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
/// those would keep their neighbours apart. Called by the owner, in a call that the program makes on the stream, after mark().
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::overflow(stream_cache& cache) noexcept
{
  auto& ranges      = cache.ranges();
  auto* const store = find_or_make_store(cache.identity());
  bool const all    = is_beyond_share(cache);
  if (all) { cache.empty_stacks(); }
  if (store == nullptr || !store->try_make_room(ranges.count()) || !try_add_ticket(*store, cache.stream())) { return; }
  if (all) {
    ranges.for_each(
      [&](address_range range, std::uint64_t) { store->ranges().insert(range, store->newest(), seams()); });
    ranges.clear();
    return;
  }
  while (has_to_spill(cache)) {
    store->ranges().insert(ranges.take_up_to(range_set::no_limit).range, store->newest(), seams());
  }
}

/// Asks up to `most` events whether they are reached, those of each store in turn.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::poll(std::size_t most) noexcept
{
  std::optional<capture_exemption> exemption;
  if (std::any_of(stores_.begin(), stores_.end(), [](auto const& store) { return store->has_tickets(); })) {
    exemption.emplace();
  }
  for (std::size_t visited = 0; visited != stores_.size() && most != 0; ++visited) {
    auto& store  = *stores_[next_polled_++ % stores_.size()];
    bool reached = false;
    while (most != 0 && store.has_tickets()) {
      --most;
      if (!store.poll(spare_events_)) { break; }
      reached = true;
    }
    if (reached || !store.has_tickets()) { move_reached(store); }
  }
}

/// Makes free for all what is stamped with tickets that are reached.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::move_reached(free_store& store) noexcept
{
  auto const reached = store.reached();
  if (!store.has_tickets()) {
    if (everyones_.try_make_room(store.ranges().count())) { store.ranges().move_all_to(everyones_.ranges(), seams()); }
    return;
  }
  try {
    std::vector<address_range> free;
    free.reserve(store.ranges().count());
    store.ranges().for_each([&](address_range range, std::uint64_t stamp) {
      if (stamp <= reached) { free.push_back(range); }
    });
    if (!everyones_.try_make_room(free.size())) { return; }
    for (auto const range : free) {
      static_cast<void>(store.ranges().take_exact(range));
      everyones_.ranges().insert(range, 0, seams());
    }
  } catch (std::bad_alloc const&) {
    return;  // they are found where they are
  }
}

template <class Unused>
inline void basic_stream_ordered_heap<Unused>::wait_for_free_memory() noexcept
{
  capture_exemption const exemption;
  bool unmarked = false;
  for (auto const& cache : caches_) {
    bool empty = true;
    cache->for_each_free([&](address_range, bool) { empty = false; });
    unmarked = unmarked || cache->has_unmarked();
    if (!empty) { cache->event().synchronize_no_throw(); }
  }
  for (auto const& store : stores_) {
    unmarked = unmarked || !store->unmarked().empty();
    if (!store->is_empty()) { store->synchronize(); }
  }
  if (unmarked) { static_cast<void>(wait_for_devices()); }
}

template <class Unused>
void* basic_stream_ordered_heap<Unused>::add_block_and_allocate(void* block,
                                                                std::size_t block_bytes,
                                                                std::size_t bytes,
                                                                cuda_stream_view stream)
{
  bytes              = align_up(bytes, heap_granule);
  auto const begin   = reinterpret_cast<std::uintptr_t>(block);
  auto const capture = query_capture(stream.value());
  if (capture.is_capturing()) { return add_block_for_capture({begin, block_bytes}, bytes, stream.value(), capture); }
  auto* const cache = bytes != 0 ? find_or_make_cache(stream.value(), true) : nullptr;
  asker const who{stream.value(), cache != nullptr ? cache->identity() : stream_identity(stream.value()), cache};
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!try_claim(who)) { throw std::bad_alloc{}; }
  scope_guard give_up{[&]() noexcept { cancel_claim(who); }};
  auto* store     = find_or_make_store(who.identity);
  auto const rest = align_down(block_bytes, heap_granule) - bytes;
  if (rest == 0) {
    adopt(begin, block_bytes);
  } else {
    if (store == nullptr || !store->try_make_room(1) || !try_add_ticket(*store, who.stream)) {
      bool const is_idle = !capture.is_none();  // see above
      if (!everyones_.try_make_room(1) || !(is_idle || wait_for_devices())) { throw std::bad_alloc{}; }
      store = &everyones_;
    }
    adopt(begin, block_bytes);
    store->ranges().insert({begin + bytes, rest}, store->newest(), seams());
  }
  if (bytes == 0) { return nullptr; }
  give_up.dismiss();
  return hand_out({begin, 0}, bytes, who);
}

/// Notes a block of upstream, and a seam where it touches another.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::adopt(std::uintptr_t begin, std::size_t bytes)
{
  auto const next     = blocks_.lower_bound(begin);
  bool const at_begin = next != blocks_.begin() && std::prev(next)->first + std::prev(next)->second == begin;
  bool const at_end   = next != blocks_.end() && next->first == begin + bytes;
  if (at_begin || at_end) {
    all_caches_closed const closed{*this};
    if (seam_addresses_.capacity() - seam_addresses_.size() < 2) {
      seam_addresses_.reserve(2 * seam_addresses_.size() + 2);
    }
    limits_.seam_addresses = {seam_addresses_.data(), seam_addresses_.size()};
    blocks_.emplace(begin, bytes);
    auto const add = [&](std::uintptr_t seam) {
      seam_addresses_.insert(std::lower_bound(seam_addresses_.begin(), seam_addresses_.end(), seam), seam);
    };
    if (at_begin) { add(begin); }
    if (at_end) { add(begin + bytes); }
    limits_.seam_addresses = {seam_addresses_.data(), seam_addresses_.size()};
  } else {
    blocks_.emplace(begin, bytes);
  }
  block_bytes_.store(block_bytes() + bytes, std::memory_order_relaxed);
  usable_bytes_ += align_down(bytes, heap_granule);
  set_limits();
}

/// Shares of the blocks: what a cache may leave unmarked, takes at a time, and may keep beside other caches.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::set_limits() noexcept
{
  auto const bytes  = block_bytes();
  bool const shared = caches_.size() > 1;
  auto const alone  = shared ? 0 : std::min(bytes / 32, most_unmarked_alone);  // nobody waits for it
  limits_.most_unmarked_bytes.store(std::max(bytes / 128, alone), std::memory_order_relaxed);
  lease_bytes_ = std::min(align_down(bytes / 1024, heap_granule), largest_lease);
  share_.store(shared ? bytes / (4 * caches_.size()) : bytes, std::memory_order_relaxed);
  share_of_consumer_.store(shared ? bytes / 64 : bytes, std::memory_order_relaxed);
  wide_.store(shared ? std::max(bytes / 1024, least_wide) : range_set::no_limit, std::memory_order_relaxed);
}

// --- looking ---------------------------------------------------------------------------------------------------------

template <class Unused>
heap_figures basic_stream_ordered_heap<Unused>::figures(heap_contents* contents) const
{
  using place = free_piece::place;
  std::lock_guard<std::mutex> const lock{mutex_};
  all_caches_closed const closed{*this};
  std::vector<free_piece> all;
  heap_figures now;
  auto live = live_without_cache_;
  everyones_.ranges().for_each([&](address_range range, std::uint64_t) { all.push_back({range}); });
  for (auto const& store : stores_) {
    auto const stream = store->identity();
    store->ranges().for_each([&](address_range range, std::uint64_t) {
      all.push_back({range, place::store, true, stream});
    });
    for (auto const range : store->unmarked()) { all.push_back({range, place::store, false, stream}); }
  }
  for (auto const& cache : caches_) {
    live += cache->live_bytes();
    cache->for_each_free([&](address_range range, bool marked) {
      now.cached_bytes += range.bytes;
      all.push_back({range, place::cache, marked, cache->identity()});
    });
  }
  auto const in_order = [](free_piece const& a, free_piece const& b) { return a.range.begin < b.range.begin; };
  std::sort(all.begin(), all.end(), in_order);
  std::size_t run{};
  std::uintptr_t end{};
  for (auto const& [range, where, is_marked, stream] : all) {
    bool const joins = range.begin == end && (seams() == nullptr || !seams()->contains(end));
    run              = joins ? run + range.bytes : range.bytes;
    end              = range.end();
    now.free_bytes += range.bytes;
    now.largest_free_bytes = std::max(now.largest_free_bytes, run);
  }
  for (auto const& memory : captured_) { now.graph_bytes += memory->bytes(); }
  now.live_bytes              = static_cast<std::size_t>(live) - now.graph_bytes;
  now.reserved_bytes          = block_bytes();
  now.upstream_blocks         = blocks_.size();
  now.caches                  = caches_.size();
  now.from_other_streams      = from_other_stores_;
  now.from_other_caches       = from_other_caches_;
  now.put_together            = put_together_;
  now.device_synchronizations = device_synchronizations_;
  if (contents != nullptr) {
    for (auto const& memory : captured_) {
      memory->for_each_unused([&](address_range range) { all.push_back({range, place::graphs, true, 0}); });
    }
    std::sort(all.begin(), all.end(), in_order);
    contents->pieces = std::move(all);
    contents->blocks.clear();
    for (auto const& [begin, bytes] : blocks_) { contents->blocks.push_back({begin, bytes}); }
  }
  return now;
}

template <class Unused>
bool basic_stream_ordered_heap<Unused>::check_invariants() const
{
  auto const now = figures();
  std::lock_guard<std::mutex> const lock{mutex_};
  all_caches_closed const closed{*this};
  std::vector<address_range> all;
  bool good = everyones_.ranges().validate(seams());
  everyones_.ranges().for_each([&](address_range range, std::uint64_t) { all.push_back(range); });
  // Claims, less those of frees that are not joined yet: those of the blocks.
  auto claims = everyones_.claims() - limits_.returned_claims.load(std::memory_order_relaxed);
  for (auto const& store : stores_) {
    claims -= static_cast<std::int64_t>(store->unmarked().size());
    good = good && store->ranges().validate(seams());
    store->ranges().for_each([&](address_range range, std::uint64_t stamp) {
      good = good && stamp <= store->newest();
      all.push_back(range);
    });
    for (auto const range : store->unmarked()) { all.push_back(range); }
  }
  for (auto const& cache : caches_) {
    good = good && cache->check_invariants();
    std::size_t unjoined{};
    cache->for_each_free([&](address_range range, bool) {
      ++unjoined;
      all.push_back(range);
    });
    unjoined -= cache->ranges().count();
    claims += cache->claims() - static_cast<std::int64_t>(unjoined);
  }
  for (auto const& memory : captured_) {
    good = good && memory->check_invariants();
    memory->for_each_chunk([&](address_range range) { all.push_back(range); });
  }
  std::sort(all.begin(), all.end(), [](address_range a, address_range b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < all.size(); ++i) { good = good && all[i - 1].end() <= all[i].begin; }
  for (auto const range : all) {  // each inside one block
    auto const above = blocks_.upper_bound(range.begin);
    good = good && above != blocks_.begin() && range.end() <= std::prev(above)->first + std::prev(above)->second;
  }
  if (now.live_bytes == 0 && captured_.empty()) { good = good && claims == 0; }  // C3 of the caches
  return good && now.free_bytes + now.live_bytes + now.graph_bytes == usable_bytes_;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
