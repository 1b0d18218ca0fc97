// SPDX-License-Identifier: Apache-2.0
#include <tools/nvtx/range_stack.hpp>

#include "../support/seeds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

namespace {

using rmm::tools::range_stack;

constexpr std::uint32_t one = 1, other = 2;  // domains

struct RangeStack : ::testing::Test {
  void push(std::uint32_t domain, std::uint32_t tag) { stack.push(current, domain, tag); }
  void pop(std::uint32_t domain) { stack.pop(current, domain); }
  void expect_unchanged() const
  {
    EXPECT_EQ(current, 0U);
    EXPECT_EQ(stack.size(), 0U);
  }

  range_stack stack{};
  std::uint32_t current{0};
};

TEST_F(RangeStack, RestoresTheTagBeforeARange)
{
  push(one, 11);
  EXPECT_EQ(current, 11U);
  push(one, 12);
  EXPECT_EQ(current, 12U);
  pop(one);
  EXPECT_EQ(current, 11U);
  pop(one);
  expect_unchanged();
}

TEST_F(RangeStack, KeepsTheTagInARangeWithoutAName)
{
  push(one, 11);
  push(one, 0);
  EXPECT_EQ(current, 11U);
  pop(one);
  EXPECT_EQ(current, 11U);
  pop(one);
  expect_unchanged();
}

TEST_F(RangeStack, IgnoresPopsWithoutARange)
{
  pop(one);
  expect_unchanged();
  push(one, 11);
  pop(other);
  EXPECT_EQ(current, 11U);
  pop(one);
  pop(one);
  pop(one);
  expect_unchanged();
  push(one, 12);
  EXPECT_EQ(current, 12U);
}

TEST_F(RangeStack, LetsRangesOfTwoDomainsOverlap)
{
  push(one, 11);
  push(other, 21);
  push(one, 12);
  pop(other);
  EXPECT_EQ(current, 12U);
  pop(one);
  EXPECT_EQ(current, 11U);
  pop(one);
  expect_unchanged();
}

TEST_F(RangeStack, LeavesATagScopeThatBeganInTheRange)
{
  push(one, 11);
  auto const before = std::exchange(current, 99U);  // what a tag scope does
  push(one, 12);
  pop(one);
  EXPECT_EQ(current, 99U);
  pop(one);
  EXPECT_EQ(current, 99U);
  current = before;  // what its end does: the tag of a range that has ended
  push(one, 13);
  pop(one);
  expect_unchanged();
}

TEST_F(RangeStack, LeavesATagScopeThatBeganBetweenRangesOfTwoDomains)
{
  push(one, 11);
  auto const before = std::exchange(current, 99U);
  push(other, 21);
  pop(one);
  EXPECT_EQ(current, 21U);
  pop(other);
  EXPECT_EQ(current, 99U);
  current = before;
  pop(one);
  expect_unchanged();
}

TEST_F(RangeStack, LeavesTheTagIfATagScopeEndedInTheRange)
{
  auto const before = std::exchange(current, 99U);
  push(one, 11);
  current = before;
  pop(one);
  EXPECT_EQ(current, 0U);
  push(one, 12);
  pop(one);
  expect_unchanged();
}

TEST_F(RangeStack, TreatsTheOldestOfManyRangesAsOne)
{
  constexpr std::uint32_t many = 10 * range_stack::capacity;
  for (std::uint32_t tag = 1; tag <= many; ++tag) {
    push(one, tag);
    ASSERT_EQ(current, tag);
    ASSERT_LE(stack.size(), range_stack::capacity);
  }
  for (std::uint32_t tag = many; tag > many - range_stack::capacity / 2; --tag) {
    ASSERT_EQ(current, tag);
    pop(one);
  }
  for (std::uint32_t left = many - range_stack::capacity / 2; left != 1; --left) {
    pop(one);
    ASSERT_NE(current, 0U);
  }
  pop(one);
  expect_unchanged();
}

TEST_F(RangeStack, WorksAfterRangesThatNeverEnd)
{
  for (std::uint32_t tag = 1; tag <= 1000; ++tag) {
    push(one, tag);
    push(other, 2000);
    EXPECT_EQ(current, 2000U);
    pop(other);
    EXPECT_EQ(current, tag);
  }
}

TEST_F(RangeStack, HasRoomAfterManyRangesThatEndedUnderTagScopes)
{
  push(one, 11);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    push(one, 12);
    current = 100 + i;
    pop(one);
    EXPECT_EQ(current, 100 + i);
    ASSERT_LE(stack.size(), range_stack::capacity);
  }
}

/// Ranges of a few domains in any order, against a list that is searched as the contract says.
void compare_with_a_list(std::uint64_t seed)
{
  std::mt19937_64 random{seed};
  range_stack stack{};
  std::uint32_t current{0};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open;  // domain and tag
  for (int step = 0; step < 10'000; ++step) {
    auto const domain = static_cast<std::uint32_t>(random() % 4);
    if (open.size() < range_stack::capacity && random() % 2 == 0) {
      auto const tag = static_cast<std::uint32_t>(1 + random() % 5);
      stack.push(current, domain, tag);
      open.emplace_back(domain, tag);
    } else {
      stack.pop(current, domain);
      auto const last =
        std::find_if(open.rbegin(), open.rend(), [&](auto const& each) { return each.first == domain; });
      if (last != open.rend()) { open.erase(std::next(last).base()); }
    }
    ASSERT_EQ(current, open.empty() ? 0U : open.back().second) << "step " << step;
    ASSERT_EQ(stack.size(), open.size());
  }
}

TEST_F(RangeStack, DoesWhatAListOfOpenRangesSays) { rmm::test::for_each_seed(20, compare_with_a_list); }

}  // namespace
