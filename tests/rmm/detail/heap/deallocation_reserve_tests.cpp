// SPDX-License-Identifier: Apache-2.0

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/deallocation_reserve.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::deallocation_reserve;

TEST(DeallocationReserve, CountsClaims)
{
  deallocation_reserve reserve;
  EXPECT_EQ(reserve.claimed(), 0U);
  ASSERT_TRUE(reserve.try_claim(3));
  ASSERT_TRUE(reserve.try_claim(2));
  reserve.release(4);
  EXPECT_EQ(reserve.claimed(), 1U);
}

TEST(DeallocationReserve, RefusesClaimsWithoutHostMemory)
{
  deallocation_reserve reserve;
  ASSERT_TRUE(reserve.try_claim(1));
  EXPECT_FALSE(reserve.try_claim(std::numeric_limits<std::size_t>::max() / 16));
  EXPECT_EQ(reserve.claimed(), 1U);
}

TEST(DeallocationReserve, KeepsBlocksUntilTheyAreTaken)
{
  deallocation_reserve reserve;
  ASSERT_TRUE(reserve.try_claim(3));
  reserve.put({4096, 256});
  reserve.put({8192, 512});
  EXPECT_EQ(reserve.waiting(), 2U);
  EXPECT_EQ(reserve.waiting_bytes(), 768U);
  std::vector<address_range> seen;
  reserve.for_each([&](address_range block) { seen.push_back(block); });
  EXPECT_EQ(seen.size(), 2U);
  reserve.take([](address_range) { return true; });
  EXPECT_EQ(reserve.waiting(), 0U);
  EXPECT_EQ(reserve.waiting_bytes(), 0U);
  EXPECT_EQ(reserve.claimed(), 1U) << "the blocks have returned their claims";
}

TEST(DeallocationReserve, StopsAtABlockThatIsRefused)
{
  deallocation_reserve reserve;
  ASSERT_TRUE(reserve.try_claim(3));
  for (std::uintptr_t i = 1; i <= 3; ++i) { reserve.put({4096 * i, 256}); }
  int taken = 0;
  reserve.take([&](address_range) { return ++taken < 3; });
  EXPECT_EQ(reserve.waiting(), 1U);
  EXPECT_EQ(reserve.claimed(), 1U);
  EXPECT_EQ(reserve.waiting_bytes(), 256U);
}

TEST(DeallocationReserve, AnyThreadMayReturnAClaim)
{
  deallocation_reserve reserve;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        ASSERT_TRUE(reserve.try_claim(2));
        reserve.release(2);
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(reserve.claimed(), 0U);
}

TEST(DeallocationReserve, HasAPlaceForEachClaimWhileThreadsTakeThem)
{
  deallocation_reserve reserve;
  std::atomic<int> running{4};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 2000; ++n) {
        EXPECT_TRUE(reserve.try_claim(3));
        reserve.put({4096, 256});
        reserve.release(1);
      }
      --running;
    });
  }
  while (running != 0) { EXPECT_TRUE(reserve.check_invariants()); }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(reserve.claimed(), 16'000U);
  EXPECT_EQ(reserve.waiting(), 8'000U);
  EXPECT_TRUE(reserve.check_invariants());
}

}  // namespace
