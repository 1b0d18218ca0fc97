// SPDX-License-Identifier: Apache-2.0
// The part of stream_ordered_heap.hpp, which includes it, that lets blocks grow in place and parts of them leave.

namespace RMM_NAMESPACE {
namespace detail {

template <class Unused>
void basic_stream_ordered_heap<Unused>::extend(address_range added)
{
  std::lock_guard<std::mutex> const lock{mutex_};
  if (!everyones_.try_make_room(1)) { throw std::bad_alloc{}; }
  auto next       = blocks_.lower_bound(added.begin);
  auto const last = next == blocks_.begin() ? blocks_.end() : std::prev(next);
  if (last != blocks_.end() && last->first + last->second == added.begin) {
    last->second += added.bytes;
    if (next != blocks_.end() && next->first == added.end()) {
      last->second += next->second;
      blocks_.erase(next);
    }
  } else {
    auto const at = blocks_.emplace_hint(next, added.begin, added.bytes);
    if (next != blocks_.end() && next->first == added.end()) {
      at->second += next->second;
      blocks_.erase(next);
    }
  }
  block_bytes_.store(block_bytes() + added.bytes, std::memory_order_relaxed);
  usable_bytes_ += added.bytes;
  everyones_.ranges().insert(added, 0, seams());
  set_limits();
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::free_runs()
{
  std::lock_guard<std::mutex> const lock{mutex_};
  all_caches_closed const closed{*this};
  poll(std::numeric_limits<std::size_t>::max());
  auto const pieces = collect_pieces();
  std::vector<address_range> runs;
  runs.reserve(pieces.size());
  for (auto at = pieces.begin(); at != pieces.end(); ++at) {
    if (at != pieces.begin() && joins(*std::prev(at), *at)) {
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
  all.reserve(blocks_.size());
  for (auto const& [begin, bytes] : blocks_) { all.push_back({begin, bytes}); }
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
                                                                              cuda_stream_view waiting)
{
  std::lock_guard<std::mutex> const lock{mutex_};
  auto const is_no_block = [&](address_range range) {
    auto const found = blocks_.find(range.begin);
    return found == blocks_.end() || found->second != range.bytes;
  };
  wanted.erase(std::remove_if(wanted.begin(), wanted.end(), is_no_block), wanted.end());
  return withdraw_locked(wanted, leaving::after_a_wait, waiting);
}

template <class Unused>
std::vector<address_range> basic_stream_ordered_heap<Unused>::withdraw_locked(std::vector<address_range> const& wanted,
                                                                              leaving when,
                                                                              cuda_stream_view waiting)
{
  std::vector<address_range> taken;
  taken.reserve(wanted.size());
  all_caches_closed const closed{*this};
  capture_exemption const exemption;
  poll(std::numeric_limits<std::size_t>::max());
  auto pieces = collect_pieces();
  auto first  = pieces.begin();
  for (auto const range : wanted) {
    first = std::find_if(first, pieces.end(), [&](piece const& each) { return each.range.end() > range.begin; });
    if (first == pieces.end()) { break; }
    if (first->range.begin > range.begin) { continue; }
    auto last = std::next(first);
    while (last != pieces.end() && std::prev(last)->range.end() < range.end() && joins(*std::prev(last), *last)) {
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
  for (auto at = first; at != last; ++at) {
    auto* const store = at->store;
    if (store != nullptr ? !store->try_make_room(1) : !at->cache->try_make_room(1)) { return false; }
    bool const at_once =
      store != nullptr ? store == &everyones_ || at->stamp <= store->reached() : at->cache->event().is_reached();
    if (at_once) { continue; }
    if (when == leaving::at_once) { return false; }
    if (store != nullptr ? !store->try_make_wait(waiting, at->stamp) : !at->cache->event().try_make_wait(waiting)) {
      return false;
    }
  }
  if (!try_cut_block(range)) { return false; }
  for (auto at = first; at != last; ++at) {
    auto const begin = std::max(at->range.begin, range.begin);
    static_cast<void>(at->ranges().take_exact({begin, std::min(at->range.end(), range.end()) - begin}));
  }
  return true;
}

/// Makes a range no part of its block any more. False if that takes host memory, and there is none, or it is in no block.
template <class Unused>
inline bool basic_stream_ordered_heap<Unused>::try_cut_block(address_range range) noexcept
{
  auto const above = blocks_.upper_bound(range.begin);
  if (above == blocks_.begin()) { return false; }
  auto const block = std::prev(above);
  auto const begin = block->first;
  auto const bytes = block->second;
  auto const end   = begin + bytes;
  if (range.end() > end) { return false; }
  bool const to_end = range.bytes + (range.begin - begin) == align_down(bytes, heap_granule);
  if (!to_end) {
    try {
      blocks_.emplace_hint(above, range.end(), end - range.end());
    } catch (std::bad_alloc const&) {
      return false;
    }
  }
  if (range.begin == begin) {
    blocks_.erase(block);
  } else {
    block->second = range.begin - begin;
  }
  auto const cut = to_end ? end - range.begin : range.bytes;
  block_bytes_.store(block_bytes() - cut, std::memory_order_relaxed);
  usable_bytes_ -= range.bytes;
  auto const forget_seam = [&](std::uintptr_t address) {
    auto const seam = std::lower_bound(seam_addresses_.begin(), seam_addresses_.end(), address);
    if (seam != seam_addresses_.end() && *seam == address) { seam_addresses_.erase(seam); }
  };
  forget_seam(range.begin);
  forget_seam(range.begin + cut);
  limits_.seam_addresses = {seam_addresses_.data(), seam_addresses_.size()};
  return true;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
