// SPDX-License-Identifier: Apache-2.0

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/placement.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::find_densest_placement;
using rmm::detail::find_free_chunks;
using rmm::detail::find_placement;
using rmm::detail::heap_granule;

constexpr std::size_t granules_of_chunk = 4;
constexpr std::size_t chunk             = granules_of_chunk * heap_granule;
constexpr std::uintptr_t origin         = 64 * chunk;

/// One letter for each granule: f free, e empty, x in use. A chunk is empty as a whole, or not at all.
using map_of_granules = std::string;

[[nodiscard]] std::vector<address_range> ranges_of(map_of_granules const& map, char kind)
{
  std::vector<address_range> ranges;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] != kind) { continue; }
    if (i != 0 && map[i - 1] == kind) {
      ranges.back().bytes += heap_granule;
    } else {
      ranges.push_back({origin + i * heap_granule, heap_granule});
    }
  }
  return ranges;
}

/// Returns how many chunks of a place are not mapped; nothing if part of it is in use.
[[nodiscard]] std::optional<std::size_t> lacking(map_of_granules const& map, std::size_t first, std::size_t count)
{
  if (map.find('x', first) < first + count) { return std::nullopt; }
  std::size_t chunks{};
  for (auto at = first / granules_of_chunk; at * granules_of_chunk < first + count; ++at) {
    chunks += map[at * granules_of_chunk] == 'e' ? 1 : 0;
  }
  return chunks;
}

[[nodiscard]] map_of_granules random_map(std::mt19937_64& random, std::size_t chunks)
{
  map_of_granules map;
  for (std::size_t i = 0; i < chunks; ++i) {
    if (random() % 3 == 0) {
      map.append(granules_of_chunk, 'e');
      continue;
    }
    bool const whole = random() % 3 == 0;
    for (std::size_t j = 0; j < granules_of_chunk; ++j) { map += whole || random() % 4 != 0 ? 'f' : 'x'; }
  }
  return map;
}

TEST(Placement, TakesFreeMemoryThatFits)
{
  map_of_granules const map = "xffxxfffxxxxeeee";
  auto const place          = find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), 2 * heap_granule, chunk);
  EXPECT_EQ(place.where, (address_range{origin + heap_granule, 2 * heap_granule}));
  EXPECT_EQ(place.missing_bytes, 0U);
}

TEST(Placement, StartsInTheFreeEndOfTheMappedMemory)
{
  map_of_granules const map = "xxffeeeeeeee";
  auto const place          = find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), 6 * heap_granule, chunk);
  EXPECT_EQ(place.where, (address_range{origin + 2 * heap_granule, 6 * heap_granule}));
  EXPECT_EQ(place.missing_bytes, chunk);
}

TEST(Placement, PrefersTheLeastRemainderAmongEquallyMappedPlaces)
{
  map_of_granules const map = "xfffeeeeeeeexxffeeeeeeeeeeee";  // both free ends save a chunk
  auto const place          = find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), 6 * heap_granule, chunk);
  EXPECT_EQ(place.where, (address_range{origin + 14 * heap_granule, 6 * heap_granule}));
  EXPECT_EQ(place.missing_bytes, chunk);
}

TEST(Placement, PrefersTheSmallestRunAmongEqualRemainders)
{
  map_of_granules const map = "xxffeeeeeeeexxffeeeexxffeeeeeeeeeeee";
  auto const place          = find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), 6 * heap_granule, chunk);
  EXPECT_EQ(place.where, (address_range{origin + 14 * heap_granule, 6 * heap_granule}));
}

TEST(Placement, KeepsAFreeEndWholeIfUsingItSavesNoChunk)
{
  map_of_granules const map = "xxffeeee";
  auto const place          = find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), 4 * heap_granule, chunk);
  EXPECT_EQ(place.where, (address_range{origin + 4 * heap_granule, 4 * heap_granule}));
  EXPECT_EQ(place.missing_bytes, chunk);
}

TEST(Placement, TreatsSimilarRemaindersAsEqual)
{
  constexpr std::size_t large = std::size_t{2} << 20U;
  constexpr std::size_t bytes = std::size_t{1} << 20U;
  address_range const exact{origin + 100 * large, bytes};  // in a larger run, because the chunk beside it is empty
  std::vector<address_range> const empty{{exact.end(), large}};
  auto const begin_beside = [&](std::size_t rest) {
    return find_placement({{origin, bytes + rest}, exact}, empty, bytes, large).where.begin;
  };
  EXPECT_EQ(begin_beside(large / 32 - heap_granule), origin);
  EXPECT_EQ(begin_beside(large / 32), exact.begin);
}

TEST(Placement, PrefersTheLowestAddressAmongEqualPlaces)
{
  map_of_granules const map = "xxxxeeeeeeeexxxxeeeeeeeexxxx";
  auto const place          = find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), 4 * heap_granule, chunk);
  EXPECT_EQ(place.where, (address_range{origin + 4 * heap_granule, 4 * heap_granule}));
}

TEST(Placement, FindsNoPlaceForTooLargeRequests)
{
  map_of_granules const map = "ffxfeeeexfff";
  EXPECT_FALSE(find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), 6 * heap_granule, chunk));
  EXPECT_FALSE(find_placement({}, {}, heap_granule, chunk));
}

TEST(Placement, MapsAsFewChunksAsPossible)
{
  std::mt19937_64 random{1};
  for (int trial = 0; trial < 20000; ++trial) {
    auto const map   = random_map(random, 1 + random() % 12);
    auto const count = 1 + random() % (4 * granules_of_chunk);
    std::size_t best = std::numeric_limits<std::size_t>::max();
    for (std::size_t first = 0; first + count <= map.size(); ++first) {
      if (auto const chunks = lacking(map, first, count)) { best = std::min(best, *chunks); }
    }
    auto const place = find_placement(ranges_of(map, 'f'), ranges_of(map, 'e'), count * heap_granule, chunk);
    ASSERT_EQ(static_cast<bool>(place), best != std::numeric_limits<std::size_t>::max()) << map << ' ' << count;
    if (!place) { continue; }
    ASSERT_EQ(place.where.bytes, count * heap_granule);
    ASSERT_EQ(place.where.begin % heap_granule, 0U);
    auto const chosen = lacking(map, (place.where.begin - origin) / heap_granule, count);
    ASSERT_TRUE(chosen.has_value()) << map << ' ' << count;
    ASSERT_EQ(*chosen, best) << map << ' ' << count;
    ASSERT_EQ(place.missing_bytes, best * chunk) << map << ' ' << count;
  }
}

/// Chunks of these sizes in units, one after the other from `origin`.
using sizes_of_chunks = std::vector<std::size_t>;

[[nodiscard]] auto visit_chunks_down(sizes_of_chunks const& sizes)
{
  return [&sizes](address_range range, auto&& visit) {
    auto end = origin;
    for (auto const size : sizes) { end += size * chunk; }
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      address_range const each{end - *size * chunk, *size * chunk};
      end = each.begin;
      if (each.begin >= range.begin && each.end() <= range.end() && !visit(each)) { return; }
    }
  };
}

[[nodiscard]] std::vector<address_range> free_chunks(std::vector<address_range> const& free,
                                                     std::size_t bytes,
                                                     sizes_of_chunks const& sizes,
                                                     address_range keep = {})
{
  return find_free_chunks(free, bytes, chunk, visit_chunks_down(sizes), keep);
}

TEST(FreeChunks, AreWholeAndOutsideOfKeptMemory)
{
  map_of_granules const map = "ffffffffffffxfffffff";
  auto const free           = ranges_of(map, 'f');
  sizes_of_chunks const sizes(5, 1);
  auto const all = free_chunks(free, 100 * chunk, sizes);
  EXPECT_EQ(all, (std::vector<address_range>{{origin, 3 * chunk}, {origin + 4 * chunk, chunk}}));
  auto const highest = free_chunks(free, chunk + 1, sizes);
  EXPECT_EQ(highest, (std::vector<address_range>{{origin + 2 * chunk, chunk}, {origin + 4 * chunk, chunk}}));
  auto const rest = free_chunks(free, 100 * chunk, sizes, {origin + chunk + 256, 256});
  EXPECT_EQ(rest,
            (std::vector<address_range>{{origin, chunk}, {origin + 2 * chunk, chunk}, {origin + 4 * chunk, chunk}}));
  EXPECT_TRUE(free_chunks(free, 0, sizes).empty());
}

TEST(FreeChunks, OfLargeSizesAreTakenWholeOrNotAtAll)
{
  sizes_of_chunks const sizes{4, 2, 1, 4};
  std::vector<address_range> const all{{origin, 11 * chunk}};
  EXPECT_EQ(free_chunks(all, 11 * chunk, sizes), all);
  EXPECT_EQ(free_chunks({{origin + chunk, 9 * chunk}}, 11 * chunk, sizes),
            (std::vector<address_range>{{origin + 4 * chunk, 3 * chunk}}));
}

TEST(FreeChunks, AreTheFittingOnesBeforeALargerOne)
{
  sizes_of_chunks const sizes{8, 2, 1, 4};
  std::vector<address_range> const all{{origin, 15 * chunk}};
  EXPECT_EQ(free_chunks(all, 3 * chunk, sizes), (std::vector<address_range>{{origin + 8 * chunk, 3 * chunk}}));
  EXPECT_EQ(free_chunks(all, 7 * chunk, sizes), (std::vector<address_range>{{origin + 8 * chunk, 7 * chunk}}));
}

TEST(DensestPlacement, TakesUpAFreeChunkOnlyIfItHasTo)
{
  map_of_granules const map = "xxxfffffffffffffxxxxxfffeeeexxxx";
  auto const free           = ranges_of(map, 'f');
  auto const empty          = ranges_of(map, 'e');
  sizes_of_chunks const sizes(8, 1);
  auto const bytes = 7 * heap_granule;
  // The first lacks nothing, but takes two of three free chunks. The other takes one empty chunk, which any of them can fill.
  EXPECT_EQ(find_placement(free, empty, bytes, chunk).missing_bytes, 0U);
  auto const place = find_densest_placement(free, empty, free_chunks(free, 100 * chunk, sizes), bytes, chunk);
  EXPECT_EQ(place.where, (address_range{origin + 21 * heap_granule, bytes}));
  EXPECT_EQ(place.missing_bytes, chunk);
}

TEST(DensestPlacement, TakesAsFewWholeChunksAsPossible)
{
  std::mt19937_64 random{3};
  for (int trial = 0; trial < 20000; ++trial) {
    auto const map   = random_map(random, 1 + random() % 12);
    auto const count = 1 + random() % (4 * granules_of_chunk);
    auto movable     = map;  // free chunks as empty ones
    for (std::size_t at = 0; at != map.size(); at += granules_of_chunk) {
      if (map.compare(at, granules_of_chunk, "ffff") == 0) { movable.replace(at, granules_of_chunk, "eeee"); }
    }
    std::size_t best = std::numeric_limits<std::size_t>::max();
    for (std::size_t first = 0; first + count <= map.size(); ++first) {
      if (auto const chunks = lacking(movable, first, count)) { best = std::min(best, *chunks); }
    }
    auto const free   = ranges_of(map, 'f');
    auto const chunks = free_chunks(free, 100 * chunk, sizes_of_chunks(map.size() / granules_of_chunk, 1));
    auto const place  = find_densest_placement(free, ranges_of(map, 'e'), chunks, count * heap_granule, chunk);
    ASSERT_EQ(static_cast<bool>(place), best != std::numeric_limits<std::size_t>::max()) << map << ' ' << count;
    if (!place) { continue; }
    auto const first = (place.where.begin - origin) / heap_granule;
    ASSERT_EQ(lacking(movable, first, count), best) << map << ' ' << count;
    ASSERT_EQ(place.missing_bytes, lacking(map, first, count).value() * chunk) << map << ' ' << count;
  }
}

TEST(FreeChunks, IncludeTheSmallestLargerOneIfTheOthersAreTooFew)
{
  sizes_of_chunks const sizes{2, 4, 1, 8};
  std::vector<address_range> const all{{origin, 15 * chunk}};
  EXPECT_EQ(free_chunks({{origin + 2 * chunk, 13 * chunk}}, 2 * chunk, sizes),
            (std::vector<address_range>{{origin + 2 * chunk, 5 * chunk}}));
  EXPECT_EQ(free_chunks({{origin + 7 * chunk, 8 * chunk}}, 256, sizes),
            (std::vector<address_range>{{origin + 7 * chunk, 8 * chunk}}));
}

TEST(FreeChunks, AreListedOnceAndSufficeIfPossible)
{
  std::mt19937_64 random{2};
  for (int trial = 0; trial < 5000; ++trial) {
    auto const map = random_map(random, 1 + random() % 12);
    sizes_of_chunks sizes;
    std::size_t largest{};
    std::size_t whole{};
    for (std::size_t unit = 0; unit != map.size() / granules_of_chunk;) {
      auto const most = map.size() / granules_of_chunk - unit;
      sizes.push_back(std::min<std::size_t>(trial % 2 == 0 ? 1 : std::size_t{1} << random() % 3, most));
      std::string const all_free(sizes.back() * granules_of_chunk, 'f');
      if (map.compare(unit * granules_of_chunk, all_free.size(), all_free) == 0) {
        whole += sizes.back();
        largest = std::max(largest, sizes.back());
      }
      unit += sizes.back();
    }
    auto const wanted = random() % 14;
    auto const found  = free_chunks(ranges_of(map, 'f'), wanted * chunk, sizes);
    std::size_t sum{};
    std::uintptr_t end{};
    for (auto const range : found) {
      ASSERT_GT(range.begin, end) << map;
      std::size_t of_chunks{};
      visit_chunks_down(sizes)(range, [&](address_range each) {
        of_chunks += each.bytes;
        return true;
      });
      ASSERT_EQ(of_chunks, range.bytes) << map;
      for (auto at = range.begin; at != range.end(); at += heap_granule) {
        ASSERT_EQ(map[(at - origin) / heap_granule], 'f') << map;
      }
      sum += range.bytes / chunk;
      end = range.end();
    }
    ASSERT_GE(sum, std::min<std::size_t>(wanted, whole)) << map;
    ASSERT_LT(sum, wanted + std::max<std::size_t>(largest, 1)) << map;
  }
}

}  // namespace
