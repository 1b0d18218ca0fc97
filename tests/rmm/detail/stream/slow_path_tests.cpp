// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stream/slow_path.hpp>

#include <rmm/detail/cuda/device.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace {

using rmm::detail::slow_path;

/// Returns a handle that is not a default stream's.
[[nodiscard]] cudaStream_t plain() { return reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1000}); }  // NOLINT

TEST(SlowPath, TakesNoCallsInitially)
{
  slow_path const slow;
  EXPECT_FALSE(slow.takes_allocation(plain()));
  EXPECT_FALSE(slow.takes_deallocation(plain()));
  EXPECT_FALSE(slow.has(slow_path::any));
}

TEST(SlowPath, TakesDefaultStreamsWithSeveralDevices)
{
  slow_path const slow;
  for (auto* const stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
    EXPECT_EQ(slow.takes_allocation(stream), !rmm::detail::sees_one_device());
    EXPECT_EQ(slow.takes_deallocation(stream), !rmm::detail::sees_one_device());
    EXPECT_EQ(slow.is_ambiguous(stream), !rmm::detail::sees_one_device());
  }
  EXPECT_FALSE(slow.is_ambiguous(plain()));
}

TEST(SlowPath, TakesAllCallsWhileAReasonIsSet)
{
  slow_path slow;
  for (auto const why : {slow_path::captures_announced, slow_path::checks_captures, slow_path::owner_asks}) {
    slow.set(why, true);
    EXPECT_TRUE(slow.takes_allocation(plain()));
    EXPECT_TRUE(slow.takes_deallocation(plain()));
    EXPECT_EQ(slow.reasons_for(slow_path::any_to_allocate, plain()), why);
    slow.set(why, false);
    EXPECT_FALSE(slow.takes_allocation(plain()));
    EXPECT_FALSE(slow.takes_deallocation(plain()));
  }
}

TEST(SlowPath, TakesOnlyDeallocationsForGraphMemory)
{
  slow_path slow;
  slow.set(slow_path::has_graph_memory, true);
  EXPECT_FALSE(slow.takes_allocation(plain()));
  EXPECT_TRUE(slow.takes_deallocation(plain()));
  EXPECT_EQ(slow.reasons_for(slow_path::any_to_allocate, plain()), 0U);
  EXPECT_EQ(slow.reasons_for(slow_path::any, plain()), slow_path::has_graph_memory);
}

TEST(SlowPath, NeverAsksTheLegacyStreamForCaptures)
{
  slow_path slow;
  slow.set(slow_path::checks_captures, true);
  EXPECT_TRUE(slow.asks_for_captures());
  EXPECT_EQ(slow.reasons_for(slow_path::any, cudaStreamLegacy), 0U);
  EXPECT_EQ(slow.reasons_for(slow_path::any, plain()), slow_path::checks_captures);
  slow.set(slow_path::owner_asks, true);
  EXPECT_EQ(slow.reasons_for(slow_path::any, cudaStreamLegacy), slow_path::owner_asks);
}

/// P1 must hold whichever thread sets its reason last.
TEST(SlowPath, KeepsFloorsRightWhenThreadsSetReasonsConcurrently)
{
  for (int turn = 0; turn != 200; ++turn) {
    slow_path slow;
    std::atomic<bool> go{false};
    auto const toggle = [&](slow_path::reason why, bool last) {
      while (!go.load()) { std::this_thread::yield(); }
      for (int i = 0; i != 20; ++i) { slow.set(why, i % 2 == 0); }
      slow.set(why, last);
    };
    std::thread first{toggle, slow_path::owner_asks, turn % 2 == 0};
    std::thread second{toggle, slow_path::has_graph_memory, turn % 3 == 0};
    go.store(true);
    first.join();
    second.join();
    EXPECT_EQ(slow.takes_allocation(plain()), turn % 2 == 0);
    EXPECT_EQ(slow.takes_deallocation(plain()), turn % 2 == 0 || turn % 3 == 0);
  }
}

}  // namespace
