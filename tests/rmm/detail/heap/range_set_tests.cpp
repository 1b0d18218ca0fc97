// SPDX-License-Identifier: Apache-2.0
#include "../../../support/sanitizers.hpp"
#include "shadow_ranges.hpp"

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/heap/range_set_validation.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::range_set;
using rmm::detail::seam_list;

constexpr std::size_t operator""_g(unsigned long long granules) { return granules * 256; }

// A set with room for 16 ranges. Addresses and sizes are written in granules.
struct RangeSet : ::testing::Test {
  RangeSet()
  {
    if (!set.try_reserve(16)) { throw std::bad_alloc{}; }
  }

  void insert(std::uintptr_t begin, std::size_t bytes, std::uint64_t epoch = 0) { set.insert({begin, bytes}, epoch); }

  range_set set;
};

TEST(RangeSetWithoutMemory, IsEmptyAndFindsNothing)
{
  range_set set;
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.capacity(), 0U);
  EXPECT_EQ(set.metadata_bytes(), 0U);
  EXPECT_EQ(set.largest(), 0U);
  EXPECT_FALSE(set.take(1_g));
  EXPECT_FALSE(set.take_back(1_g));
  EXPECT_FALSE(set.take_good(1_g));
  EXPECT_FALSE(set.take_highest(1_g));
  EXPECT_EQ(set.good_fit(1_g), 0U);
  EXPECT_FALSE(set.take_up_to(1_g));
  EXPECT_FALSE(set.take_exact({1_g, 1_g}));
  set.clear();
  EXPECT_TRUE(set.validate());
}

TEST(RangeSetWithoutMemory, AllocatesInTryReserve)
{
  range_set set;
  ASSERT_TRUE(set.try_reserve(1000));
  EXPECT_GE(set.capacity(), 1000U);
  EXPECT_GT(set.metadata_bytes(), 0U);
}

TEST(RangeSetWithoutMemory, TryReserveFailsWithoutHostMemory)
{
  range_set set;
  EXPECT_FALSE(set.try_reserve(std::numeric_limits<std::size_t>::max()));
  EXPECT_EQ(set.capacity(), 0U);
  EXPECT_TRUE(set.validate());
}

TEST_F(RangeSet, CutsFromTheEndOnRequest)
{
  insert(100_g, 10_g, 7);
  auto const taken = set.take_back(3_g);
  EXPECT_EQ(taken.begin, 107_g);
  EXPECT_EQ(taken.epoch, 7U);
  EXPECT_EQ(set.take(7_g).begin, 100_g) << "the rest stays in one piece";
  EXPECT_TRUE(set.empty());
}

TEST_F(RangeSet, CutsTheHighestRangeThatFitsAtItsEnd)
{
  insert(100_g, 10_g);
  insert(200_g, 50_g);
  insert(300_g, 2_g);
  EXPECT_EQ(set.take_highest(3_g).begin, 247_g);
  EXPECT_EQ(set.take_highest(2_g).begin, 300_g);
  EXPECT_FALSE(set.take_highest(48_g));
}

TEST_F(RangeSet, ReturnsTheSizeOfTheFittingRange)
{
  insert(100_g, 10_g);
  insert(200_g, 50_g);
  EXPECT_EQ(set.good_fit(3_g), 10_g);
  EXPECT_EQ(set.good_fit(11_g), 50_g);
  EXPECT_EQ(set.good_fit(51_g), 0U);
}

TEST(RangeSetMemory, IsAtMostOnePercentOfLiveBlocksOf4KiB)
{
  for (std::size_t blocks = 10'000; blocks < 3'000'000; blocks += blocks / 7) {
    range_set set;
    ASSERT_TRUE(set.try_reserve(blocks / 2 + 1));
    EXPECT_LE(set.metadata_bytes(), blocks * 4096 / 100) << blocks;
  }
}

TEST(RangeSetMemory, GrowsGeometricallyWhileItIsSmall)
{
  range_set set;
  std::size_t growths{};
  for (std::size_t ranges = 1; ranges <= 2000; ++ranges) {
    auto const before = set.capacity();
    ASSERT_TRUE(set.try_reserve(ranges));
    if (set.capacity() != before) { ++growths; }
  }
  EXPECT_LE(growths, 30U);
}

TEST(RangeSetMemory, GrowsInSmallStepsWhenItIsLarge)
{
  range_set set;
  ASSERT_TRUE(set.try_reserve(100'000));
  for (std::size_t growth = 0; growth != 1000; ++growth) {
    auto const before = set.metadata_bytes();
    ASSERT_TRUE(set.try_reserve(set.capacity() + 1));
    ASSERT_LE(set.metadata_bytes() - before, 16'384U);
  }
}

/// While it exists, the system gives this process no more addresses.
struct no_more_addresses {
  no_more_addresses()
  {
    ::getrlimit(RLIMIT_AS, &before);
    auto none     = before;
    none.rlim_cur = 1;
    ::setrlimit(RLIMIT_AS, &none);
  }
  no_more_addresses(no_more_addresses const&)            = delete;
  no_more_addresses& operator=(no_more_addresses const&) = delete;
  ~no_more_addresses() { ::setrlimit(RLIMIT_AS, &before); }

  rlimit before{};
};

bool runs_in_valgrind()
{
  char const* const preloaded = std::getenv("LD_PRELOAD");  // NOLINT(concurrency-mt-unsafe): no thread sets variables
  return preloaded != nullptr && std::string{preloaded}.find("vgpreload") != std::string::npos;
}

TEST(RangeSetMemory, IsUnchangedIfALargeSetCannotGrow)
{
  if (RMM_TEST_UNDER_SANITIZER || runs_in_valgrind()) { GTEST_SKIP() << "these take addresses themselves"; }
  range_set set;
  ASSERT_TRUE(set.try_reserve(3000));
  for (std::size_t at = 1; at <= 3000; ++at) { set.insert({at * 2_g, 1_g}, at); }
  auto const capacity = set.capacity();
  auto const bytes    = set.metadata_bytes();
  range_set other;
  bool grew{};
  bool other_grew{};
  {
    no_more_addresses const refusal;
    grew       = set.try_reserve(1'000'000);
    other_grew = other.try_reserve(1'000'000);
  }
  EXPECT_FALSE(grew);
  EXPECT_FALSE(other_grew);
  EXPECT_EQ(set.capacity(), capacity);
  EXPECT_EQ(set.metadata_bytes(), bytes);
  EXPECT_EQ(set.count(), 3000U);
  EXPECT_TRUE(set.validate());
  EXPECT_EQ(other.capacity(), 0U);
  ASSERT_TRUE(set.try_reserve(1'000'000));
  ASSERT_TRUE(other.try_reserve(1'000'000));
  EXPECT_TRUE(set.validate());
  EXPECT_EQ(set.take_exact({4000_g, 1_g}).epoch, 2000U);
}

TEST(RangeSetMemory, GrowsALargeSetWithinItsAddresses)
{
  if (RMM_TEST_UNDER_SANITIZER || runs_in_valgrind()) { GTEST_SKIP() << "these take addresses themselves"; }
  range_set set;
  ASSERT_TRUE(set.try_reserve(3000));
  bool grew{};
  {
    no_more_addresses const refusal;
    grew = set.try_reserve(set.capacity() + 1);
  }
  EXPECT_TRUE(grew);
}

// Checks every change around each growth step. The set grows from small to large, splits all chains several times, and moves to
// other addresses.
TEST(RangeSetGrowth, AgreesWithTheModelAroundEachStep)
{
  struct span {
    std::size_t reserved;
    std::size_t checked_from;
    std::size_t end;
  };
#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
  GTEST_SKIP() << "the invariants are checked at each step";
#endif
  constexpr std::size_t stride = 8;
  for (auto const [reserved, checked_from, end] : {span{0, 0, 6000}, span{2049, 16'300, 16'800}}) {
    SCOPED_TRACE(reserved);
    range_set set;
    rmm::test::shadow_ranges model;
    ASSERT_TRUE(set.try_reserve(reserved));
    auto const insert = [&](address_range range, std::uint64_t epoch) {
      ASSERT_TRUE(set.try_reserve(set.count() + 1));
      set.insert(range, epoch);
      model.insert(range, epoch);
    };
    auto const check = [&](char const* step) {
      ASSERT_TRUE(set.validate()) << step << " at " << set.count();
      ASSERT_TRUE(model.matches(set)) << step << " at " << set.count();
    };
    std::size_t growths{};
    for (std::size_t i = 1; set.count() < end; ++i) {
      auto const at       = i * 7919 % 100'003 * stride;  // visits each one once
      auto const capacity = set.capacity();
      bool const is_full  = set.count() == capacity && set.count() >= checked_from;
      if (is_full) { check("full"); }
      insert({(1 + at) * 1_g, (1 + i % 5) * 1_g}, i);
      if (!is_full) { continue; }
      ASSERT_GT(set.capacity(), capacity);
      ++growths;
      check("grown");
      for (std::size_t bytes = 1_g; bytes <= 6_g; bytes += 1_g) {
        auto const front = set.take(bytes);
        if (!front) { continue; }
        static_cast<void>(model.remove({front.begin, bytes}));
        check("taken");
        auto const back = set.take_back(1_g);
        if (back) { static_cast<void>(model.remove({back.begin, 1_g})); }
        check("taken from the back");
        insert({front.begin, bytes}, i);
        check("given back");
        if (back) { insert({back.begin, 1_g}, i); }
        check("given back at the end");
      }
    }
    EXPECT_GE(growths, 3U);
    set.clear();
    EXPECT_TRUE(set.validate());
    EXPECT_EQ(set.count(), 0U);
    insert({7_g, 1_g}, 1);
    insert({8_g, 1_g}, 1);
    EXPECT_EQ(set.count(), 1U) << "chains are right after clear()";
  }
}

TEST(RangeSetGrowth, MovesAllOfALargeSetWhileItsChainsAreSplit)
{
#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
  GTEST_SKIP() << "the invariants are checked at each step";
#endif
  range_set set;
  range_set other;
  rmm::test::shadow_ranges model;
  for (std::size_t i = 1; i <= 7000; ++i) {
    ASSERT_TRUE(set.try_reserve(i));
    set.insert({i * 2_g, 1_g}, i);
    model.insert({i * 2_g, 1_g}, i);
  }
  ASSERT_TRUE(other.try_reserve(set.count()));
  set.move_to(other);
  EXPECT_TRUE(set.empty());
  EXPECT_TRUE(set.validate());
  EXPECT_TRUE(other.validate());
  EXPECT_TRUE(model.matches(other));
}

double thread_seconds()
{
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// A refill cuts from a high range with the lock of the heap. Looking at each of these ranges would take 20 million steps.
TEST(RangeSetGrowth, LooksAtFewOfManyHighRanges)
{
  if (!rmm::test::tells_costs || runs_in_valgrind()) {
    GTEST_SKIP() << "the time of this build is not that of the program";
  }
  constexpr std::size_t ranges = 200'000;
  range_set set;
  ASSERT_TRUE(set.try_reserve(ranges));
  for (std::size_t at = 1; at <= ranges; ++at) { set.insert({at * 1'000_g, 900_g}, 0); }
  auto fastest = 1e9;
  for (int run = 0; run != 5; ++run) {
    auto const begin = thread_seconds();
    for (int i = 0; i != 100; ++i) { ASSERT_TRUE(set.take_highest(1_g)); }
    fastest = std::min(fastest, thread_seconds() - begin);
  }
  EXPECT_LT(fastest, 0.01);
  EXPECT_EQ(set.count(), ranges);
}

// Times a few calls together. If those take less than a millisecond, so does each call. Interrupts can make any call slow, so calls
// count as slow only if they are slow in every run.
TEST(RangeSetGrowth, TakesLessThanAMillisecondPerCallWithAMillionRanges)
{
  if (!rmm::test::tells_costs || runs_in_valgrind()) {
    GTEST_SKIP() << "the time of this build is not that of the program";
  }
  constexpr std::size_t ranges  = 1'000'000;
  constexpr std::size_t at_once = 8;
  constexpr double limit        = 0.001;
  std::vector<double> fastest(2 * ranges / at_once, 1e9);
  double slowest{};
  for (int run = 0; run != 5; ++run) {
    range_set set;
    auto part        = fastest.begin();
    auto const timed = [&](auto&& call) {
      auto const begin = thread_seconds();
      for (std::size_t i = 0; i != at_once; ++i) { call(); }
      *part = std::min(*part, thread_seconds() - begin);
      ++part;
    };
    std::size_t inserted{};
    bool good = true;
    while (inserted != ranges) {
      timed([&] {
        auto const at = inserted++ * 617'411 % ranges + 1;
        good          = good && set.try_reserve(set.count() + 1);
        if (good) { set.insert({at * 16_g, (1 + at % 9) * 1_g}, 0); }
      });
    }
    ASSERT_TRUE(good);
    ASSERT_EQ(set.count(), ranges);
    while (good && part != fastest.end()) {
      timed([&] { good = good && (set.take(9_g) || set.take(5_g) || set.take(1_g)); });
    }
    ASSERT_TRUE(good);
    slowest = *std::max_element(fastest.begin(), fastest.end());
    if (slowest < limit) { break; }
  }
  RecordProperty("slowest_microseconds", std::to_string(slowest * 1e6));
  EXPECT_LT(slowest, limit);
}

TEST_F(RangeSet, KeepsItsRangesWhenItGrows)
{
  std::array<std::uintptr_t, 3> const seams{2_g, 3_g, 4_g};
  seam_list const list{seams.data(), seams.size()};
  for (std::size_t at = 1; at != 5; ++at) { set.insert({at * 1_g, 1_g}, at, &list); }
  ASSERT_TRUE(set.try_reserve(10'000));
  EXPECT_TRUE(set.validate(&list));
  EXPECT_EQ(set.count(), 4U);
  EXPECT_EQ(set.take_exact({3_g, 1_g}).epoch, 3U);
  set.insert({5_g, 1_g}, 9, &list);
  EXPECT_EQ(set.take_exact({4_g, 2_g}).epoch, 9U);  // finds its neighbour
}

TEST_F(RangeSet, TakesFromTheFrontAndKeepsTheRest)
{
  insert(8_g, 5_g);
  EXPECT_EQ(set.take(2_g).begin, 8_g);
  EXPECT_EQ(set.take(3_g).begin, 10_g);
  EXPECT_TRUE(set.empty());
}

TEST_F(RangeSet, CountsRangesAndBytes)
{
  insert(8_g, 5_g);
  insert(20_g, 1_g);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_EQ(set.total_bytes(), 6_g);
  static_cast<void>(set.take(2_g));
  EXPECT_EQ(set.count(), 2U);
  EXPECT_EQ(set.total_bytes(), 4_g);
}

TEST_F(RangeSet, CoalescesWithTheLeftNeighbour)
{
  insert(8_g, 2_g);
  insert(10_g, 3_g);
  EXPECT_EQ(set.count(), 1U);
  EXPECT_EQ(set.take(5_g).begin, 8_g);
}

TEST_F(RangeSet, CoalescesWithTheRightNeighbour)
{
  insert(10_g, 3_g);
  insert(8_g, 2_g);
  EXPECT_EQ(set.count(), 1U);
  EXPECT_EQ(set.take(5_g).begin, 8_g);
}

TEST_F(RangeSet, CoalescesWithBothNeighbours)
{
  insert(8_g, 2_g);
  insert(13_g, 4_g);
  insert(10_g, 3_g);
  EXPECT_EQ(set.count(), 1U);
  EXPECT_EQ(set.take(9_g).begin, 8_g);
}

TEST_F(RangeSet, KeepsSeparateRangesApart)
{
  insert(8_g, 2_g);
  insert(11_g, 2_g);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_FALSE(set.take_good(4_g));
}

TEST_F(RangeSet, NeverCoalescesAcrossASeamOnTheLeft)
{
  std::uintptr_t const seam = 10_g;
  seam_list const seams{&seam, 1};
  set.insert({8_g, 2_g}, 0, &seams);
  set.insert({10_g, 2_g}, 0, &seams);
  set.insert({12_g, 2_g}, 0, &seams);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_EQ(set.largest(), 4_g);
  EXPECT_TRUE(set.validate(&seams));
  EXPECT_FALSE(set.validate());  // fails: without the seam, the ranges must be coalesced
}

TEST_F(RangeSet, NeverCoalescesAcrossASeamOnTheRight)
{
  std::uintptr_t const seam = 10_g;
  seam_list const seams{&seam, 1};
  set.insert({10_g, 2_g}, 0, &seams);
  set.insert({8_g, 2_g}, 0, &seams);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_TRUE(set.validate(&seams));
}

TEST_F(RangeSet, CoalescedRangeHasTheLatestEpochOfItsParts)
{
  for (std::array<std::uint64_t, 3> const epochs : {std::array<std::uint64_t, 3>{9, 5, 3}, {5, 9, 3}, {3, 5, 9}}) {
    insert(8_g, 1_g, epochs[0]);
    insert(10_g, 1_g, epochs[2]);
    insert(9_g, 1_g, epochs[1]);  // coalesces with both neighbours
    EXPECT_EQ(set.take(3_g).epoch, 9U);
  }
}

TEST_F(RangeSet, RangeCoalescedOnOneSideHasTheLaterEpoch)
{
  insert(8_g, 1_g, 4);
  insert(9_g, 1_g, 2);
  EXPECT_EQ(set.take(2_g).epoch, 4U);
  insert(8_g, 1_g, 2);
  insert(9_g, 1_g, 4);
  EXPECT_EQ(set.take(2_g).epoch, 4U);
  insert(9_g, 1_g, 4);
  insert(8_g, 1_g, 2);
  EXPECT_EQ(set.take(2_g).epoch, 4U);
  insert(9_g, 1_g, 2);
  insert(8_g, 1_g, 4);
  EXPECT_EQ(set.take(2_g).epoch, 4U);
}

TEST_F(RangeSet, RestOfARangeKeepsItsEpoch)
{
  insert(8_g, 4_g, 6);
  EXPECT_EQ(set.take(1_g).epoch, 6U);
  EXPECT_EQ(set.take(3_g).epoch, 6U);
}

TEST_F(RangeSet, PrefersAnExactFit)
{
  insert(8_g, 4_g);
  insert(20_g, 2_g);
  insert(30_g, 9_g);
  EXPECT_EQ(set.take(2_g).begin, 20_g);
  EXPECT_EQ(set.take(4_g).begin, 8_g);
}

TEST_F(RangeSet, TakesTheLowerOfTwoEqualRanges)
{
  insert(20_g, 2_g);
  insert(8_g, 2_g);
  EXPECT_EQ(set.take(2_g).begin, 8_g);
  insert(8_g, 2_g);
  EXPECT_EQ(set.take(2_g).begin, 8_g);
}

TEST_F(RangeSet, TakesTheSecondRangeOfABinIfTheFirstIsTooSmall)
{
  insert(1000_g, 1000_g);  // both in one bin
  insert(5000_g, 1001_g);
  EXPECT_EQ(set.take(1001_g).begin, 5000_g);
  EXPECT_EQ(set.take(1000_g).begin, 1000_g);
}

TEST_F(RangeSet, TakeGoodTakesTheBestOfFewRanges)
{
  insert(5000_g, 1001_g);  // all in one bin
  insert(3000_g, 1000_g);
  insert(1000_g, 1001_g);
  EXPECT_EQ(set.good_fit(1000_g), 1000_g);
  EXPECT_EQ(set.take_good(1001_g).begin, 1000_g);
  EXPECT_EQ(set.take_good(1000_g).begin, 3000_g);
  EXPECT_EQ(set.take_good(1000_g).begin, 5000_g);
  EXPECT_FALSE(set.take_good(2_g));
}

TEST_F(RangeSet, TakeGoodLooksAtFewOfManyRanges)
{
  ASSERT_TRUE(set.try_reserve(1001));
  for (std::size_t i = 1; i <= 1000; ++i) { insert(i * 10_g, 4_g); }
  EXPECT_EQ(set.take_good(4_g).begin, 10_g) << "the first of its bin";
  EXPECT_NE(set.take_good(4_g).begin, 20_g) << "that is found only by looking at all";
  insert(20'000_g, 500_g);
  EXPECT_EQ(set.take_good(5_g).begin, 20'000_g);
}

TEST_F(RangeSet, TakeGoodFindsARangeBehindManyTooSmallOnes)
{
  ASSERT_TRUE(set.try_reserve(1001));
  insert(1000_g, 1001_g);  // all in one bin, the fitting one last
  for (std::size_t i = 1; i <= 1000; ++i) { insert((i + 1) * 2000_g, 1000_g); }
  EXPECT_EQ(set.good_fit(1001_g), 1001_g);
  EXPECT_EQ(set.take_good(1001_g).begin, 1000_g);
  EXPECT_FALSE(set.take_good(1001_g));
}

TEST_F(RangeSet, TakeMayMissWhatTakeGoodFinds)
{
  insert(1000_g, 1000_g);  // all in one bin
  insert(3000_g, 1001_g);
  insert(5000_g, 1000_g);
  EXPECT_FALSE(set.take(1001_g));
  EXPECT_EQ(set.take_good(1001_g).begin, 3000_g);
}

TEST_F(RangeSet, TakeGoodWastesLittleOfTheNextLargerRange)
{
  insert(1000_g, 100_g);
  insert(2000_g, 200_g);
  insert(3000_g, 400_g);
  EXPECT_EQ(set.take(110_g).begin, 2000_g);
}

TEST_F(RangeSet, TakesTheWholeSetAtOnce)
{
  for (auto const bytes : {1_g, 31_g, 32_g, 33_g, 64_g, 12345_g, (1_g << 20U) + 1_g, (1_g << 39U) + 3_g}) {
    insert(8_g, bytes);
    EXPECT_EQ(set.take(bytes).begin, 8_g) << bytes;
    EXPECT_TRUE(set.validate());
  }
}

TEST_F(RangeSet, HoldsARangeOfAllAddresses)
{
  auto const bytes = range_set::largest_range;
  insert(1_g, bytes);
  EXPECT_FALSE(set.take(range_set::no_limit));
  EXPECT_FALSE(set.take_back(range_set::no_limit));
  EXPECT_FALSE(set.take_good(range_set::no_limit));
  EXPECT_FALSE(set.take_highest(range_set::no_limit));
  EXPECT_TRUE(set.validate());
  EXPECT_EQ(set.largest(), bytes);
  EXPECT_FALSE(set.take(bytes + 1_g));
  EXPECT_EQ(set.take(bytes).begin, 1_g);
}

TEST_F(RangeSet, NeedsNoAlignment)
{
  insert(1001, 2_g);
  insert(1001 + 2_g, 1_g);
  EXPECT_EQ(set.take(3_g).begin, 1001U);
}

TEST_F(RangeSet, TakeGoodTakesTheLowestOfEqualRanges)
{
  insert(300_g, 2_g);
  insert(100_g, 2_g);
  insert(200_g, 2_g);
  EXPECT_EQ(set.take_good(2_g).begin, 100_g);
  EXPECT_EQ(set.take_good(1_g).begin, 200_g);
  EXPECT_EQ(set.take_good(1_g).begin, 201_g);
}

TEST_F(RangeSet, TakeUpToTakesTheLargestRange)
{
  insert(100_g, 2_g, 1);
  insert(200_g, 5_g, 2);
  insert(300_g, 3_g, 3);
  auto const result = set.take_up_to(100_g);
  EXPECT_EQ(result.range, (address_range{200_g, 5_g}));
  EXPECT_EQ(result.epoch, 2U);
}

TEST_F(RangeSet, TakeUpToTakesAtMostTheLimit)
{
  insert(200_g, 5_g);
  EXPECT_EQ(set.take_up_to(2_g).range, (address_range{200_g, 2_g}));
  EXPECT_EQ(set.total_bytes(), 3_g);
}

TEST_F(RangeSet, TakeExactTakesFromTheFrontTheBackAndTheMiddle)
{
  insert(100_g, 10_g, 4);
  EXPECT_EQ(set.take_exact({100_g, 2_g}).begin, 100_g);
  EXPECT_EQ(set.take_exact({108_g, 2_g}).begin, 108_g);
  EXPECT_EQ(set.take_exact({104_g, 2_g}).epoch, 4U);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_EQ(set.total_bytes(), 4_g);
  EXPECT_TRUE(set.validate());
}

TEST_F(RangeSet, TakeExactTakesAllOrNothing)
{
  insert(100_g, 4_g);
  EXPECT_FALSE(set.take_exact({99_g, 2_g}));
  EXPECT_FALSE(set.take_exact({100_g, 5_g}));
  EXPECT_FALSE(set.take_exact({103_g, 2_g}));
  EXPECT_FALSE(set.take_exact({98_g, 6_g}));
  EXPECT_EQ(set.total_bytes(), 4_g);
}

TEST_F(RangeSet, MovesAllRangesAndCoalescesThem)
{
  range_set other;
  ASSERT_TRUE(other.try_reserve(3));
  other.insert({102_g, 1_g}, 9);
  insert(100_g, 2_g, 1);
  insert(103_g, 1_g, 2);
  set.move_to(other);
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.total_bytes(), 0U);
  EXPECT_EQ(other.count(), 1U);
  EXPECT_EQ(other.take(4_g).epoch, 9U);
}

TEST_F(RangeSet, IsEmptyAfterClear)
{
  insert(100_g, 2_g);
  insert(200_g, 3_g);
  static_cast<void>(set.take(3_g));
  auto const capacity = set.capacity();
  set.clear();
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.capacity(), capacity);
  EXPECT_FALSE(set.take(1_g));
  EXPECT_TRUE(set.validate());
  insert(102_g, 2_g);  // finds no neighbour
  EXPECT_EQ(set.count(), 1U);
  EXPECT_EQ(set.largest(), 2_g);
}

TEST_F(RangeSet, KnowsItsLargestRangeExactly)
{
  insert(1000_g, 1000_g);
  insert(3000_g, 1002_g);
  insert(5000_g, 1001_g);
  EXPECT_EQ(set.largest(), 1002_g);
}

TEST_F(RangeSet, VisitsEachRangeOnce)
{
  insert(100_g, 2_g, 3);
  insert(200_g, 3_g, 4);
  std::vector<address_range> visited;
  std::uint64_t epochs{};
  set.for_each([&](address_range range, std::uint64_t epoch) {
    visited.push_back(range);
    epochs += epoch;
  });
  EXPECT_EQ(visited.size(), 2U);
  EXPECT_EQ(epochs, 7U);
}

TEST_F(RangeSet, ReachesItsCapacity)
{
  auto const capacity = set.capacity();
  for (std::size_t at = 1; at <= capacity; ++at) { insert(at * 2_g, 1_g); }
  EXPECT_EQ(set.count(), capacity);
  EXPECT_TRUE(set.validate());
}

TEST_F(RangeSet, JoinsWithNeighboursWhenItIsFull)
{
  auto const capacity = set.capacity();
  for (std::size_t at = 1; at <= capacity; ++at) { insert(at * 2_g, 1_g); }
  insert(3_g, 1_g);
  EXPECT_EQ(set.count(), capacity - 1);
  EXPECT_TRUE(set.validate());
}

TEST_F(RangeSet, FindsNeighboursInConstantTimeAmongAddressesAtEvenDistances)
{
  constexpr std::size_t ranges   = 200'000;  // with one hash chain, this would take minutes
  constexpr std::size_t distance = std::size_t{1} << 21U;
  ASSERT_TRUE(set.try_reserve(ranges + 1));
#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
  GTEST_SKIP() << "the invariants are checked at each step";
#endif
  for (std::size_t at = 1; at <= ranges; ++at) { insert(at * distance, distance / 2); }
  for (std::size_t at = 1; at <= ranges; ++at) { insert(at * distance + distance / 2, distance / 2); }
  EXPECT_EQ(set.count(), 1U);
  EXPECT_EQ(set.largest(), ranges * distance);
}

TEST_F(RangeSet, FindsTheRangeThatBeginsOrEndsAtAnAddress)
{
  EXPECT_FALSE(range_set{}.range_beginning_at(100_g));
  EXPECT_FALSE(range_set{}.range_ending_at(100_g));
  ASSERT_TRUE(set.try_reserve(1));
  set.insert({100_g, 2_g}, 7);
  auto const found = set.range_beginning_at(100_g);
  EXPECT_EQ(found.range.bytes, 2_g);
  EXPECT_EQ(found.epoch, 7U);
  EXPECT_EQ(set.range_ending_at(102_g).range.begin, 100_g);
  EXPECT_FALSE(set.range_beginning_at(102_g));
  EXPECT_FALSE(set.range_ending_at(100_g));
}

TEST_F(RangeSet, VisitsTheRangesOfAtLeastASize)
{
  ASSERT_TRUE(set.try_reserve(100));
  for (std::size_t granules = 1; granules <= 300; granules += 3) { insert(granules * 1'000_g, granules * 1_g); }
  for (auto least : {1U, 2U, 64U, 100U, 151U, 298U, 299U}) {
    std::size_t visited{};
    set.for_each_of_at_least(least * 1_g, [&](auto const& found) {
      ++visited;
      EXPECT_GE(found.range.bytes, least * 1_g);
    });
    EXPECT_EQ(visited, least <= 298 ? (298 - least) / 3 + 1 : 0) << least;
  }
  range_set{}.for_each_of_at_least(1_g, [](auto const&) { FAIL(); });
}

TEST_F(RangeSet, KnowsWhetherARangeHasSoManyBytes)
{
  EXPECT_FALSE(range_set{}.has_range_of(0));  // without host memory
  EXPECT_FALSE(set.has_range_of(1_g));
  ASSERT_TRUE(set.try_reserve(3));
  insert(1'000_g, 3'001_g);  // in a bin with ranges of similar size
  insert(10'000_g, 3'003_g);
  insert(100_g, 2_g);
  EXPECT_TRUE(set.has_range_of(1_g));
  EXPECT_TRUE(set.has_range_of(3'003_g));
  EXPECT_FALSE(set.has_range_of(3'004_g));
  EXPECT_FALSE(set.has_range_of(6'006_g));
}

TEST_F(RangeSet, MovesTheLargestRangesFirst)
{
  ASSERT_TRUE(set.try_reserve(10));
  for (std::size_t granules = 1; granules <= 10; ++granules) {
    set.insert({granules * 100_g, granules * 1_g}, granules);
  }
  range_set other;
  ASSERT_TRUE(other.try_reserve(10));
  EXPECT_FALSE(set.move_to(other, nullptr, 3));
  EXPECT_EQ(set.largest(), 7_g);
  EXPECT_EQ(set.total_bytes(), 28_g);
  EXPECT_EQ(other.total_bytes(), 27_g);
  EXPECT_EQ(other.range_beginning_at(800_g).epoch, 8U);
  EXPECT_TRUE(set.move_to(other, nullptr, 7, 99));
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(other.range_beginning_at(700_g).epoch, 99U);
  EXPECT_TRUE(set.move_to(other));
  EXPECT_TRUE(other.validate());
}

TEST_F(RangeSet, TakesFromTheMiddleOfARangeThatBeginsAtAnAddress)
{
  ASSERT_TRUE(set.try_reserve(4));
  insert(100_g, 9_g);
  EXPECT_TRUE(set.take_exact({103_g, 2_g}, 100_g));
  EXPECT_TRUE(set.validate());
  EXPECT_EQ(set.range_beginning_at(100_g).range.bytes, 3_g);
  EXPECT_EQ(set.range_beginning_at(105_g).range.bytes, 4_g);
  EXPECT_FALSE(set.take_exact({102_g, 2_g}, 100_g));  // extends beyond the range
}

TEST_F(RangeSet, TakesAllOfALargerSet)
{
  range_set other;
  ASSERT_TRUE(other.try_reserve(11));
  for (std::size_t at = 1; at <= 10; ++at) { other.insert({at * 100_g, 2_g}, at); }
  ASSERT_TRUE(set.try_reserve(1));
  set.insert({502_g, 3_g}, 70);
  set.take_all_of(other);
  EXPECT_TRUE(other.empty());
  EXPECT_TRUE(other.validate());
  EXPECT_TRUE(set.validate());
  EXPECT_EQ(set.count(), 10U);
  EXPECT_EQ(set.total_bytes(), 23_g);
  EXPECT_EQ(set.range_beginning_at(500_g).range.bytes, 5_g);
  EXPECT_EQ(set.range_beginning_at(500_g).epoch, 70U);
  EXPECT_EQ(set.range_beginning_at(900_g).epoch, 9U);
  set.insert({1_g, 1_g}, 0);  // still has the capacity of the larger set
  ASSERT_TRUE(other.try_reserve(1));
  other.insert({1_g, 1_g}, 0);
  EXPECT_TRUE(other.validate());
}

TEST_F(RangeSet, VisitsEachRangeOfASetThatWasMuchLarger)
{
  ASSERT_TRUE(set.try_reserve(5'000));
  for (std::size_t at = 1; at <= 5'000; ++at) { insert(at * 10_g, 1_g + at % 3 * 1_g); }
  for (std::size_t at = 1; at <= 5'000; ++at) {
    if (at % 1000 != 7) { ASSERT_TRUE(set.take_exact({at * 10_g, 1_g + at % 3 * 1_g})); }
  }
  std::vector<std::uintptr_t> found;
  set.for_each([&](address_range range, std::uint64_t) { found.push_back(range.begin / 10_g); });
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::uintptr_t>{7, 1007, 2007, 3007, 4007}));
  range_set other;
  ASSERT_TRUE(other.try_reserve(5));
  EXPECT_TRUE(set.move_to(other));
  EXPECT_EQ(other.count(), 5U);
  EXPECT_TRUE(set.empty());
  EXPECT_TRUE(set.validate());
  insert(7_g, 1_g);
  EXPECT_TRUE(set.validate());
}

TEST_F(RangeSet, VisitsAFewRangesPerCallAndAllInTurn)
{
  ASSERT_TRUE(set.try_reserve(10));
  for (std::size_t at = 1; at <= 10; ++at) { insert(at * 10_g, 1_g); }
  ASSERT_TRUE(set.take_exact({50_g, 1_g}));
  std::size_t next{};
  std::vector<std::size_t> counts;
  std::vector<std::uintptr_t> found;
  for (int turn = 0; turn != 4; ++turn) {
    auto const before = found.size();
    set.for_some(next, 4, [&](address_range range, std::uint64_t) { found.push_back(range.begin / 10_g); });
    counts.push_back(found.size() - before);
  }
  EXPECT_EQ(counts, (std::vector<std::size_t>{4, 3, 2, 4}));  // wraps around to the first
  std::sort(found.begin(), found.begin() + 9);
  EXPECT_EQ(std::unique(found.begin(), found.begin() + 9), found.begin() + 9);
}

TEST_F(RangeSet, BoundsTheBytesOfSoManyRanges)
{
  EXPECT_EQ(set.most_bytes_of(3), 0U);
  ASSERT_TRUE(set.try_reserve(1'000));
  insert(10_g, 700_g);
  insert(1'000_g, 500_g);
  insert(2'000_g, 30_g);
  EXPECT_EQ(set.most_bytes_of(0), 0U);
  EXPECT_EQ(set.most_bytes_of(1), 700_g);
  EXPECT_EQ(set.most_bytes_of(2), 1'200_g);
  EXPECT_EQ(set.most_bytes_of(9), 1'230_g);
  for (std::size_t at = 0; at != 900; ++at) { insert(100'000_g + at * 2'000_g, 1'000_g + at % 7 * 1_g); }
  for (std::size_t count : {1U, 10U, 64U, 65U, 200U, 900U, 903U}) {
    auto const bound = set.most_bytes_of(count);
    EXPECT_GE(bound, std::min(count * 1'000_g, set.total_bytes())) << count;  // 1,000 to 1,006 granules each
    EXPECT_LE(bound, std::min(count * 1'007_g, set.total_bytes())) << count;
  }
  EXPECT_EQ(set.most_bytes_of(903), set.total_bytes());
}

TEST_F(RangeSet, ReturnsASizeThatFewRangesExceed)
{
  EXPECT_EQ(set.size_of_all_but(0), 0U);
  ASSERT_TRUE(set.try_reserve(100));
  for (std::size_t i = 1; i != 51; ++i) { insert(i * 100_g, i * 1_g); }
  EXPECT_EQ(set.size_of_all_but(0), 50_g);
  EXPECT_EQ(set.size_of_all_but(10), 40_g);
  EXPECT_EQ(set.size_of_all_but(49), 1_g);
  EXPECT_EQ(set.size_of_all_but(50), 0U);
  insert(10'000_g, 1'000'000_g);
  EXPECT_GE(set.size_of_all_but(0), 1'000'000_g);
  EXPECT_LT(set.size_of_all_but(0), 1'040'000_g);
  EXPECT_EQ(set.size_of_all_but(1), 50_g);
}

#if RMM_ASSERTIONS_ENABLED
using RangeSetDeathTest = RangeSet;

TEST_F(RangeSetDeathTest, RefusesARangeThatIsFreeAlready)
{
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  insert(100_g, 2_g);
  EXPECT_DEATH(insert(100_g, 2_g), "Assertion");
}

TEST_F(RangeSetDeathTest, RefusesMoreRangesThanItHasMemoryFor)
{
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (std::size_t at = 1; at <= set.capacity(); ++at) { insert(at * 2_g, 1_g); }
  EXPECT_DEATH(insert(1'000'000_g, 1_g), "Assertion");
}
#endif

static_assert(!std::is_copy_constructible_v<range_set>);
static_assert(std::is_nothrow_default_constructible_v<range_set>);

}  // namespace
