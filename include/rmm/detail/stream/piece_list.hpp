// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/sort_by_key.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/heap/run_filter.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/stream_cache.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The runs of neighbours that a piece_list has to contain.
struct wanted_runs {
  std::size_t least_bytes{};  ///< runs of at least this size
  std::vector<std::uintptr_t> const*
    edges{};                  ///< if given: also runs that begin or end at one of these addresses, ascending
  bool with_unfenced{false};  ///< whether memory without an event counts
};

/// A list of the free memory of a heap by address, which finds neighbours in different caches and stores. A run is a sequence of pieces,
/// each of which ends where the next begins.
///
/// Each set of ranges coalesces by itself. So two neighbours in a run lie in different sets, and most ranges of the largest set belong to
/// no longer run. From a set with more ranges than all others together, the list takes only ranges that are a wanted run themselves or that
/// touch a piece of another set. If bound_of_runs() is too small, make no list.
///
/// Where there are many caches, fenced blocks in their stacks are pieces too, and stay where they are until a run with them is taken. So a
/// search that finds nothing moves nothing. The stacks of few caches are emptied: coalesced memory packs better (PACKING_TEST).
///
/// If the other pieces are many, a run_filter selects those that may be part of a wanted run. So each piece is looked at twice, but few
/// are copied, looked up and sorted. A search takes some nanoseconds for each piece.
///
/// Invariants:
///  N1  pieces are ascending and do not overlap
///  N2  the list contains each wanted run as a whole
///
/// Made and used with the heap's lock, while all caches are closed. A template only so that translation units that make no heap do
/// not compile its members.
template <class Unused>
class basic_piece_list {
 public:
  /// A free range, and the store or the cache that it lies in.
  struct piece {
    address_range range;
    std::uint64_t epoch;
    free_store* store;
    stream_cache* cache;
    bool is_fenced{true};
    bool is_range{true};  // false: a block in a stack of its cache, or an unfenced one

    [[nodiscard]] range_set& ranges() const noexcept { return store != nullptr ? store->ranges() : cache->ranges(); }
    [[nodiscard]] std::uint64_t stream() const noexcept
    {
      return store != nullptr ? store->identity() : cache->identity();
    }
  };
  using iterator = typename std::vector<piece>::iterator;

  /// Returns a size that no run exceeds, with or without events. Constant time for each cache and store.
  [[nodiscard]] static std::size_t bound_of_runs(shared_free_lists const& shared, cache_set const& caches) noexcept
  {
    std::size_t pieces{};
    std::size_t bytes{};
    auto const* largest = &shared.idle().ranges();
    auto const add      = [&](range_set const& ranges, std::size_t count, std::size_t total) {
      pieces += count;
      bytes += total;
      if (ranges.count() > largest->count()) { largest = &ranges; }
    };
    add(*largest, largest->count(), largest->total_bytes());
    for (auto const& store : shared.stores()) {
      add(store->ranges(), store->ranges().count(), store->ranges().total_bytes());
    }
    for (auto const& cache : caches) {
      auto const [count, total] = cache->free_pieces();
      add(cache->ranges(), count, total);
    }
    shared.for_each_unfenced([&](address_range range) {
      ++pieces;
      bytes += range.bytes;
    });
    // Two pieces of one set do not lie side by side. So a run has at most one piece of the largest set more than it has others.
    auto const others = pieces - largest->count();
    auto const bound  = bytes - largest->total_bytes() + largest->most_bytes_of(others + 1);
    RMM_ASSERT(bound <= bytes);
    return bound;
  }

  /// Throws std::bad_alloc.
  basic_piece_list(shared_free_lists& shared,
                   cache_set const& caches,
                   seam_list const* seams,
                   wanted_runs const& wanted)
    : shared_{shared}, caches_{caches}, seams_{seams}, wanted_{wanted}
  {
    std::size_t count{};
    std::size_t total{};
    source largest{};
    if (!caches_.are_many()) {
      for (auto const& cache : caches_) { cache->empty_stacks(); }  // coalesced memory packs better
    }
    for_each_source([&](source const& from) {
      auto const [pieces, bytes] = from.fenced_pieces();
      count += pieces;
      total += bytes;
      if (largest.set == nullptr || from.set->count() > largest.set->count()) { largest = from; }
    });
    if (wanted.with_unfenced) {
      shared_.for_each_unfenced([&](address_range range) { ++count, total += range.bytes; });
      for (auto const& cache : caches_) { count += cache->unfenced_count(), total += cache->unfenced_bytes(); }
    }
    if (total < wanted.least_bytes && wanted.edges == nullptr) { return; }

    // The largest set is searched for what touches the others if it has more ranges than all of them.
    auto const ranges   = largest.set->count();
    bool const is_large = wanted.least_bytes != 0 && ranges > detail::max(few_ranges, count - ranges);
    auto const partial  = is_large ? largest : source{};
    if (is_large) {
      count -= ranges;
      total -= partial.set->total_bytes();
    }
    if (wanted.least_bytes == 0 || count <= many_pieces || !try_add_likely(partial, count, total)) {
      pieces_.reserve(2 * count + few_ranges);
      for_each_but(partial, [&](address_range, auto const& make) { pieces_.push_back(make()); });
    }
    if (is_large) { add_some(partial); }
    sort_pieces();
    if (is_large) { remove_doubles(); }
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_piece_list>(count + ranges) || check_invariants());
  }

  [[nodiscard]] iterator begin() noexcept { return pieces_.begin(); }
  [[nodiscard]] iterator end() noexcept { return pieces_.end(); }
  [[nodiscard]] std::size_t count() const noexcept { return pieces_.size(); }

  [[nodiscard]] bool are_neighbours(piece const& lower, piece const& upper) const noexcept
  {
    return upper.range.begin == lower.range.end() && (seams_ == nullptr || !seams_->contains(upper.range.begin));
  }

  /// Returns the position behind the last piece of the run that begins at `first`.
  [[nodiscard]] iterator end_of_run(iterator first) noexcept
  {
    auto last = first + 1;
    while (last != pieces_.end() && are_neighbours(last[-1], *last)) { ++last; }
    return last;
  }

  /// Returns the wanted runs as ranges. Throws std::bad_alloc.
  [[nodiscard]] std::vector<address_range> runs()
  {
    std::vector<address_range> runs;
    for (auto first = pieces_.begin(); first != pieces_.end();) {
      auto const last = end_of_run(first);
      address_range const run{first->range.begin, (last - 1)->range.end() - first->range.begin};
      if (is_wanted(run)) { runs.push_back(run); }
      first = last;
    }
    return runs;
  }

  /// Whether a run has at least `bytes` bytes, unfenced pieces included.
  [[nodiscard]] bool has_run(std::size_t bytes) noexcept
  {
    for (auto first = pieces_.begin(); first != pieces_.end();) {
      auto const last = end_of_run(first);
      if ((last - 1)->range.end() - first->range.begin >= bytes) { return true; }
      first = last;
    }
    return false;
  }

  /// Takes the first `bytes` bytes of the smallest fenced run that is large enough. The caller's stream waits only for streams that freed a
  /// piece of it, once for each set. Returns nothing if there is no such run, or if the wait is impossible.
  [[nodiscard]] taken_range take(std::size_t bytes, asker& who) noexcept
  {
    auto best             = pieces_.end();
    std::size_t best_size = max_value<std::size_t>;
    for (auto first = pieces_.begin(); first != pieces_.end();) {
      auto last = first + 1;
      while (last != pieces_.end() && first->is_fenced && last->is_fenced && are_neighbours(last[-1], *last)) {
        ++last;
      }
      auto const size = (last - 1)->range.end() - first->range.begin;
      if (first->is_fenced && size >= bytes && size < best_size) {
        best      = first;
        best_size = size;
      }
      first = last;
    }
    if (best == pieces_.end()) { return {}; }
    auto const begin = best->range.begin;
    auto const end =
      detail::find_if(best, pieces_.end(), [&](piece const& each) { return each.range.begin >= begin + bytes; });
    if (!try_empty_stacks(best, end)) { return {}; }
    if (!try_make_waits(best, end, who)) {
      who.wait_failed = true;
      return {};
    }
    RMM_ASSERT(best_size >= bytes && best != end);
    cut(best, end, {begin, bytes});
    return {begin, 0};
  }

  /// Moves those of these pieces that lie in stacks to the ranges of their caches. Returns false if host memory runs out.
  [[nodiscard]] static bool try_empty_stacks(iterator first, iterator last) noexcept
  {
    for (auto at = first; at != last; ++at) {
      RMM_ASSERT(at->is_fenced);
      if (at->is_range) { continue; }
      at->cache->empty_stacks();
      if (at->cache->has_fenced_blocks()) { return false; }
    }
    return true;
  }

  /// Takes a range out of its sets. Requires that the pieces contain it, are fenced, lie in no stacks, and have room for the rests.
  static void cut(iterator first, iterator last, address_range range) noexcept
  {
    RMM_ASSERT(first != last && first->range.begin <= range.begin && range.end() <= (last - 1)->range.end());
    for (auto at = first; at != last; ++at) {
      RMM_ASSERT(at->is_fenced && at->range.begin < range.end() && range.begin < at->range.end());
      auto const begin = detail::max(at->range.begin, range.begin);
      auto const taken =
        at->ranges().take_exact({begin, detail::min(at->range.end(), range.end()) - begin}, at->range.begin);
      RMM_ASSERT(taken);
      static_cast<void>(taken);
    }
  }

 private:
  static constexpr std::size_t few_ranges  = 512;  // a set with fewer is taken whole, which costs less than a selection
  static constexpr std::size_t many_pieces = 1024;  // more are filtered first, and sorted by their digits

  /// A set of ranges, and the store or the cache that has it.
  struct source {
    source() = default;
    explicit source(free_store& from) : set{&from.ranges()}, store{&from} {}
    explicit source(stream_cache& from) : set{&from.ranges()}, cache{&from} {}

    range_set const* set{};  // null: there is none
    free_store* store{};
    stream_cache* cache{};

    /// The number of fenced pieces and their bytes.
    [[nodiscard]] std::pair<std::size_t, std::size_t> fenced_pieces() const noexcept
    {
      if (cache == nullptr) { return {set->count(), set->total_bytes()}; }
      auto const [pieces, bytes] = cache->free_pieces();
      return {pieces - cache->unfenced_count(), bytes - cache->unfenced_bytes()};
    }
    [[nodiscard]] std::uint64_t epoch_of(std::uint64_t noted) const noexcept
    {
      return store != nullptr ? store->epoch_of(noted) : noted;
    }
  };

  /// Whether N1 and N2 hold: compares with a list of everything. Throws std::bad_alloc.
  [[nodiscard]] bool check_invariants()
  {
    for (auto at = pieces_.begin(); at != pieces_.end(); ++at) {
      auto const next = at + 1;
      if (at->range.bytes == 0 || (next != pieces_.end() && next->range.begin < at->range.end())) {
        return false;
      }  // N1
    }
    if (wanted_.least_bytes == 0) { return true; }
    basic_piece_list all{shared_, caches_, seams_, {0, nullptr, wanted_.with_unfenced}};
    auto const found = runs();
    auto next        = found.begin();
    for (auto const run : all.runs()) {
      if (!is_wanted(run)) { continue; }
      if (next == found.end() || next->begin != run.begin || next->bytes != run.bytes) { return false; }  // N2
      ++next;
    }
    return next == found.end();
  }

  [[nodiscard]] bool is_wanted(address_range run) const noexcept
  {
    auto const is_edge = [&](std::uintptr_t address) {
      return detail::binary_search(wanted_.edges->begin(), wanted_.edges->end(), address);
    };
    return run.bytes >= wanted_.least_bytes || (wanted_.edges != nullptr && (is_edge(run.begin) || is_edge(run.end())));
  }

  /// Sorts the pieces by address. Throws std::bad_alloc.
  void sort_pieces()
  {
    if (pieces_.size() < many_pieces) {
      return detail::sort(pieces_.begin(), pieces_.end(), [](piece const& lhs, piece const& rhs) {
        return lhs.range.begin < rhs.range.begin;
      });
    }
    std::vector<piece> scratch(pieces_.size());
    detail::sort_by_key(
      pieces_.begin(), pieces_.end(), scratch.begin(), [](piece const& each) { return each.range.begin; });
  }

  /// Removes duplicates, which add_some() makes and which lie beside each other.
  void remove_doubles() noexcept
  {
    auto kept = pieces_.begin();
    for (auto const& each : pieces_) {
      if (kept == pieces_.begin() || (kept - 1)->range.begin != each.range.begin) { *kept++ = each; }
    }
    pieces_.erase(kept, pieces_.end());
  }

  template <class Visit>
  void for_each_source(Visit&& visit) const
  {
    visit(source{shared_.idle()});
    for (auto const& store : shared_.stores()) { visit(source{*store}); }
    for (auto const& cache : caches_) { visit(source{*cache}); }
  }

  /// Calls visit(range, make) for all that is free in other sets than this one; make() returns the piece.
  template <class Visit>
  void for_each_but(source const& left_out, Visit&& visit) const
  {
    for_each_source([&](source const& from) {
      if (from.set == left_out.set) { return; }
      from.set->for_each([&](address_range range, std::uint64_t epoch) {
        visit(range, [&] { return piece{range, from.epoch_of(epoch), from.store, from.cache}; });
      });
    });
    for (auto const& cache : caches_) {
      cache->for_each_block([&](address_range range, bool is_fenced) {
        if (!is_fenced && !wanted_.with_unfenced) { return; }
        visit(range, [&] { return piece{range, 0, nullptr, cache.get(), is_fenced, false}; });
      });
    }
    if (!wanted_.with_unfenced) { return; }
    shared_.for_each_unfenced([&](address_range range) {
      visit(range, [&] { return piece{range, 0, nullptr, nullptr, false, false}; });
    });
  }

  /// Adds those pieces of all sets but `partial` that can be parts of wanted runs; they are `count`, and have `total` bytes. False, and has
  /// added none, if these could be all.
  [[nodiscard]] bool try_add_likely(source const& partial, std::size_t count, std::size_t total)
  {
    // The ranges of `partial` that are larger than this are looked at too. They are fewer than the others.
    auto const gap = partial.set == nullptr ? 0 : partial.set->size_of_all_but(detail::max(few_ranges, count / 8));
    if (!run_filter::can_tell(wanted_.least_bytes, gap)) { return false; }
    run_filter filter{wanted_.least_bytes, gap, count, total};
    for_each_but(partial, [&](address_range range, auto const&) { filter.add(range); });
    if (partial.set != nullptr) {
      partial.set->for_each_of_at_least(gap + heap_granule,
                                        [&](fenced_range const& found) { filter.add(found.range); });
    }
    if (wanted_.edges != nullptr) {
      for (auto const edge : *wanted_.edges) { filter.add_edge(edge); }
    }
    if (!filter.close()) { return true; }
    for_each_but(partial, [&](address_range range, auto const& make) {
      if (filter.may_be_in_run(range)) { pieces_.push_back(make()); }
    });
    return true;
  }

  /// Adds the ranges of a large set that are wanted runs or parts of them, some possibly twice.
  void add_some(source const& from)
  {
    auto const add = [&](fenced_range const& found) {
      if (found) { pieces_.push_back({found.range, from.epoch_of(found.epoch), from.store, from.cache}); }
    };
    auto const& ranges = *from.set;
    for (std::size_t at = 0, others = pieces_.size(); at != others; ++at) {
      auto const other = pieces_[at].range;
      add(ranges.range_ending_at(other.begin));
      add(ranges.range_beginning_at(other.end()));
    }
    ranges.for_each_of_at_least(wanted_.least_bytes, add);
    if (wanted_.edges == nullptr) { return; }
    for (auto const edge : *wanted_.edges) {
      add(ranges.range_ending_at(edge));
      add(ranges.range_beginning_at(edge));
    }
  }

  /// Makes the stream wait once for each set that has one of these pieces.
  [[nodiscard]] bool try_make_waits(iterator first, iterator last, asker const& who) const noexcept
  {
    capture_exemption const exemption;
    for (auto at = first; at != last; ++at) {
      if (at->store == &shared_.idle() || who.is_of_stream(at->stream())) { continue; }
      if (at->store != nullptr) {
        at->store->note_wait(at->epoch);
      } else {
        at->cache->note_wait();
      }
    }
    RMM_ASSERT(first != last && (who.identity != 0 || who.cache == nullptr));
    bool waits = true;
    for (auto at = first; at != last; ++at) {
      if (at->store != nullptr) {
        waits = at->store->try_make_noted_wait(who.stream, who.may_wait) && waits;
      } else if (at->cache->take_noted_wait()) {
        waits =
          (at->cache->event().is_reached() || (who.may_wait && at->cache->event().try_make_wait(who.stream))) && waits;
      }
    }
    return waits;
  }

  shared_free_lists& shared_;
  cache_set const& caches_;
  seam_list const* seams_;
  wanted_runs wanted_;
  std::vector<piece> pieces_;
};

using piece_list = basic_piece_list<void>;
RMM_COMPILED_ONCE(basic_piece_list<void>);

}  // namespace detail
}  // namespace RMM_NAMESPACE
