// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/heap/free_ranges.hpp>
#include <rmm/detail/heap/node_reserve.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace {

using rmm::detail::border_set;
using rmm::detail::free_ranges;
using rmm::detail::node_reserve;

struct FreeRanges : ::testing::Test {
  node_reserve reserve;
  border_set borders{1000};
  free_ranges ranges{reserve};
};

TEST_F(FreeRanges, StartsEmpty)
{
  EXPECT_TRUE(ranges.empty());
  EXPECT_EQ(ranges.count(), 0U);
  EXPECT_EQ(ranges.largest(), 0U);
  EXPECT_EQ(ranges.take_best_fit(1), std::nullopt);
}

TEST_F(FreeRanges, TakesFromTheFrontAndKeepsTheRest)
{
  ranges.insert({1000, 300}, borders);
  EXPECT_EQ(ranges.take_best_fit(100), 1000U);
  EXPECT_EQ(ranges.take_best_fit(200), 1100U);
  EXPECT_TRUE(ranges.empty());
}

TEST_F(FreeRanges, TakesTheSmallestThatFitsAndTheFirstAmongEquals)
{
  ranges.insert({1000, 300}, borders);
  ranges.insert({2000, 100}, borders);
  ranges.insert({3000, 200}, borders);
  ranges.insert({4000, 100}, borders);
  EXPECT_EQ(ranges.take_best_fit(100), 2000U);
  EXPECT_EQ(ranges.take_best_fit(150), 3000U);
  EXPECT_EQ(ranges.take_best_fit(100), 4000U);
  EXPECT_EQ(ranges.take_best_fit(301), std::nullopt);
}

TEST_F(FreeRanges, JoinsNeighboursOnBothSides)
{
  ranges.insert({1000, 100}, borders);
  ranges.insert({1200, 100}, borders);
  EXPECT_EQ(ranges.count(), 2U);
  ranges.insert({1100, 100}, borders);
  EXPECT_EQ(ranges.count(), 1U);
  EXPECT_EQ(ranges.largest(), 300U);
}

TEST_F(FreeRanges, DoesNotJoinAcrossABorder)
{
  borders.insert(1100);
  ranges.insert({1000, 100}, borders);
  ranges.insert({1100, 100}, borders);
  EXPECT_EQ(ranges.count(), 2U);
  EXPECT_EQ(ranges.largest(), 100U);
  EXPECT_TRUE(ranges.check_invariants(borders));
}

TEST_F(FreeRanges, MovesAllOfAnotherAndJoinsThem)
{
  free_ranges other{reserve};
  ranges.insert({1000, 100}, borders);
  other.insert({1100, 100}, borders);
  other.insert({1300, 100}, borders);
  ranges.take_all(other, borders);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(ranges.count(), 2U);
  EXPECT_EQ(ranges.total(), 300U);
}

TEST_F(FreeRanges, InsertsWithoutHostMemoryWhenNodesArePutBy)
{
  reserve.ensure(4);
  ranges.insert({1000, 100}, borders);
  ranges.insert({2000, 100}, borders);
  EXPECT_EQ(reserve.spare(), 0U);
  ASSERT_EQ(ranges.take_best_fit(100), 1000U);
  EXPECT_EQ(reserve.spare(), 2U);
}

/// A model of bytes: each is free or not.
TEST(FreeRangesModel, RandomOperationsKeepEveryByteOnceAndFindTheBestFit)
{
  constexpr std::size_t size = 512;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random{seed};
    node_reserve reserve;
    border_set const borders{size, size + size / 2};
    free_ranges ranges{reserve};
    ranges.insert({size, size / 2}, borders);
    ranges.insert({size + size / 2, size / 2}, borders);
    std::vector<bool> is_free(2 * size, false);
    std::fill(is_free.begin() + size, is_free.end(), true);
    std::map<std::uintptr_t, std::size_t> taken;

    for (int step = 0; step < 300; ++step) {
      if (random() % 2 == 0 || taken.empty()) {
        auto const bytes = 1 + random() % 40;
        // The best fit by the model: runs of free bytes end at borders.
        std::optional<std::uintptr_t> best;
        std::size_t best_run = 3 * size;
        for (std::size_t at = size; at < 2 * size;) {
          std::size_t run = 0;
          while (at + run < 2 * size && is_free[at + run] && (run == 0 || borders.count(at + run) == 0)) { ++run; }
          if (run >= bytes && run < best_run) {
            best     = at;
            best_run = run;
          }
          at += std::max<std::size_t>(run, 1);
        }
        auto const begin = ranges.take_best_fit(bytes);
        ASSERT_EQ(begin, best) << "seed " << seed << ", step " << step;
        if (begin) {
          taken.emplace(*begin, bytes);
          std::fill_n(is_free.begin() + static_cast<std::ptrdiff_t>(*begin), bytes, false);
        }
      } else {
        auto const which = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
        ranges.insert({which->first, which->second}, borders);
        std::fill_n(is_free.begin() + static_cast<std::ptrdiff_t>(which->first), which->second, true);
        taken.erase(which);
      }
      ASSERT_TRUE(ranges.check_invariants(borders)) << "seed " << seed << ", step " << step;
    }
    for (auto const& [begin, bytes] : taken) { ranges.insert({begin, bytes}, borders); }
    EXPECT_EQ(ranges.count(), 2U);  // one for each block, whatever the order
    EXPECT_EQ(ranges.total(), size);
  }
}

TEST(NodeReserve, KeepsWhatIsGivenBack)
{
  node_reserve reserve;
  reserve.ensure(3);
  EXPECT_EQ(reserve.spare(), 3U);
  void* const node = reserve.take();
  EXPECT_EQ(reserve.spare(), 2U);
  reserve.give(node);
  EXPECT_EQ(reserve.take(), node);
  reserve.give(node);
}

}  // namespace
