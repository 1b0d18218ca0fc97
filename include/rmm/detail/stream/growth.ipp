// SPDX-License-Identifier: Apache-2.0
// The part of stream_ordered_heap.hpp, which includes it, that lets blocks grow in place and parts of them leave.

namespace RMM_NAMESPACE {
namespace detail {

template <class Unused>
void basic_stream_ordered_heap<Unused>::extend(address_range added)
{
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!shared_.idle().try_make_room(1)) { throw std::bad_alloc{}; }
  blocks_.extend(added);
  block_bytes_.store(blocks_.total_bytes(), std::memory_order_relaxed);
  shared_.idle().ranges().insert(added, 0, seams());
  set_limits();
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::free_runs(bool with_unfenced)
{
  context_scope const with_context{home_device_};
  std::lock_guard<std::mutex> const lock{mutex_};
  all_caches_closed const closed{*this};
  shared_.poll(std::numeric_limits<std::size_t>::max());
  auto const pieces = collect_pieces(0, with_unfenced);
  std::vector<address_range> runs;
  runs.reserve(pieces.size());
  for (auto at = pieces.begin(); at != pieces.end(); ++at) {
    if (at != pieces.begin() && are_neighbours(*std::prev(at), *at)) {
      runs.back().bytes += at->range.bytes;
    } else {
      runs.push_back(at->range);
    }
  }
  return runs;
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::blocks() const
{
  std::lock_guard<std::mutex> const lock{mutex_};
  std::vector<address_range> all;
  all.reserve(blocks_.count());
  blocks_.for_each([&](address_range block) { all.push_back(block); });
  return all;
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::withdraw(std::vector<address_range> const& wanted,
                                                                       leaving when,
                                                                       cuda_stream_view waiting)
{
  std::lock_guard<std::mutex> const lock{mutex_};
  return withdraw_locked(wanted, when, waiting);
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::withdraw_blocks(std::vector<address_range> wanted,
                                                                              cuda_stream_view waiting,
                                                                              leaving when)
{
  std::lock_guard<std::mutex> const lock{mutex_};
  wanted.erase(
    std::remove_if(wanted.begin(), wanted.end(), [&](address_range range) { return !blocks_.is_block(range); }),
    wanted.end());
  return withdraw_locked(wanted, when, waiting);
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::withdraw_locked(std::vector<address_range> const& wanted,
                                                                              leaving when,
                                                                              cuda_stream_view waiting)
{
  std::vector<address_range> taken;
  taken.reserve(wanted.size());
  context_scope const with_context{home_device_};
  all_caches_closed const closed{*this};
  capture_exemption const exemption;
  shared_.poll(std::numeric_limits<std::size_t>::max());
  auto pieces = collect_pieces();
  auto first  = pieces.begin();
  for (auto const range : wanted) {
    first = std::find_if(first, pieces.end(), [&](piece const& each) { return each.range.end() > range.begin; });
    if (first == pieces.end()) { break; }
    if (first->range.begin > range.begin) { continue; }
    auto last = std::next(first);
    while (last != pieces.end() && std::prev(last)->range.end() < range.end() &&
           are_neighbours(*std::prev(last), *last)) {
      ++last;
    }
    if (std::prev(last)->range.end() < range.end() || !try_take_out(first, last, range, when, waiting.value())) {
      continue;
    }
    taken.push_back(range);
    first              = std::prev(last);
    first->range.bytes = first->range.end() - range.end();  // what is left above
    first->range.begin = range.end();
  }
  if (!taken.empty()) { set_limits(); }
  return taken;
}

/// Takes a range, all or nothing, out of the pieces that it lies in, and out of its block. Requires that all caches are closed.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::try_take_out(typename std::vector<piece>::iterator first,
                                                            typename std::vector<piece>::iterator last,
                                                            address_range range,
                                                            leaving when,
                                                            cudaStream_t waiting) noexcept
{
  auto const own = when == leaving::in_order ? stream_identity(waiting) : 0;
  for (auto at = first; at != last; ++at) {
    auto* const store = at->store;
    if (store != nullptr ? !store->try_make_room(1) : !at->cache->try_make_room(1)) { return false; }
    bool const at_once =
      store != nullptr ? store == &shared_.idle() || at->epoch <= store->reached() : at->cache->event().is_reached();
    if (at_once) { continue; }
    if (own != 0 && (store != nullptr ? store->identity() : at->cache->identity()) == own) { continue; }
    if (when != leaving::after_a_wait) { return false; }
    if (store != nullptr ? !store->try_make_wait(waiting, at->epoch) : !at->cache->event().try_make_wait(waiting)) {
      return false;
    }
  }
  if (!blocks_.try_cut(range)) { return false; }
  block_bytes_.store(blocks_.total_bytes(), std::memory_order_relaxed);
  for (auto at = first; at != last; ++at) {
    auto const begin = std::max(at->range.begin, range.begin);
    static_cast<void>(at->ranges().take_exact({begin, std::min(at->range.end(), range.end()) - begin}));
  }
  return true;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
