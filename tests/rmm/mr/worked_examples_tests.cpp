// SPDX-License-Identifier: Apache-2.0

// Stacks of resources, step by step: which request is granted, and what it leaves for the next one.

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <gtest/gtest.h>

#include <cstddef>

namespace {

using rmm::mr::cuda_memory_resource;
using limiter = rmm::mr::limiting_resource_adaptor<cuda_memory_resource>;
using pool    = rmm::mr::pool_memory_resource<limiter>;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

struct WorkedExamples : ::testing::Test {
  cuda_memory_resource cuda;
  limiter limited{&cuda, 6000};
};

TEST_F(WorkedExamples, APoolWithoutAMaximumHalvesRequestsUntilOneIsGranted)
{
  pool mr{&limited, 0};
  void* const first = mr.allocate(1000);
  EXPECT_EQ(limited.get_allocated_bytes(), 1024U);
  void* const second = mr.allocate(4000);
  EXPECT_EQ(limited.get_allocated_bytes(), 5120U);
  void* const third = mr.allocate(500);  // 5120, 2560 and 1280 are refused; 640 is rounded up to 768
  EXPECT_EQ(mr.pool_size(), 5760U);
  EXPECT_EQ(limited.get_allocated_bytes(), 5888U);
  EXPECT_THROW(static_cast<void>(mr.allocate(2000)), rmm::out_of_memory);
  mr.deallocate(first, 1000);
  mr.deallocate(second, 4000);
  mr.deallocate(third, 500);
}

TEST_F(WorkedExamples, APoolWithAMaximumAsksForHalfOfTheRest)
{
  pool mr{&limited, 0, 8192};
  void* const first = mr.allocate(1000);
  EXPECT_EQ(mr.pool_size(), 4096U);
  EXPECT_THROW(static_cast<void>(mr.allocate(4000)), rmm::out_of_memory);
  void* const second = mr.allocate(500);
  void* const third  = mr.allocate(2000);
  EXPECT_EQ(mr.pool_size(), 4096U);
  mr.deallocate(first, 1000);
  mr.deallocate(second, 500);
  mr.deallocate(third, 2000);
}

TEST_F(WorkedExamples, PoolSizesAreMultiplesOf256)
{
  using plain_pool = rmm::mr::pool_memory_resource<cuda_memory_resource>;
  EXPECT_THROW((plain_pool{&cuda, 1000031, 1000192}), rmm::logic_error);
  EXPECT_THROW((plain_pool{&cuda, 1000192, 1000200}), rmm::logic_error);
  EXPECT_EQ((plain_pool{&cuda, 1000192, 1000192}).pool_size(), 1000192U);
}

TEST_F(WorkedExamples, APoolWorksOnTopOfAPool)
{
  pool lower{&limited, 0};
  rmm::mr::pool_memory_resource<pool> upper{&lower, 0};
  void* const ptr = upper.allocate(1000);
  EXPECT_EQ(upper.pool_size(), 1024U);
  EXPECT_EQ(lower.pool_size(), 1024U);
  upper.deallocate(ptr, 1000);
}

TEST_F(WorkedExamples, BinsTakeWhatFitsAndThePoolTheRest)
{
  rmm::mr::pool_memory_resource<cuda_memory_resource> mr{&cuda, 0};
  rmm::mr::statistics_resource_adaptor counted{&mr};
  rmm::mr::fixed_size_memory_resource small{&counted, 256, 4};
  rmm::mr::binning_memory_resource binning{&counted};
  binning.add_bin(256, &small);
  EXPECT_EQ(counted.get_allocations_counter().value, 1);
  void* const in_a_bin = binning.allocate(200);
  EXPECT_EQ(counted.get_allocations_counter().value, 1);
  void* const in_none = binning.allocate(257);
  EXPECT_EQ(counted.get_allocations_counter().value, 2);
  binning.deallocate(in_a_bin, 200);
  binning.deallocate(in_none, 257);
  EXPECT_EQ(counted.get_allocations_counter().value, 1);
}

TEST_F(WorkedExamples, TheLowerOfTwoLimitsCounts)
{
  limiter lower{&cuda, 2 * mebibyte};
  rmm::mr::limiting_resource_adaptor<limiter> upper{&lower, 5 * mebibyte};
  EXPECT_THROW(static_cast<void>(upper.allocate(4 * mebibyte)), rmm::out_of_memory);
  EXPECT_EQ(upper.get_allocated_bytes(), 0U);
  EXPECT_EQ(lower.get_allocated_bytes(), 0U);
}

TEST_F(WorkedExamples, AnArenaTakesTheMemoryOfAThreadBackWhenOthersTookTheRest)
{
  rmm::mr::arena_memory_resource<cuda_memory_resource> arena{&cuda, 2 * mebibyte};
  void* const mine = arena.allocate(256, rmm::cuda_stream_per_thread);
  rmm::cuda_stream const stream;
  void* const rest = arena.allocate(2 * mebibyte - 256, stream);
  EXPECT_THROW(static_cast<void>(arena.allocate(256, stream)), rmm::out_of_memory);
  arena.deallocate(mine, 256, rmm::cuda_stream_per_thread);
  arena.deallocate(rest, 2 * mebibyte - 256, stream);
  void* const all = arena.allocate(2 * mebibyte);
  EXPECT_NE(all, nullptr);
  arena.deallocate(all, 2 * mebibyte);
}

}  // namespace
