// SPDX-License-Identifier: Apache-2.0

#include "../../../support/recycling_upstream.hpp"

#include <rmm/mr/detail/outstanding_allocations.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace {

using rmm::test::run_on_threads;
using ::testing::Pair;

struct info {
  std::size_t allocation_size;
};

using tested = rmm::mr::detail::outstanding_allocations<info>;

void* address(std::size_t number)
{
  return reinterpret_cast<void*>(256 * (number + 1));  // NOLINT
}

std::vector<void*> addresses_in(tested const& all)
{
  std::vector<void*> found;
  all.for_each([&](void* ptr, info const&) { found.push_back(ptr); });
  return found;
}

TEST(OutstandingAllocations, AreListedByAddress)
{
  tested all;
  for (std::size_t i = 0; i != 200; ++i) { all.add(address(i * 71 % 200), {1}); }
  auto const found = addresses_in(all);
  EXPECT_EQ(found.size(), 200U);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
}

TEST(OutstandingAllocations, StayInTheTableThatWasAskedFor)
{
  tested all;
  for (std::size_t i = 0; i != 100; ++i) { all.add(address(i), {1}); }
  auto const& table = all.whole_table();
  EXPECT_EQ(table.size(), 100U);
  all.add(address(100), {2});
  EXPECT_THAT(all.remove(address(7)), Pair(1U, true));
  EXPECT_EQ(table.size(), 100U);
  EXPECT_EQ(table.count(address(7)), 0U);
  EXPECT_EQ(table.at(address(100)).allocation_size, 2U);
  EXPECT_EQ(all.bytes(), 101U);
  EXPECT_EQ(&all.whole_table(), &table);
}

TEST(OutstandingAllocations, AreReplacedAtTheSameAddress)
{
  tested all;
  all.add(address(1), {100});
  all.add(address(1), {30});
  EXPECT_EQ(all.bytes(), 30U);
  EXPECT_THAT(all.remove(address(1)), Pair(30U, true));
  EXPECT_THAT(all.remove(address(1)), Pair(0U, false));
  EXPECT_EQ(all.bytes(), 0U);
}

/// Each free decreases the sum, even of an unknown block, but never below 0.
TEST(OutstandingAllocations, HaveTheSumOfAPlainCounter)
{
  tested all;
  std::map<void*, std::size_t> live;
  std::size_t sum{};
  std::mt19937_64 random{1};
  for (int i = 0; i != 20'000; ++i) {
    void* const ptr  = address(random() % 50);
    auto const bytes = static_cast<std::size_t>(random() % 1000 + 1);
    auto const found = live.find(ptr);
    if (found != live.end()) {
      EXPECT_THAT(all.remove(ptr), Pair(found->second, true));
      sum -= std::min(sum, found->second);
      live.erase(found);
    } else if (random() % 8 == 0) {
      EXPECT_THAT(all.remove(ptr), Pair(0U, false));
      all.subtract(bytes);
      sum -= std::min(sum, bytes);
    } else {
      all.add(ptr, {bytes});
      live.emplace(ptr, bytes);
      sum += bytes;
    }
    ASSERT_EQ(all.bytes(), sum);
    if (i == 10'000) { EXPECT_EQ(all.whole_table().size(), live.size()); }
  }
}

TEST(OutstandingAllocations, AreFoundWhileTheirTableIsAskedFor)
{
  tested all;
  run_on_threads(4, [&](int number) {
    for (std::size_t i = 0; i != 2000; ++i) {
      void* const ptr = address(4 * i + static_cast<std::size_t>(number));
      all.add(ptr, {10});
      if (number == 0 && i == 1000) { static_cast<void>(all.whole_table()); }
      if (i % 2 == 0) { EXPECT_THAT(all.remove(ptr), Pair(10U, true)); }
    }
  });
  EXPECT_EQ(all.whole_table().size(), 4000U);
  EXPECT_EQ(all.bytes(), 40'000U);
}

}  // namespace
