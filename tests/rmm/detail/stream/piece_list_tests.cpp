// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stream/piece_list.hpp>

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/device_waits.hpp>
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
    first->unfenced().push_back({base, heap_granule});  // another store drops those that are empty
    second = shared.find_or_make(2, 0);
    first->unfenced().clear();
  }

  /// Granules from the beginning of the memory.
  static void add(free_store& store, std::size_t begin, std::size_t granules)
  {
    ASSERT_TRUE(store.try_make_room(1));
    store.ranges().insert({base + begin * heap_granule, granules * heap_granule}, 0);
  }

  [[nodiscard]] piece_list make(wanted_runs const& wanted) { return {shared, caches, limits.seams(), wanted}; }

  /// A pattern in which no two ranges of a set touch.
  void add_pairs(free_store& store, std::size_t count, std::size_t at)
  {
    for (std::size_t i = 0; i != count; ++i) { add(store, at + 4 * i, 2); }
  }

  rmm::detail::mutex mutex;
  rmm::detail::slow_path slow;
  rmm::detail::heap_limits limits;
  rmm::detail::shared_free_lists shared{limits};
  rmm::detail::device_waits waits{0};
  cache_set caches{1, mutex, slow, limits, shared, waits};
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
  EXPECT_FALSE(who.wait_failed);
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
  EXPECT_EQ(piece_list::bound_of_runs(shared, caches), 0U);
  add_pairs(shared.idle(), 100'000, 0);
  EXPECT_EQ(piece_list::bound_of_runs(shared, caches), 2 * heap_granule);
  add(*first, 4002, 2);  // between two of them
  EXPECT_EQ(piece_list::bound_of_runs(shared, caches), 6 * heap_granule);
  ASSERT_TRUE(second->try_add_unfenced({base + 4006 * heap_granule, 2 * heap_granule}));
  EXPECT_EQ(piece_list::bound_of_runs(shared, caches), 10 * heap_granule);
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
  EXPECT_EQ(make({100'000 * heap_granule, &edges}).runs().size(), 2U);  // also if all that is free is less
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_TRUE(are_equal(runs[0], {base + 400 * heap_granule, 2 * heap_granule}));
  EXPECT_TRUE(are_equal(runs[1], {base + 804 * heap_granule, 2 * heap_granule}));
}

/// Of the runs in a list of everything, those that are wanted are in a list of what is wanted, and no others.
TEST_F(PieceList, ListsWantedRunsWhole)
{
  auto const seed = rmm::test::seed_from_environment(1);
  SCOPED_TRACE("RMM_TEST_SEED=" + std::to_string(seed));
  rmm::test::random_choice random{seed};
  std::vector<std::uintptr_t> seams;
  for (std::size_t at = 0; at < 20'000;) {
    auto const granules = 1 + random(6);
    auto const which    = random(8);
    auto& store         = which < 5 ? shared.idle() : which == 5 ? *first : *second;
    if (random(4) != 0) {
      if (random(50) == 0) { seams.push_back(base + at * heap_granule); }
      limits.seam_addresses = {seams.data(), seams.size()};
      ASSERT_TRUE(store.try_make_room(1));
      store.ranges().insert({base + at * heap_granule, granules * heap_granule}, 0, limits.seams());
    }
    at += granules;
  }
  ASSERT_GT(shared.idle().ranges().count(), 1000U);
  auto const all   = make({}).runs();
  auto const bound = piece_list::bound_of_runs(shared, caches);
  for (auto const run : all) { EXPECT_LE(run.bytes, bound); }
  for (auto least : {2U, 5U, 9U, 14U, 20U, 40U}) {
    auto const bytes = least * heap_granule;
    std::vector<std::uintptr_t> edges;
    for (int i = 0; i != 20; ++i) { edges.push_back(base + random(20'000) * heap_granule); }
    std::sort(edges.begin(), edges.end());
    auto const found = make({bytes, &edges}).runs();
    std::size_t wanted{};
    for (auto const run : all) {
      bool const at_edge =
        std::any_of(edges.begin(), edges.end(), [&](auto edge) { return edge == run.begin || edge == run.end(); });
      if (run.bytes < bytes && !at_edge) { continue; }
      ++wanted;
      EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](auto each) { return are_equal(each, run); }))
        << run.bytes / heap_granule << " granules at " << (run.begin - base) / heap_granule;
    }
    EXPECT_GT(wanted, 0U) << least;
    EXPECT_EQ(found.size(), wanted) << least;
  }
}

}  // namespace
