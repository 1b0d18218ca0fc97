// SPDX-License-Identifier: Apache-2.0
#include "../../../support/recycling_upstream.hpp"

#include <rmm/detail/base/byte_budget.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <limits>

namespace {

using rmm::detail::byte_budget;

TEST(ByteBudget, GrantsExactlyItsLimit)
{
  byte_budget budget{100};
  EXPECT_TRUE(budget.try_reserve(60));
  EXPECT_TRUE(budget.try_reserve(40));
  EXPECT_EQ(budget.used(), 100U);
  EXPECT_FALSE(budget.try_reserve(1));
  EXPECT_EQ(budget.used(), 100U);
}

TEST(ByteBudget, ReturnedBytesCanBeTakenAgain)
{
  byte_budget budget{100};
  EXPECT_TRUE(budget.try_reserve(60));
  budget.release(60);
  EXPECT_TRUE(budget.try_reserve(100));
}

TEST(ByteBudget, DoesNotWrapForHugeRequests)
{
  byte_budget budget{100};
  EXPECT_TRUE(budget.try_reserve(1));
  EXPECT_FALSE(budget.try_reserve(std::numeric_limits<std::size_t>::max()));
  EXPECT_EQ(budget.used(), 1U);
}

TEST(ByteBudget, ReturnsBeyondWhatWasTakenBecomeRoom)
{
  byte_budget budget{100};
  budget.release(50);
  EXPECT_FALSE(budget.try_reserve(151));
  EXPECT_TRUE(budget.try_reserve(150));
  EXPECT_EQ(budget.used(), 100U);
}

TEST(ByteBudget, CountsConcurrentRequests)
{
  constexpr std::size_t each = 500'000;
  byte_budget budget{4 * each};
  rmm::test::run_on_threads(4, [&](int) {
    std::size_t taken = 0;
    while (taken != each && budget.try_reserve(1)) { ++taken; }
    EXPECT_EQ(taken, each);
  });
  EXPECT_FALSE(budget.try_reserve(1));
}

TEST(ByteBudget, NeverRefusesARequestThatFits)
{
  byte_budget budget{8 * 10};
  std::atomic<int> refused{0};
  rmm::test::run_on_threads(8, [&](int) {
    for (int i = 0; i < 20000; ++i) {
      if (budget.try_reserve(10)) {
        budget.release(10);
      } else {
        ++refused;
      }
      if (budget.try_reserve(81)) { ++refused; }
    }
  });
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
