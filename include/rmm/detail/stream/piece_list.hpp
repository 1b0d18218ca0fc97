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
#include <rmm/detail/stream/free_sets.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The runs of neighbours that a piece_list has to contain.
struct wanted_runs {
  std::size_t least_bytes{};  ///< runs of at least this size
  std::vector<std::uintptr_t> const*
    edges{};                  ///< if given: also runs that begin or end at one of these addresses, ascending
  bool with_unfenced{false};  ///< whether memory without an event counts
  bool keeps_stacks{
    false};  ///< whether the list may not move blocks between stacks and ranges, because it is only looked at
};

/// Which free memory may leave the heap.
enum class leaving {
  at_once,      ///< memory that no work uses any more
  in_order,     ///< also memory that only work of the given stream still uses: later work of that stream comes after it
  after_a_wait  ///< also memory that an event covers: the given stream waits for the event
};

/// A list of the free memory of a heap by address, which finds neighbours in different caches and stores. A run is a sequence of pieces,
/// each of which ends where the next begins.
///
/// Each set of ranges coalesces by itself. So two neighbours in a run lie in different sets, and most ranges of the largest set belong to
/// no longer run. From a set with more ranges than all others together, the list takes only ranges that are a wanted run themselves or that
/// touch a piece of another set. If basic_free_sets::bound_of_runs() is too small, make no list.
///
/// Where there are many caches, fenced blocks in their stacks are pieces too, and stay where they are until a run with them is taken. So a
/// search that finds nothing moves nothing. The stacks of few caches are emptied (cache_set::empty_stacks()): coalesced memory packs better
/// (PACKING_TEST).
///
/// If the other pieces are many, a run_filter selects those that may be part of a wanted run. So each piece is looked at twice, but few
/// are copied, looked up and sorted. A search takes some nanoseconds for each piece.
///
/// Invariants:
///  N1  pieces are ascending and do not overlap
///  N2  the list contains each wanted run as a whole
///
/// Made and used with the heap's lock, while all caches but the calling thread's are closed. A template only so that translation units
/// that make no heap do not compile its members.
template <class Unused>
class basic_piece_list {
 public:
  /// A free range, and the set that it lies in. Unfenced memory of stores lies in none.
  struct piece {
    address_range range;
    std::uint64_t epoch;
    free_set set;
    bool is_fenced{true};
    bool is_range{true};  // false: a block in a stack of its cache, or an unfenced one
  };
  using iterator = typename std::vector<piece>::iterator;

  /// Throws std::bad_alloc.
  basic_piece_list(basic_free_sets<Unused> const& free, wanted_runs const& wanted) : free_{free}, wanted_{wanted}
  {
    if (!free_.caches().are_many() && !wanted.keeps_stacks) {
      free_.caches().empty_stacks();  // coalesced memory packs better
    }
    auto const all = free_.add_up(wanted.with_unfenced);
    if (all.bytes < wanted.least_bytes && wanted.edges == nullptr) { return; }

    // The largest set is searched for what touches the others if it has more ranges than all of them.
    auto const& largest = *all.largest.ranges;
    bool const is_large = wanted.least_bytes != 0 && largest.count() > detail::max(few_ranges, all.pieces_elsewhere());
    auto const partial  = is_large ? all.largest : free_set{};
    auto const count    = is_large ? all.pieces_elsewhere() : all.pieces;
    auto const total    = is_large ? all.bytes - largest.total_bytes() : all.bytes;
    if (wanted.least_bytes == 0 || count <= many_pieces || !try_add_likely(partial, count, total)) {
      pieces_.reserve(2 * count + few_ranges);
      for_each_but(partial, [&](address_range, auto const& make) { pieces_.push_back(make()); });
    }
    if (is_large) { add_some(partial); }
    sort_pieces();
    if (is_large) { remove_doubles(); }
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_piece_list>(all.pieces) || check_invariants());
  }

  [[nodiscard]] iterator begin() noexcept { return pieces_.begin(); }
  [[nodiscard]] iterator end() noexcept { return pieces_.end(); }
  [[nodiscard]] std::size_t count() const noexcept { return pieces_.size(); }

  /// Returns the wanted runs as ranges. Throws std::bad_alloc.
  [[nodiscard]] std::vector<address_range> runs()
  {
    std::vector<address_range> runs;
    for_each_run(false, [&](iterator, address_range run) {
      if (is_wanted(run)) { runs.push_back(run); }
    });
    return runs;
  }

  /// Whether a run has at least `bytes` bytes, unfenced pieces included.
  [[nodiscard]] bool has_run(std::size_t bytes) noexcept
  {
    bool found = false;
    for_each_run(false, [&](iterator, address_range run) { found = found || run.bytes >= bytes; });
    return found;
  }

  /// Takes the first `bytes` bytes of the smallest fenced run that is large enough. The caller's stream waits only for streams that freed a
  /// piece of it, once for each set. Returns nothing if there is no such run, or if the wait is impossible.
  [[nodiscard]] taken_range take(std::size_t bytes, asker const& who) noexcept
  {
    auto best             = pieces_.end();
    std::size_t best_size = max_value<std::size_t>;
    for_each_run(true, [&](iterator first, address_range run) {
      if (!first->is_fenced || run.bytes < bytes || run.bytes >= best_size) { return; }
      best      = first;
      best_size = run.bytes;
    });
    if (best == pieces_.end()) { return {}; }
    auto const begin = best->range.begin;
    auto const end =
      detail::find_if(best, pieces_.end(), [&](piece const& each) { return each.range.begin >= begin + bytes; });
    if (!try_empty_stacks(best, end) || !try_make_waits(best, end, who)) { return {}; }
    RMM_ASSERT(best_size >= bytes && best != end);
    cut(best, end, {begin, bytes});
    return {begin, 0};
  }

  /// Takes a range, which leaves the heap, out of its sets. Returns false, and takes nothing, if it is not free or may not leave now, if
  /// try_cut() returns false, or if host memory runs out. Looks from `at` on, and moves `at` to where the next higher range may begin.
  template <class TryCut>
  [[nodiscard]] bool try_withdraw(
    address_range range, iterator& at, leaving when, cudaStream_t waiting, TryCut&& try_cut) noexcept
  {
    at = detail::find_if(at, pieces_.end(), [&](piece const& each) { return each.range.end() > range.begin; });
    if (at == pieces_.end() || at->range.begin > range.begin) { return false; }
    auto last = at + 1;
    while (last != pieces_.end() && last[-1].range.end() < range.end() && are_neighbours(last[-1], *last)) { ++last; }
    if (last[-1].range.end() < range.end() || !may_leave(at, last, when, waiting) || !try_cut()) { return false; }
    cut(at, last, range);
    at = last - 1;
    RMM_ASSERT(at->range.begin < range.end() && range.end() <= at->range.end());
    at->range = {range.end(), at->range.end() - range.end()};  // what is left above
    return true;
  }

 private:
  static constexpr std::size_t few_ranges  = 512;  // a set with fewer is taken whole, which costs less than a selection
  static constexpr std::size_t many_pieces = 1024;  // more are filtered first, and sorted by their digits

  [[nodiscard]] bool are_neighbours(piece const& lower, piece const& upper) const noexcept
  {
    auto const* const seams = free_.seams();
    return upper.range.begin == lower.range.end() && (seams == nullptr || !seams->contains(upper.range.begin));
  }

  /// Calls visit(first piece, range) for each run. With `apart`, fenced and unfenced pieces are not part of one run.
  template <class Visit>
  void for_each_run(bool apart, Visit&& visit)
  {
    for (auto first = pieces_.begin(); first != pieces_.end();) {
      auto last = first + 1;
      while (last != pieces_.end() && are_neighbours(last[-1], *last) &&
             (!apart || last->is_fenced == first->is_fenced)) {
        ++last;
      }
      visit(first, address_range{first->range.begin, last[-1].range.end() - first->range.begin});
      first = last;
    }
  }

  /// Moves those of these pieces that lie in stacks to the ranges of their caches. Returns false if host memory runs out.
  [[nodiscard]] static bool try_empty_stacks(iterator first, iterator last) noexcept
  {
    for (auto at = first; at != last; ++at) {
      RMM_ASSERT(at->is_fenced);
      if (at->is_range) { continue; }
      at->set.cache->empty_stacks();
      if (at->set.cache->has_fenced_blocks()) { return false; }
    }
    return true;
  }

  /// Whether these pieces may leave the heap. If so, they have room for what is left of them.
  [[nodiscard]] static bool may_leave(iterator first, iterator last, leaving when, cudaStream_t waiting) noexcept
  {
    auto const own = when == leaving::in_order ? stream_identity(waiting) : 0;
    return try_empty_stacks(first, last) && detail::all_of(first, last, [&](piece const& each) {
             auto const& set = each.set;
             if (!set.try_make_room(1)) { return false; }
             if (set.is_reached(each.epoch) || (own != 0 && set.identity() == own)) { return true; }
             return when == leaving::after_a_wait && set.try_make_wait(waiting, each.epoch);
           });
  }

  /// Takes a range out of its sets. Requires that the pieces contain it, are fenced, lie in no stacks, and have room for the rests.
  static void cut(iterator first, iterator last, address_range range) noexcept
  {
    RMM_ASSERT(first != last && first->range.begin <= range.begin && range.end() <= (last - 1)->range.end());
    for (auto at = first; at != last; ++at) {
      RMM_ASSERT(at->is_fenced && at->range.begin < range.end() && range.begin < at->range.end());
      auto const begin = detail::max(at->range.begin, range.begin);
      auto const taken =
        at->set.ranges->take_exact({begin, detail::min(at->range.end(), range.end()) - begin}, at->range.begin);
      RMM_ASSERT(taken);
      static_cast<void>(taken);
    }
  }

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
    basic_piece_list all{free_, {0, nullptr, wanted_.with_unfenced, true}};
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

  /// Calls visit(range, make) for all that is free in other sets than this one; make() returns the piece.
  template <class Visit>
  void for_each_but(free_set const& left_out, Visit&& visit) const
  {
    free_.for_each_set([&](free_set const& from) {
      if (from.ranges != left_out.ranges) {
        from.ranges->for_each([&](address_range range, std::uint64_t epoch) {
          visit(range, [&] { return piece{range, from.epoch_of(epoch), from}; });
        });
      }
      if (from.cache == nullptr) { return; }
      from.cache->for_each_block([&](address_range range, bool is_fenced) {
        if (!is_fenced && !wanted_.with_unfenced) { return; }
        visit(range, [&] { return piece{range, 0, from, is_fenced, false}; });
      });
    });
    if (!wanted_.with_unfenced) { return; }
    free_.shared().for_each_unfenced([&](address_range range) {
      visit(range, [&] { return piece{range, 0, free_set{}, false, false}; });
    });
  }

  /// Adds those pieces of all sets but `partial` that can be parts of wanted runs; they are `count`, and have `total` bytes. False, and has
  /// added none, if these could be all.
  [[nodiscard]] bool try_add_likely(free_set const& partial, std::size_t count, std::size_t total)
  {
    // The ranges of `partial` that are larger than this are looked at too. They are fewer than the others.
    auto const gap =
      partial.ranges == nullptr ? 0 : partial.ranges->size_of_all_but(detail::max(few_ranges, count / 8));
    if (!run_filter::can_tell(wanted_.least_bytes, gap)) { return false; }
    run_filter filter{wanted_.least_bytes, gap, count, total};
    for_each_but(partial, [&](address_range range, auto const&) { filter.add(range); });
    if (partial.ranges != nullptr) {
      partial.ranges->for_each_of_at_least(gap + heap_granule,
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
  void add_some(free_set const& from)
  {
    auto const add = [&](fenced_range const& found) {
      if (found) { pieces_.push_back({found.range, from.epoch_of(found.epoch), from}); }
    };
    auto const& ranges = *from.ranges;
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
    auto const needs_none = [&](free_set const& set) {
      return set.identity() == 0 || who.is_of_stream(set.identity());
    };
    for (auto at = first; at != last; ++at) {
      if (!needs_none(at->set)) { at->set.note_wait(at->epoch); }
    }
    RMM_ASSERT(first != last && (who.identity != 0 || who.cache == nullptr));
    bool waits = true;
    for (auto at = first; at != last; ++at) { waits = at->set.try_make_noted_wait(who.stream, who.may_wait) && waits; }
    return waits;
  }

  basic_free_sets<Unused> const& free_;
  wanted_runs wanted_;
  std::vector<piece> pieces_;
};

using piece_list = basic_piece_list<void>;
RMM_COMPILED_ONCE(basic_piece_list<void>);

}  // namespace detail
}  // namespace RMM_NAMESPACE
