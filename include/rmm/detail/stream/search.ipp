// SPDX-License-Identifier: Apache-2.0
// The part of stream_ordered_heap.hpp, which includes it, that looks for memory under the lock, in the order that is said there,
// and frees what goes past caches.

namespace RMM_NAMESPACE {
namespace detail {

template <class Unused>
void* basic_stream_ordered_heap<Unused>::allocate_locked(std::size_t bytes, asker const& who)
{
  wait_failed_    = false;
  auto* const own = shared_.find(who.identity);
  if (own != nullptr) { shared_.fence_left(*own, who.stream); }
  bool const through_cache = who.cache != nullptr && !is_large(bytes);
  if (through_cache) {
    if (void* const ptr = allocate_through_cache(bytes, *who.cache, own)) { return ptr; }
  }

  if (!try_claim(who)) { throw std::bad_alloc{}; }
  scope_guard cancel{[&]() noexcept { return_claim(who); }};
  void* ptr = nullptr;
  if (!through_cache) {
    shared_.poll(most_polls);
    ptr = take_from_own_or_idle(bytes, own, who);
    if (ptr == nullptr && who.cache != nullptr) {
      if (void* const cached = take_coalesced(*who.cache, bytes)) { return cached; }  // claimed there
    }
  }
  if (ptr == nullptr) { ptr = take_from_other_store(bytes, own, who); }
  if (ptr == nullptr) {
    all_caches_closed const closed{*this, who.cache};
    // Large blocks need neighbours that lie in different caches. Once they have coalesced, they serve the next requests too.
    if (is_scattered()) {
      collect_idle();
      ptr = take_from_own_or_idle(bytes, own, who);
    }
    if (ptr == nullptr) { ptr = take_from_other_cache(bytes, who); }
    if (ptr == nullptr) { ptr = coalesce_for(bytes, who); }
  }
  if (ptr != nullptr) { cancel.dismiss(); }
  return ptr;
}

/// From the stream's own store or from that of all, whichever fits better; nothing has to be waited for.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::take_from_own_or_idle(std::size_t bytes,
                                                                      free_store* own,
                                                                      asker const& who)
{
  auto const idle_fit = shared_.idle().ranges().good_fit(bytes);
  auto const own_fit  = own != nullptr ? own->ranges().good_fit(bytes) : 0;
  if (own_fit != 0 && (idle_fit == 0 || own_fit <= idle_fit)) {
    return hand_out(own->ranges().take_good(bytes), bytes, who);
  }
  return idle_fit != 0 ? hand_out(shared_.idle().ranges().take_good(bytes), bytes, who) : nullptr;
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

/// From the store of another stream whose range fits best. Where that cannot be waited for, from the next.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::take_from_other_store(std::size_t bytes,
                                                                      free_store const* own,
                                                                      asker const& who)
{
  using place         = std::pair<std::size_t, std::size_t>;  // how large the range is, and which store has it
  constexpr auto none = range_set::no_limit;
  for (place refused{0, none};;) {
    place best{none, none};
    for (std::size_t at = 0; at != shared_.stores().size(); ++at) {
      auto const& store = *shared_.stores()[at];
      place const here{&store == own ? 0 : store.ranges().good_fit(bytes), at};
      if (here.first == 0 || here <= refused || best <= here) { continue; }
      if (!who.may_wait && !is_own(store, who)) {
        wait_failed_ = true;
      } else {
        best = here;
      }
    }
    if (best.first == none) { return nullptr; }
    auto& store      = *shared_.stores()[best.second];
    auto const taken = store.ranges().take_good(bytes);
    if (is_own(store, who)) { return hand_out(taken, bytes, who); }  // a thread that ended left it
    if (store.try_make_wait(who.stream, taken.epoch)) {
      ++from_other_stores_;
      return hand_out(taken, bytes, who);
    }
    wait_failed_ = true;
    store.ranges().insert({taken.begin, bytes}, taken.epoch, seams());  // where it was, so there is room
    refused = best;
  }
}

/// Moves what no work uses from caches and stores to the store of memory for all, where neighbours coalesce. Requires that all caches
/// but the calling thread's are closed.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::collect_idle() noexcept
{
  capture_exemption const exemption;
  shared_.poll(std::numeric_limits<std::size_t>::max());
  for (auto const& cache : caches_) {
    if (!cache->event().is_reached()) { continue; }
    cache->empty_stacks();
    auto& ranges = cache->ranges();
    if (!shared_.idle().try_make_room(ranges.count())) { continue; }
    // What is left of the part that the cache took last stays: its next blocks shall lie beside those before.
    auto const rest = ranges.largest() < refill_bytes_ ? ranges.take_up_to(range_set::no_limit) : fenced_range{};
    ranges.move_all_to(shared_.idle().ranges(), seams());
    if (rest) { cache->add_range(rest.range); }
  }
  pieces_searched_ = 0;
}

/// Looks further only if need be.
template <class Unused>
address_range basic_stream_ordered_heap<Unused>::take_idle(std::size_t bytes)
{
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!limits_.reserve.try_claim(1)) { throw std::bad_alloc{}; }
  scope_guard cancel{[&]() noexcept { limits_.reserve.release(1); }};
  auto taken = shared_.idle().ranges().take_best(bytes);
  if (!taken) {
    shared_.poll(std::numeric_limits<std::size_t>::max());
    taken = shared_.idle().ranges().take_best(bytes);
  }
  if (!taken) {
    all_caches_closed const closed{*this};
    collect_idle();
    taken = shared_.idle().ranges().take_best(bytes);
  }
  if (!taken) { return {}; }
  cancel.dismiss();
  live_without_cache_ += static_cast<std::int64_t>(bytes);
  return {taken.begin, bytes};
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::put_idle(address_range range) noexcept
{
  std::lock_guard<std::mutex> const lock{mutex_};
  live_without_cache_ -= static_cast<std::int64_t>(range.bytes);
  if (!shared_.try_insert_idle(range)) { return shared_.lose(range, bit_of(home_device_)); }
  limits_.reserve.release(1);
}

template <class Unused>
std::uint64_t basic_stream_ordered_heap<Unused>::fence_for_frees(cudaStream_t stream) noexcept
{
  std::lock_guard<std::mutex> const lock{mutex_};
  auto const identity = stream_identity(stream);
  auto* const store   = shared_.find_or_make(identity, device_of_stream(stream));
  return store != nullptr && shared_.try_add_fence(*store, stream) ? identity : 0;
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::free_fenced(address_range range, std::uint64_t store) noexcept
{
  std::lock_guard<std::mutex> const lock{mutex_};
  live_without_cache_ -= static_cast<std::int64_t>(range.bytes);
  auto* const found = shared_.find(store);
  if (found == nullptr || !found->try_make_room(1)) { return shared_.lose(range, every_device); }
  found->ranges().insert(range, found->newest(), seams());
  limits_.reserve.release(1);
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::free_after_a_wait(address_range range) noexcept
{
  std::lock_guard<std::mutex> const lock{mutex_};
  live_without_cache_ -= static_cast<std::int64_t>(range.bytes);
  shared_.lose(range, every_device);
}

/// Waits on the host for all events; a capture allows that, but no synchronisation of the device.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::wait_for_fenced_memory() noexcept
{
  capture_exemption const exemption;
  all_caches_closed const closed{*this};
  for (auto const& cache : caches_) { cache->event().synchronize_no_throw(); }
  for (auto const& store : shared_.stores()) { store->synchronize(); }
}

/// Whether so many pieces were looked at since the last collect_idle() that doing it again costs little for each of them.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::is_scattered() const noexcept
{
  return is_shared() && pieces_searched_ > many_pieces;
}

/// Requires that all other caches are closed.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::take_from_other_cache(std::size_t bytes, asker const& who)
{
  capture_exemption const exemption;
  for (auto const& cache : caches_) {
    if (cache.get() == who.cache) { continue; }
    bool const same_stream = is_own(*cache, who);
    if (same_stream && cache->has_unfenced()) { static_cast<void>(cache->fence(who.stream)); }
    static_cast<void>(cache->coalesce_fenced());
    auto& ranges = cache->ranges();
    if (ranges.total_bytes() < bytes) { continue; }
    auto const taken = ranges.take_good(bytes);
    if (!taken) { continue; }
    bool const reached = cache->event().is_reached();
    if (!same_stream && !reached && !(who.may_wait && cache->event().try_make_wait(who.stream))) {
      wait_failed_ = true;
      ranges.insert({taken.begin, bytes}, 0, seams());
      continue;
    }
    ++from_other_caches_;
    if (reached && is_beyond_share(*cache) && shared_.idle().try_make_room(ranges.count())) {
      ranges.move_all_to(shared_.idle().ranges(),
                         seams());  // more than its share, and free for all: nobody need come again
    }
    return hand_out(taken, bytes, who);
  }
  return nullptr;
}

/// All that is free and fenced, ascending, with where it lies; with `with_unfenced` also what lacks an event. Nothing if it is
/// less than `least` bytes. Requires that all caches are closed, and empties their stacks.
template <class Unused>
inline auto basic_stream_ordered_heap<Unused>::collect_pieces(std::size_t least, bool with_unfenced)
  -> std::vector<piece>
{
  std::size_t count{};
  std::size_t total{};
  auto const add_up = [&](range_set const& ranges) {
    count += ranges.count();
    total += ranges.total_bytes();
  };
  add_up(shared_.idle().ranges());
  for (auto const& store : shared_.stores()) { add_up(store->ranges()); }
  for (auto const& cache : caches_) {
    cache->empty_stacks();
    add_up(cache->ranges());
  }
  if (with_unfenced) { total += unfenced_bytes(); }
  std::vector<piece> pieces;
  if (total < least) { return pieces; }
  pieces_searched_ += count;
  pieces.reserve(count);
  auto const collect = [&](range_set const& ranges, free_store* store, stream_cache* cache) {
    ranges.for_each([&](address_range range, std::uint64_t epoch) { pieces.push_back({range, epoch, store, cache}); });
  };
  collect(shared_.idle().ranges(), &shared_.idle(), nullptr);
  for (auto const& store : shared_.stores()) { collect(store->ranges(), store.get(), nullptr); }
  for (auto const& cache : caches_) { collect(cache->ranges(), nullptr, cache.get()); }
  if (with_unfenced) {
    for_each_unfenced([&](address_range range) { pieces.push_back({range, 0, nullptr, nullptr, false}); });
  }
  std::sort(pieces.begin(), pieces.end(), [](piece const& a, piece const& b) { return a.range.begin < b.range.begin; });
  return pieces;
}

/// Finds neighbours that are free, fenced, and large enough together, wherever they lie; takes the first `bytes` of the
/// smallest such run. Nothing else of what the others have is touched, and no other stream is waited for. Requires that all
/// caches are closed.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::coalesce_for(std::size_t bytes, asker const& who)
{
  shared_.poll(std::numeric_limits<std::size_t>::max());  // rather no wait than one for work that is done
  return take_run(collect_pieces(bytes), bytes, who);
}

/// Finds neighbours as coalesce_for() does, among these pieces.
template <class Unused>
inline void* basic_stream_ordered_heap<Unused>::take_run(std::vector<piece> const& pieces,
                                                         std::size_t bytes,
                                                         asker const& who)
{
  // The smallest run of neighbours that is large enough.
  auto best             = pieces.end();
  std::size_t best_size = std::numeric_limits<std::size_t>::max();
  for (auto first = pieces.begin(); first != pieces.end();) {
    auto last = std::next(first);
    while (last != pieces.end() && first->is_fenced && last->is_fenced && are_neighbours(*std::prev(last), *last)) {
      ++last;
    }
    auto const size = std::prev(last)->range.end() - first->range.begin;
    if (first->is_fenced && size >= bytes && size < best_size) {
      best      = first;
      best_size = size;
    }
    first = last;
  }
  if (best == pieces.end()) { return nullptr; }

  auto const begin = best->range.begin;
  auto const end   = begin + bytes;
  // One wait for each store and cache that the run is cut from.
  capture_exemption const exemption;
  for (auto at = best; at != pieces.end() && at->range.begin < end; ++at) {
    if (at->store != nullptr) {
      if (at->store != &shared_.idle() && !is_own(*at->store, who)) { at->store->note_wait(at->epoch); }
    } else if (!is_own(*at->cache, who)) {
      at->cache->note_wait();
    }
  }
  bool waits = true;
  for (auto at = best; at != pieces.end() && at->range.begin < end; ++at) {
    if (at->store != nullptr) {
      waits = at->store->try_make_noted_wait(who.stream, who.may_wait) && waits;
    } else if (at->cache->take_noted_wait()) {
      waits =
        (at->cache->event().is_reached() || (who.may_wait && at->cache->event().try_make_wait(who.stream))) && waits;
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
  ++coalesced_;
  return hand_out({begin, 0}, bytes, who);
}

template <class Unused>
void* basic_stream_ordered_heap<Unused>::allocate_reclaimed(std::size_t bytes, cuda_stream_view stream, reclaiming how)
{
  context_scope const with_context{context_for(stream.value())};
  bytes              = align_up(bytes, heap_granule);
  auto const capture = query_capture(stream.value());
  if (capture.is_capturing()) {
    if (how == reclaiming::before_growth) { return nullptr; }
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      wait_for_fenced_memory();
    }
    return graphs_.allocate(bytes, stream.value(), capture);
  }
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    all_caches_closed const closed{*this};
    if (unfenced_bytes() == 0 && !wait_failed_) { return nullptr; }
  }
  auto* const cache  = find_or_make_cache(stream.value(), true);
  auto const who     = make_asker(stream.value(), cache, capture.is_none());
  auto const waiting = ask_to_wait();
  fence_live_streams();
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!try_claim(who)) { throw std::bad_alloc{}; }
  scope_guard cancel{[&]() noexcept { return_claim(who); }};
  all_caches_closed const closed{*this, who.cache};
  auto pieces = collect_pieces(bytes, true);
  void* ptr   = take_run(pieces, bytes, who);
  if (ptr == nullptr && (wait_failed_ || has_run(pieces, bytes)) && everything_is_reached(waiting)) {
    wait_failed_ = false;
    begin_eager_fences();
    ptr = coalesce_for(bytes, who);
  }
  if (ptr != nullptr) { cancel.dismiss(); }
  return ptr;
}

/// Whether there are so many free bytes in a row, with and without events.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::has_run(std::vector<piece> const& pieces,
                                                       std::size_t bytes) const noexcept
{
  std::uintptr_t begin{};
  for (auto at = pieces.begin(); at != pieces.end(); ++at) {
    if (at == pieces.begin() || !are_neighbours(*std::prev(at), *at)) { begin = at->range.begin; }
    if (at->range.end() - begin >= bytes) { return true; }
  }
  return false;
}

template <class Unused>
void basic_stream_ordered_heap<Unused>::fence_live_streams() noexcept
{
  context_scope const with_context{home_device_};
  streams_.with_known([&](pointer_bag const& known) {
    std::lock_guard<std::mutex> const lock{mutex_};
    all_caches_closed const closed{*this};
    for (auto const& cache : caches_) {
      if (!cache->has_unfenced() || !is_kept_alive(*cache, known)) { continue; }
      device_scope const on_device{cache->device()};  // the handle of a default stream names that of the current one
      if (cache->fence(cache->stream())) { static_cast<void>(cache->coalesce_fenced()); }
    }
    for (auto const& store : shared_.stores()) {
      if (store->unfenced().empty()) { continue; }
      device_scope const on_device{store->device()};
      if (store->identity() != legacy_stream_identity()) { continue; }
      shared_.fence_left(*store, cudaStreamLegacy);
    }
  });
}

/// Bytes that are free and lack an event. Requires that all caches are closed.
template <class Unused>
inline std::size_t basic_stream_ordered_heap<Unused>::unfenced_bytes() const noexcept
{
  std::size_t sum{};
  for (auto const& cache : caches_) { sum += cache->unfenced_bytes(); }
  return sum + shared_.unfenced_bytes();
}

/// Waits on the host for the devices, after which all that is free is fenced, and its events are reached. False, and nothing has
/// changed, if it cannot. Requires that all caches are closed: what they hold has to stay what it was when the wait began.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::everything_is_reached(waiting_is permission) noexcept
{
  if (!wait_for_devices(permission)) { return false; }
  ++device_synchronizations_;
  for (auto const& cache : caches_) { cache->all_fenced(); }
  shared_.all_reached();
  return true;
}

/// A free of what is too large for caches, or of a thread that has none, because it ends or the host has no memory. Each gets a
/// fence of its own, so that the next large request, on any stream, finds it coalesced with its neighbours.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::free_to_store(address_range range, asker const& who) noexcept
{
  note_live(who, -static_cast<std::int64_t>(range.bytes));
  auto* const store = shared_.find_or_make(who.identity, who.device);
  if (store != nullptr && store->try_make_room(1) && shared_.try_add_fence(*store, who.stream)) {
    store->ranges().insert(range, store->newest(), seams());
    return return_claim(who);
  }
  if (query_capture(who.stream).is_capturing()) {  // the graph may use it whenever it runs
    note_live(who, static_cast<std::int64_t>(range.bytes));
    return graphs_.log_unannounced();
  }
  if (store == nullptr || !store->try_add_unfenced(range)) {
    shared_.lose(range, who.device >= 0 ? bit_of(who.device) : every_device);
  }
}

template <class Unused>
inline void basic_stream_ordered_heap<Unused>::wait_for_free_memory(waiting_is permission) noexcept
{
  capture_exemption const exemption;
  bool unfenced = limits_.reserve.waiting() != 0;
  for (auto const& cache : caches_) {
    bool empty = true;
    cache->for_each_free([&](address_range, bool) { empty = false; });
    unfenced = unfenced || cache->has_unfenced();
    if (!empty) { cache->event().synchronize_no_throw(); }
  }
  for (auto const& store : shared_.stores()) {
    unfenced = unfenced || !store->unfenced().empty();
    if (!store->is_empty()) { store->synchronize(); }
  }
  if (unfenced) { static_cast<void>(wait_for_devices(permission)); }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
