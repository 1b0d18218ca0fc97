// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A place for an allocation in a space of addresses of which only a part has memory behind it.
///
/// Addresses are free, in use, or empty, which means without memory. The space consists of whole units, each wholly empty or not at all.
/// Chunks of one or more units put memory behind empty addresses. A run of free and empty addresses is as good as free memory once its
/// missing units are mapped.
struct placement {
  address_range where{};        ///< `bytes` is 0 if there is no place
  std::size_t missing_bytes{};  ///< the bytes of the empty units that `where` touches
  [[nodiscard]] explicit constexpr operator bool() const noexcept { return where.bytes != 0; }
};

// placement_validation.hpp checks the results of the functions below in a slower and simpler way.
[[nodiscard]] inline bool is_best_placement(std::vector<address_range> const& free,
                                            std::vector<address_range> const& empty,
                                            placement const& found,
                                            std::size_t bytes,
                                            std::size_t chunk_bytes) noexcept;
template <class VisitChunksDown>
[[nodiscard]] bool are_free_chunks(std::vector<address_range> const& free,
                                   std::vector<address_range> const& found,
                                   std::size_t bytes,
                                   VisitChunksDown&& visit_chunks_down,
                                   address_range keep);

/// Searches one run after the other. A run is a sequence of free and empty parts, each of which ends where the next begins. `chunk_bytes`
/// is the size of a unit, the smallest chunk.
class placement_search {
 public:
  placement_search(std::size_t bytes, std::size_t chunk_bytes) noexcept : bytes_{bytes}, chunk_bytes_{chunk_bytes} {}

  /// Adds the next part, in ascending order.
  void add(address_range range, bool is_empty)
  {
    RMM_ASSERT(run_.empty() || run_.back().range.end() <= range.begin);
    if (!run_.empty() && run_.back().range.end() != range.begin) { end_run(); }
    std::size_t before{};
    if (!run_.empty()) { before = run_.back().empty_before + (run_.back().is_empty ? run_.back().range.bytes : 0); }
    run_.push_back({range, is_empty, before});
  }

  /// Ends the search, after the last part.
  [[nodiscard]] placement best() noexcept
  {
    end_run();
    return best_;
  }

 private:
  struct part {
    address_range range;
    bool is_empty;
    std::size_t empty_before;  // bytes of earlier empty parts in the same run
  };

  void end_run() noexcept
  {
    if (run_.empty()) { return; }
    auto const begin = run_.front().range.begin;
    auto const end   = run_.back().range.end();
    if (end - begin >= bytes_) {
      // The best places begin or end with a free part, or with the run.
      consider(begin);
      consider(end - bytes_);
      for (auto const& each : run_) {
        if (each.is_empty) { continue; }
        if (end - each.range.begin >= bytes_) { consider(each.range.begin); }
        if (each.range.end() - begin >= bytes_) { consider(each.range.end() - bytes_); }
      }
    }
    run_.clear();
  }

  void consider(std::uintptr_t begin) noexcept
  {
    auto const end = begin + bytes_;
    // A place fills each empty unit that it touches as a whole.
    auto const low     = empty_below(begin) / chunk_bytes_ * chunk_bytes_;
    auto const high    = (empty_below(end) + chunk_bytes_ - 1) / chunk_bytes_ * chunk_bytes_;
    auto const missing = high - low;
    if (best_ && missing > best_.missing_bytes) { return; }
    auto const& head = part_with(begin);
    auto const& tail = part_with(end - 1);
    auto const rest  = rest_of(head, begin - head.range.begin) + rest_of(tail, tail.range.end() - end);
    auto const alike = rest / (chunk_bytes_ / 32);
    auto const size  = run_.back().range.end() - run_.front().range.begin;
    if (best_ && std::tie(missing, alike, size) >= std::tie(best_.missing_bytes, best_rest_, best_run_)) { return; }
    best_      = {{begin, bytes_}, missing};
    best_rest_ = alike;
    best_run_  = size;
  }

  [[nodiscard]] part const& part_with(std::uintptr_t address) const noexcept
  {
    auto const after = detail::upper_bound(
      run_.begin(), run_.end(), address, [](std::uintptr_t at, part const& each) { return at < each.range.begin; });
    return after[-1];
  }

  /// Returns the empty bytes of the run below an address. Does not round them to units; consider() does.
  [[nodiscard]] std::size_t empty_below(std::uintptr_t address) const noexcept
  {
    auto const& in = part_with(address);
    if (!in.is_empty) { return in.empty_before; }
    return in.empty_before + detail::min(address - in.range.begin, in.range.bytes);
  }

  /// Returns the remainder that the place leaves of the part `in`, of which `beside` bytes lie beside the place. Of an empty part, only
  /// the rest of a unit counts: empty parts begin and end at multiples of the unit.
  [[nodiscard]] std::size_t rest_of(part const& in, std::size_t beside) const noexcept
  {
    return in.is_empty ? beside % chunk_bytes_ : beside;
  }

  std::size_t const bytes_;
  std::size_t const chunk_bytes_;
  std::vector<part> run_;
  placement best_{};
  std::size_t best_rest_{};
  std::size_t best_run_{};
};

/// Returns the place for `bytes` that lacks the fewest units, of `chunk_bytes` bytes each. Of several such places, returns the first by
/// this order:
///
///   1. the smallest remainders, which only small blocks can use: free memory of the pieces and units in which the place begins and ends.
///      Remainders with the same number of whole 32nds of a unit count as equal
///   2. the smallest run, then the lowest run
///   3. the low end of the run
///
/// Requires: `free` and `empty` are ascending and do not overlap; neighbours in one list do not touch. O(n * log n) for n ranges in both;
/// throws std::bad_alloc.
[[nodiscard]] inline placement find_placement(std::vector<address_range> const& free,
                                              std::vector<address_range> const& empty,
                                              std::size_t bytes,
                                              std::size_t chunk_bytes)
{
  RMM_ASSERT(bytes != 0 && bytes % heap_granule == 0 && chunk_bytes != 0 && chunk_bytes % heap_granule == 0);
  placement_search search{bytes, chunk_bytes};
  auto next_free  = free.begin();
  auto next_empty = empty.begin();
  while (next_free != free.end() || next_empty != empty.end()) {
    bool const is_empty =
      next_free == free.end() || (next_empty != empty.end() && next_empty->begin < next_free->begin);
    search.add(is_empty ? *next_empty++ : *next_free++, is_empty);
  }
  auto const best = search.best();
  RMM_ASSERT(!best || (best.where.bytes == bytes && best.missing_bytes % chunk_bytes == 0));
  RMM_ASSERT_EXPENSIVE(is_best_placement(free, empty, best, bytes, chunk_bytes));
  return best;
}

/// Returns the addresses that two ranges share; an empty range if there are none.
[[nodiscard]] inline address_range shared_part(address_range left, address_range right) noexcept
{
  auto const begin = detail::max(left.begin, right.begin);
  auto const end   = detail::min(left.end(), right.end());
  return begin < end ? address_range{begin, end - begin} : address_range{};
}

/// Returns the bytes of the empty units that a place touches; nothing if an address of it is neither free nor empty. O(free and empty
/// ranges).
[[nodiscard]] inline std::optional<std::size_t> count_missing(std::vector<address_range> const& free,
                                                              std::vector<address_range> const& empty,
                                                              address_range where,
                                                              std::size_t chunk_bytes) noexcept
{
  std::size_t covered{};
  std::size_t missing{};
  for (auto const range : free) { covered += shared_part(range, where).bytes; }
  for (auto const range : empty) {  // they begin at a unit and are made of units
    auto const part = shared_part(range, where);
    if (part.bytes == 0) { continue; }
    covered += part.bytes;
    auto const first = (part.begin - range.begin) / chunk_bytes;
    auto const last  = (part.end() - range.begin + chunk_bytes - 1) / chunk_bytes;
    missing += (last - first) * chunk_bytes;
  }
  if (covered != where.bytes) { return std::nullopt; }
  return missing;
}

/// Returns `ranges` without the memory of `cut`. Each range of `cut` lies in one of `ranges`; both are ascending.
[[nodiscard]] inline std::vector<address_range> without(std::vector<address_range> const& ranges,
                                                        std::vector<address_range> const& cut)
{
  std::vector<address_range> rest;
  rest.reserve(ranges.size() + cut.size());
  auto next           = cut.begin();
  auto const add_from = [&](std::uintptr_t begin, std::uintptr_t end) {
    if (begin < end) { rest.push_back({begin, end - begin}); }
  };
  for (auto const range : ranges) {
    auto at = range.begin;
    for (; next != cut.end() && next->begin < range.end(); ++next) {
      add_from(at, next->begin);
      at = next->end();
    }
    add_from(at, range.end());
  }
  return rest;
}

/// Returns the ranges of two ascending lists that do not overlap, with neighbours coalesced.
[[nodiscard]] inline std::vector<address_range> merged(std::vector<address_range> const& left,
                                                       std::vector<address_range> const& right)
{
  std::vector<address_range> all;
  all.reserve(left.size() + right.size());
  auto const add = [&](address_range range) {
    if (!all.empty() && all.back().end() == range.begin) {
      all.back().bytes += range.bytes;
    } else {
      all.push_back(range);
    }
  };
  auto other = right.begin();
  for (auto const range : left) {
    for (; other != right.end() && other->begin < range.begin; ++other) { add(*other); }
    add(range);
  }
  for (; other != right.end(); ++other) { add(*other); }
  return all;
}

/// As find_placement(), but returns the place that touches the fewest units that are empty or belong to `chunks`. These are free and
/// whole, so they can fill any place. Such a place may lack more units, but more of `chunks` are left outside to fill it: if chunks of one
/// unit can fill any place, they can fill this one; larger ones can if those that it cuts are mapped again. Requires that each of
/// `chunks` lies in a free range.
[[nodiscard]] inline placement find_densest_placement(std::vector<address_range> const& free,
                                                      std::vector<address_range> const& empty,
                                                      std::vector<address_range> const& chunks,
                                                      std::size_t bytes,
                                                      std::size_t chunk_bytes)
{
  auto found = find_placement(without(free, chunks), merged(empty, chunks), bytes, chunk_bytes);
  if (found) { found.missing_bytes = *count_missing(free, empty, found.where, chunk_bytes); }
  return found;
}

/// Returns free whole chunks outside `keep`, of at least `bytes` bytes together, or all that there are; ascending, with neighbours
/// coalesced. Takes the highest chunks that are not larger than the bytes still missing, or that have the size `unit`. If they are too
/// few, adds the smallest of the larger chunks.
///
/// No chunk is smaller than `unit`. visit_chunks_down(range, visit) calls visit(chunk) for each chunk that lies wholly in a range, from the
/// highest down, until a call of visit() returns false. Throws std::bad_alloc.
template <class VisitChunksDown>
[[nodiscard]] std::vector<address_range> find_free_chunks(std::vector<address_range> const& free,
                                                          std::size_t bytes,
                                                          std::size_t unit,
                                                          VisitChunksDown&& visit_chunks_down,
                                                          address_range keep = {})
{
  std::vector<address_range> found;
  address_range larger{};  // than what is lacking
  std::size_t sum{};
  auto const look = [&](address_range chunk) {
    if (sum >= bytes) { return false; }
    if (chunk.bytes > unit && chunk.bytes > bytes - sum) {
      if (larger.bytes == 0 || chunk.bytes < larger.bytes) { larger = chunk; }
      return true;
    }
    found.push_back(chunk);
    sum += chunk.bytes;
    return true;
  };
  auto const look_between = [&](std::uintptr_t begin, std::uintptr_t end) {
    if (begin + unit <= end) { visit_chunks_down(address_range{begin, end - begin}, look); }
  };
  for (auto range = free.rbegin(); range != free.rend() && sum < bytes; ++range) {
    if (keep.bytes == 0 || keep.end() <= range->begin || range->end() <= keep.begin) {
      look_between(range->begin, range->end());
    } else {
      look_between(keep.end(), range->end());
      look_between(range->begin, keep.begin);
    }
  }
  if (sum < bytes && larger.bytes != 0) { found.push_back(larger); }
  auto const is_lower = [](address_range a, address_range b) { return a.begin < b.begin; };
  detail::sort(found.begin(), found.end(), is_lower);
  found = merged(found, {});
  RMM_ASSERT_EXPENSIVE(are_free_chunks(free, found, bytes, visit_chunks_down, keep));
  return found;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#include <rmm/detail/heap/placement_validation.hpp>
#endif
