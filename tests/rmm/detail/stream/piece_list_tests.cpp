// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stream/piece_list.hpp>

#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/block_map.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/free_sets.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/slow_path.hpp>
#include <rmm/detail/stream/stream_cache.hpp>

#include "../heap/random_numbers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::asker;
using rmm::detail::cache_set;
using rmm::detail::free_store;
using rmm::detail::heap_granule;
using rmm::detail::piece_list;
using rmm::detail::wanted_runs;

constexpr std::uintptr_t base = std::uintptr_t{1} << 40;

[[nodiscard]] bool are_equal(address_range lhs, address_range rhs)
{
  return lhs.begin == rhs.begin && lhs.bytes == rhs.bytes;
}

struct PieceList : ::testing::Test {
  PieceList() : first{shared.find_or_make(1, 0)}
  {
    first->unfenced().push_back({base, heap_granule});  // drops empty stores
    second = shared.find_or_make(2, 0);
    first->unfenced().clear();
  }

  /// Adds a free range. The position is in granules from the begin of the memory.
  static void add(free_store& store, std::size_t begin, std::size_t granules)
  {
    ASSERT_TRUE(store.try_make_room(1));
    store.ranges().insert({base + begin * heap_granule, granules * heap_granule}, 0);
  }

  [[nodiscard]] piece_list make(wanted_runs const& wanted) { return {free, wanted}; }

  /// Adds ranges in a pattern in which no two of them touch.
  void add_pairs(free_store& store, std::size_t count, std::size_t at)
  {
    for (std::size_t i = 0; i != count; ++i) { add(store, at + 4 * i, 2); }
  }

  rmm::detail::spinning_mutex mutex;
  rmm::detail::slow_path slow;
  rmm::detail::heap_limits limits;
  rmm::detail::shared_free_lists shared{limits};
  rmm::detail::device_waits waits{0};
  cache_set caches{1, mutex, slow, limits, shared, waits};
  rmm::detail::block_map blocks{limits.seam_addresses};
  rmm::detail::free_sets free{caches, shared, blocks, limits, waits};
  free_store* first;
  free_store* second{};
};

TEST_F(PieceList, FindsRunsThatLieInSeveralStores)
{
  add(shared.idle(), 10, 2);
  add(*first, 12, 3);
  add(*second, 15, 1);
  add(*second, 20, 4);
  auto pieces     = make({});
  auto const runs = pieces.runs();
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_TRUE(are_equal(runs[0], {base + 10 * heap_granule, 6 * heap_granule}));
  EXPECT_TRUE(pieces.has_run(6 * heap_granule));
  EXPECT_FALSE(pieces.has_run(7 * heap_granule));
}

TEST_F(PieceList, TakesTheBeginOfTheSmallestRunThatFits)
{
  add(shared.idle(), 10, 2);
  add(*first, 12, 3);
  add(*second, 20, 4);
  asker who;
  auto const taken = make({3 * heap_granule}).take(3 * heap_granule, who);
  EXPECT_EQ(taken.begin, base + 20 * heap_granule);
  EXPECT_EQ(make({5 * heap_granule}).take(5 * heap_granule, who).begin, base + 10 * heap_granule);
  EXPECT_TRUE(shared.idle().ranges().empty());
  EXPECT_TRUE(first->ranges().empty());
  EXPECT_EQ(second->ranges().total_bytes(), heap_granule);
}

TEST_F(PieceList, TakesNoUnfencedMemory)
{
  add(shared.idle(), 10, 2);
  ASSERT_TRUE(first->try_add_unfenced({base + 12 * heap_granule, 3 * heap_granule}));
  asker who;
  auto pieces = make({5 * heap_granule, nullptr, true});
  EXPECT_TRUE(pieces.has_run(5 * heap_granule));
  EXPECT_FALSE(pieces.take(5 * heap_granule, who));
  EXPECT_EQ(shared.idle().ranges().total_bytes(), 2 * heap_granule);
  first->unfenced().clear();
}

TEST_F(PieceList, IsEmptyIfFreeMemoryIsTooSmall)
{
  add(shared.idle(), 10, 2);
  add(*first, 12, 3);
  EXPECT_EQ(make({6 * heap_granule}).count(), 0U);
}

TEST_F(PieceList, BoundsRunsWithoutListingPieces)
{
  EXPECT_EQ(free.bound_of_runs(), 0U);
  add_pairs(shared.idle(), 100'000, 0);
  EXPECT_EQ(free.bound_of_runs(), 2 * heap_granule);
  add(*first, 4002, 2);  // between two of them
  EXPECT_EQ(free.bound_of_runs(), 6 * heap_granule);
  ASSERT_TRUE(second->try_add_unfenced({base + 4006 * heap_granule, 2 * heap_granule}));
  EXPECT_EQ(free.bound_of_runs(), 10 * heap_granule);
  second->unfenced().clear();
}

TEST_F(PieceList, ListsOnlyRelevantRangesOfALargeSet)
{
  add_pairs(shared.idle(), 100'000, 0);
  add(*first, 4002, 2);  // between two of them
  auto pieces = make({5 * heap_granule});
  EXPECT_EQ(pieces.count(), 3U);
  asker who;
  EXPECT_EQ(pieces.take(5 * heap_granule, who).begin, base + 4000 * heap_granule);
}

TEST_F(PieceList, FindsPiecesThatTouchAnEdge)
{
  add_pairs(shared.idle(), 10'000, 0);
  std::vector<std::uintptr_t> const edges{base + 402 * heap_granule, base + 804 * heap_granule};
  auto const runs = make({1'000 * heap_granule, &edges}).runs();
  EXPECT_EQ(make({100'000 * heap_granule, &edges}).runs().size(), 2U);  // even if the total of free memory is smaller
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_TRUE(are_equal(runs[0], {base + 400 * heap_granule, 2 * heap_granule}));
  EXPECT_TRUE(are_equal(runs[1], {base + 804 * heap_granule, 2 * heap_granule}));
}

/// Free holes of two granules everywhere, in alternating stores, and one run that is almost long enough.
TEST_F(PieceList, ListsFewPiecesIfNoRunIsLongEnough)
{
  constexpr std::size_t holes = 100'000;
  for (std::size_t i = 0; i != holes; ++i) {
    add(i % 3 == 0 ? shared.idle() : i % 3 == 1 ? *first : *second, 4 * i, 2);
  }
  for (std::size_t i = 0; i != 900; ++i) { add(i % 2 == 0 ? *first : *second, 4 * (holes + 10) + i, 1); }
  ASSERT_GE(free.bound_of_runs(), 1'000 * heap_granule);
  EXPECT_LT(make({1'000 * heap_granule}).count(), 1'500U);
  auto pieces = make({900 * heap_granule});
  EXPECT_TRUE(pieces.has_run(900 * heap_granule));
  EXPECT_LT(pieces.count(), 3'000U);
  std::vector<std::uintptr_t> const edges{base + 40'002 * heap_granule};
  EXPECT_EQ(make({1'000 * heap_granule, &edges}).runs().size(), 1U);
}

/// The shape of the memory in a random test.
struct random_memory {
  std::size_t granules;
  std::size_t largest_piece;  // in granules
  std::size_t used_of_100;
  std::size_t idle_of_8;  // the share of the idle store; two other stores have the rest
  std::size_t seam_each;  // one seam for about so many pieces
};

/// A list of wanted runs must contain exactly the wanted runs of a list of everything.
struct RandomPieceList : PieceList, ::testing::WithParamInterface<random_memory> {
  /// Fills the memory. Returns the runs in a list of everything.
  std::vector<address_range> fill(rmm::test::random_choice& random)
  {
    auto const memory = GetParam();
    std::vector<address_range> unfenced;
    for (std::size_t at = 0; at < memory.granules;) {
      auto const granules = 1 + random(memory.largest_piece);
      auto const which    = random(8);
      auto& store         = which < memory.idle_of_8 ? shared.idle() : which % 2 == 0 ? *first : *second;
      address_range const range{base + at * heap_granule, granules * heap_granule};
      at += granules;
      if (random(100) < memory.used_of_100) { continue; }
      if (random(memory.seam_each) == 0) { seams.push_back(range.begin); }
      limits.seam_addresses = {seams.data(), seams.size()};
      if (random(20) == 0) {
        unfenced.push_back(range);
        continue;
      }
      EXPECT_TRUE(store.try_make_room(1));
      store.ranges().insert(range, 0, limits.seams());
    }
    first->unfenced() = std::move(unfenced);
    return make({0, nullptr, true}).runs();
  }

  void expect_wanted(std::vector<address_range> const& all, wanted_runs const& wanted)
  {
    auto const found = make(wanted).runs();
    auto next        = found.begin();
    for (auto const run : all) {
      bool const at_edge = std::any_of(
        wanted.edges->begin(), wanted.edges->end(), [&](auto edge) { return edge == run.begin || edge == run.end(); });
      if (run.bytes < wanted.least_bytes && !at_edge) { continue; }
      ASSERT_TRUE(next != found.end() && are_equal(*next++, run))
        << run.bytes / heap_granule << " granules at " << (run.begin - base) / heap_granule << ", wanted "
        << wanted.least_bytes / heap_granule;
    }
    EXPECT_TRUE(next == found.end());
  }

  std::vector<std::uintptr_t> seams;
};

TEST_P(RandomPieceList, ListsWantedRunsWhole)
{
  auto const seed = rmm::test::seed_from_environment(1);
  SCOPED_TRACE("RMM_TEST_SEED=" + std::to_string(seed));
  rmm::test::random_choice random{seed};
  auto const all   = fill(random);
  auto const bound = free.bound_of_runs();
  std::size_t longest{};
  for (auto const run : all) { longest = std::max(longest, run.bytes); }
  EXPECT_LE(longest, bound);
  std::vector<std::size_t> sizes;
  for (std::size_t size = 1; size <= longest / heap_granule; size += 1 + size / 8) { sizes.push_back(size); }
  sizes.push_back(longest / heap_granule);
  sizes.push_back(longest / heap_granule + 1);
  for (auto const least : sizes) {
    std::vector<std::uintptr_t> edges;
    for (auto i = random(3) * 20; i != 0; --i) {
      auto const run = all[random(all.size())];
      edges.push_back(i % 4 == 0   ? base + random(GetParam().granules) * heap_granule
                      : i % 2 == 0 ? run.begin
                                   : run.end());
    }
    std::sort(edges.begin(), edges.end());
    ASSERT_NO_FATAL_FAILURE(expect_wanted(all, {least * heap_granule, &edges, true}));
    EXPECT_EQ(make({least * heap_granule, nullptr, true}).has_run(least * heap_granule),
              least * heap_granule <= longest);
  }
  first->unfenced().clear();
}

INSTANTIATE_TEST_SUITE_P(Memories,
                         RandomPieceList,
                         ::testing::Values(random_memory{20'000, 6, 25, 5, 50},
                                           random_memory{60'000, 6, 50, 6, 1'000},
                                           random_memory{200'000, 6, 70, 0, 1'000},
                                           random_memory{200'000, 2, 60, 4, 1'000},
                                           random_memory{60'000, 3, 4, 5, 1'000},
                                           random_memory{60'000, 3, 1, 3, 100'000},
                                           random_memory{400'000, 40, 10, 2, 100'000},
                                           random_memory{4'000'000, 500, 30, 7, 100'000}));

}  // namespace
