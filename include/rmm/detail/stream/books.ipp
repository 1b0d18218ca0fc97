// SPDX-License-Identifier: Apache-2.0
// The part of stream_ordered_heap.hpp, which includes it, that keeps the books: the blocks, what follows from their sizes, and the
// figures.

namespace RMM_NAMESPACE {
namespace detail {

template <class Unused>
void* basic_stream_ordered_heap<Unused>::add_block_and_allocate(void* block,
                                                                std::size_t block_bytes,
                                                                std::size_t bytes,
                                                                cuda_stream_view stream)
{
  context_scope const with_context{context_for(stream.value())};
  bytes              = align_up(bytes, heap_granule);
  auto const begin   = reinterpret_cast<std::uintptr_t>(block);
  auto const capture = query_capture(stream.value());
  if (capture.is_capturing()) {
    return graphs_.add_block_and_allocate({begin, block_bytes}, bytes, stream.value(), capture);
  }
  auto* const cache = bytes != 0 ? find_or_make_cache(stream.value(), true) : nullptr;
  auto const who    = make_asker(stream.value(), cache);
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!try_claim(who)) { throw std::bad_alloc{}; }
  scope_guard give_up{[&]() noexcept { return_claim(who); }};
  auto* store     = shared_.find_or_make(who.identity, who.device);
  auto const rest = align_down(block_bytes, heap_granule) - bytes;
  if (rest == 0) {
    adopt({begin, block_bytes});
  } else {
    if (store == nullptr || !store->try_make_room(1) || !shared_.try_add_fence(*store, who.stream)) {
      bool const is_idle = !capture.is_none();  // no work uses such a block (see the declaration)
      if (!shared_.idle().try_make_room(1) || !(is_idle || try_wait_for(who.device, ask_to_wait_locked()))) {
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

template <class Unused>
address_range basic_stream_ordered_heap<Unused>::add_idle_block(address_range block, std::size_t bytes)
{
  std::lock_guard<std::mutex> const lock{mutex_};
  auto const rest          = align_down(block.bytes, heap_granule) - bytes;
  std::size_t const claims = bytes != 0 ? 1 : 0;
  if (!shared_.idle().try_make_room(1) || !limits_.reserve.try_claim(claims)) { throw std::bad_alloc{}; }
  scope_guard cancel{[&]() noexcept { limits_.reserve.release(claims); }};
  adopt(block);
  cancel.dismiss();
  if (rest != 0) { shared_.idle().ranges().insert({block.begin + bytes, rest}, 0, seams()); }
  live_without_cache_ += static_cast<std::int64_t>(bytes);
  return {block.begin, bytes};
}

/// Notes a block of upstream, and a seam where it touches another.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::adopt(address_range block)
{
  if (blocks_.touches(block)) {
    all_caches_closed const closed{*this};
    blocks_.add(block);
  } else {
    blocks_.add(block);
  }
  block_bytes_.store(blocks_.total_bytes(), std::memory_order_relaxed);
  set_limits();
}

/// Shares of the blocks: what a cache may leave unfenced, takes at a time, and may keep beside other caches.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::set_limits() noexcept
{
  auto const bytes  = block_bytes();
  bool const shared = caches_.size() > 1;
  // Blocks that threads hand round are neighbours of none in a cache: ranges of many caches would need much host memory.
  limits_.scarce_bytes.store(shared ? 0 : bytes / 2, std::memory_order_relaxed);
  auto const alone = shared ? 0 : std::min(bytes / 32, most_unfenced_alone);  // nobody waits for it
  bool const eager = eager_fences_left_.load(std::memory_order_relaxed) != 0;
  limits_.most_unfenced_bytes.store(eager ? 0 : std::max(bytes / 128, alone), std::memory_order_relaxed);
  refill_bytes_ = std::min(align_down(bytes / 1024, heap_granule), largest_refill);
  share_.store(shared ? bytes / (4 * caches_.size()) : bytes, std::memory_order_relaxed);
  share_of_consumer_.store(shared ? bytes / 64 : bytes, std::memory_order_relaxed);
  large_.store(shared ? std::max(bytes / 1024, least_large) : range_set::no_limit, std::memory_order_relaxed);
}

/// The host had to wait for frees without events: from now on each is fenced, until many were.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::begin_eager_fences() noexcept
{
  eager_fences_left_.store(eager_fences, std::memory_order_relaxed);
  set_limits();
}

/// Called for each event that a cache records in its turn, by its owner. A count that is lost among threads does not matter.
template <class Unused>
inline void basic_stream_ordered_heap<Unused>::count_eager_fence() noexcept
{
  auto const left = eager_fences_left_.load(std::memory_order_relaxed);
  if (left == 0) { return; }
  eager_fences_left_.store(left - 1, std::memory_order_relaxed);
  if (left == 1) { limits_.most_unfenced_bytes.store(block_bytes() / 128, std::memory_order_relaxed); }
}

template <class Unused>
heap_figures basic_stream_ordered_heap<Unused>::figures(heap_contents* contents) const
{
  using place         = free_piece::place;
  auto const in_order = [](free_piece const& a, free_piece const& b) { return a.range.begin < b.range.begin; };
  heap_figures now;
  std::vector<free_piece> graph_pieces;
  std::vector<free_piece> pieces;
  std::vector<std::uintptr_t> seam_addresses;
  {
    std::lock_guard<std::mutex> const graphs_stay{graphs_.mutex()};
    std::lock_guard<std::mutex> const lock{mutex_};
    all_caches_closed const closed{*this};
    auto const count = add_up(now);
    if (contents != nullptr || count <= most_pieces_in_figures) {
      pieces.reserve(count);
      for_each_free([&](free_piece const& each) { pieces.push_back(each); });
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
  // While others go on: sorting takes longer than all the rest.
  std::sort(pieces.begin(), pieces.end(), in_order);
  auto const is_seam = [&](std::uintptr_t address) {
    return std::binary_search(seam_addresses.begin(), seam_addresses.end(), address);
  };
  std::size_t run{};
  std::uintptr_t end{};
  for (auto const& [range, where, is_fenced, stream] : pieces) {
    run                    = range.begin == end && !is_seam(end) ? run + range.bytes : range.bytes;
    end                    = range.end();
    now.largest_free_bytes = std::max(now.largest_free_bytes, run);
  }
  if (contents != nullptr) {
    contents->pieces = std::move(pieces);
    contents->pieces.insert(contents->pieces.end(), graph_pieces.begin(), graph_pieces.end());
    std::sort(contents->pieces.begin(), contents->pieces.end(), in_order);
  }
  return now;
}

/// Writes all figures but the largest free piece. Returns how many pieces are free. Requires that all caches are closed.
template <class Unused>
inline std::size_t basic_stream_ordered_heap<Unused>::add_up(heap_figures& now) const
{
  auto live      = live_without_cache_;
  auto count     = shared_.idle().ranges().count() + limits_.reserve.waiting();
  now.free_bytes = shared_.idle().ranges().total_bytes() + limits_.reserve.waiting_bytes();
  for (auto const& store : shared_.stores()) {
    count += store->ranges().count() + store->unfenced().size();
    now.free_bytes += store->ranges().total_bytes();
    for (auto const range : store->unfenced()) { now.free_bytes += range.bytes; }
  }
  for (auto const& cache : caches_) {
    live += cache->live_bytes();
    auto const [pieces, bytes] = cache->free_pieces();
    count += pieces;
    now.cached_bytes += bytes;
  }
  now.free_bytes += now.cached_bytes;
  now.graph_bytes             = graphs_.bytes();
  now.live_bytes              = static_cast<std::size_t>(live) - now.graph_bytes;
  now.reserved_bytes          = block_bytes();
  now.upstream_blocks         = blocks_.count();
  now.caches                  = caches_.size();
  now.from_other_streams      = from_other_stores_;
  now.from_other_caches       = from_other_caches_;
  now.put_together            = coalesced_;
  now.device_synchronizations = device_synchronizations_;
  return count;
}

/// Calls visit(free_piece) for all that is free. Requires that all caches are closed.
template <class Unused>
template <class Visit>
inline void basic_stream_ordered_heap<Unused>::for_each_free(Visit&& visit) const
{
  using place = free_piece::place;
  shared_.idle().ranges().for_each([&](address_range range, std::uint64_t) { visit(free_piece{range}); });
  for (auto const& store : shared_.stores()) {
    auto const stream = store->identity();
    store->ranges().for_each([&](address_range range, std::uint64_t) {
      visit(free_piece{range, place::store, true, stream});
    });
    for (auto const range : store->unfenced()) { visit(free_piece{range, place::store, false, stream}); }
  }
  limits_.reserve.for_each([&](address_range range) { visit(free_piece{range, place::store, false, lost_stream}); });
  for (auto const& cache : caches_) {
    cache->for_each_free([&](address_range range, bool fenced) {
      visit(free_piece{range, place::cache, fenced, cache->identity()});
    });
  }
}

/// Bytes of the largest free piece, not coalesced with neighbours elsewhere. Requires that all caches are closed.
template <class Unused>
inline std::size_t basic_stream_ordered_heap<Unused>::largest_piece() const
{
  auto largest    = shared_.idle().ranges().largest();
  auto const look = [&](address_range range) { largest = std::max(largest, range.bytes); };
  shared_.for_each_unfenced(look);
  for (auto const& store : shared_.stores()) { largest = std::max(largest, store->ranges().largest()); }
  for (auto const& cache : caches_) { largest = std::max(largest, cache->largest_piece()); }
  return largest;
}

template <class Unused>
bool basic_stream_ordered_heap<Unused>::check_invariants() const
{
  auto const now = figures();
  std::lock_guard<std::mutex> const graphs_stay{graphs_.mutex()};
  std::lock_guard<std::mutex> const lock{mutex_};
  all_caches_closed const closed{*this};
  std::vector<address_range> all;
  for_each_free([&](free_piece const& each) { all.push_back(each.range); });
  bool good = blocks_.check_invariants() && shared_.check_invariants();
  // Claims of blocks that are not free: D2 of the reserve.
  auto claims = static_cast<std::int64_t>(limits_.reserve.claimed() - limits_.reserve.waiting());
  for (auto const& store : shared_.stores()) { claims -= static_cast<std::int64_t>(store->unfenced().size()); }
  for (auto const& cache : caches_) {
    good                   = good && cache->check_invariants();
    auto const uncoalesced = cache->free_pieces().first - cache->ranges().count();
    claims -= static_cast<std::int64_t>(cache->spare_claims() + uncoalesced);
  }
  good = good && graphs_.check_invariants();
  graphs_.for_each_chunk([&](address_range range) { all.push_back(range); });
  std::sort(all.begin(), all.end(), [](address_range a, address_range b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < all.size(); ++i) { good = good && all[i - 1].end() <= all[i].begin; }
  for (auto const range : all) { good = good && blocks_.holds(range); }
  if (now.live_bytes == 0 && graphs_.is_empty()) { good = good && claims == 0; }  // D2 of the reserve
  return good && claims >= 0 && now.free_bytes + now.live_bytes + now.graph_bytes == blocks_.usable_bytes();
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
