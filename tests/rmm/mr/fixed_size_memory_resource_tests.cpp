// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/fixed_size_memory_resource.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include "../../support/counting_upstream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace {

using fixed = rmm::mr::fixed_size_memory_resource<rmm::mr::device_memory_resource>;

struct FixedSizeMemoryResource : ::testing::Test {
  rmm::test::counting_upstream upstream;
  rmm::cuda_stream stream;

  void TearDown() override { EXPECT_EQ(upstream.live_count(), 0U); }
};

TEST_F(FixedSizeMemoryResource, HasTheDefaultsOfTheContract)
{
  EXPECT_EQ(fixed::default_block_size, std::size_t{1} << 20);
  EXPECT_EQ(fixed::default_blocks_to_preallocate, 128U);
}

TEST_F(FixedSizeMemoryResource, RefusesANullUpstreamAndEmptyChunks)
{
  EXPECT_THROW((fixed{static_cast<rmm::mr::device_memory_resource*>(nullptr), 256, 4}), rmm::logic_error);
  EXPECT_THROW((fixed{&upstream, 0, 4}), rmm::logic_error);
  EXPECT_THROW((fixed{&upstream, 256, 0}), rmm::logic_error);
}

TEST_F(FixedSizeMemoryResource, TakesItsFirstChunkAtOnceFromTheRoundedBlockSize)
{
  fixed const mr{&upstream, 1000, 4};
  EXPECT_EQ(mr.get_block_size(), 1024U);
  EXPECT_EQ(upstream.asked(), std::vector<std::size_t>{4096});
}

TEST_F(FixedSizeMemoryResource, HandsOutWholeBlocksAndTakesAnotherChunkWhenNoneIsLeft)
{
  fixed mr{&upstream, 1024, 4};
  std::set<void*> blocks;
  for (int i = 0; i < 5; ++i) {
    blocks.insert(mr.allocate(1 + static_cast<std::size_t>(i) * 100, stream));
    EXPECT_EQ(upstream.asked().size(), i < 4 ? 1U : 2U);
  }
  EXPECT_EQ(blocks.size(), 5U);
  for (void* const block : blocks) { mr.deallocate(block, 1, stream); }
}

TEST_F(FixedSizeMemoryResource, UsesBlocksThatOtherStreamsFreed)
{
  rmm::cuda_stream other;
  fixed mr{&upstream, 256, 1};
  void* const block = mr.allocate(256, stream);
  mr.deallocate(block, 256, stream);
  EXPECT_EQ(mr.allocate(10, other), block);
  mr.deallocate(block, 10, other);
  EXPECT_EQ(upstream.asked().size(), 1U);
}

TEST_F(FixedSizeMemoryResource, RefusesMoreThanABlock)
{
  fixed mr{&upstream, 1024, 4};
  try {
    static_cast<void>(mr.allocate(1025, stream));
    FAIL() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_NE(std::string{e.what()}.find("Maximum allocation size exceeded (failed to allocate "), std::string::npos);
  }
}

TEST_F(FixedSizeMemoryResource, ShowsWhatItHasInWholeBlocks)
{
  fixed mr{&upstream, 1024, 4};
  void* const block = mr.allocate(10, stream);
  auto const now    = mr.figures();
  EXPECT_EQ(now.live_bytes, 1024U);
  EXPECT_EQ(now.free_bytes, 3072U);
  EXPECT_EQ(now.reserved_bytes, 4096U);
  EXPECT_EQ(now.upstream_blocks, 1U);
  mr.deallocate(block, 10, stream);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(FixedSizeMemoryResource, TakesNoNewChunkWhileAnyBlockIsFree)
{
  std::vector<rmm::cuda_stream> streams(4);
  fixed mr{&upstream, 128 * 1024, 16};
  std::vector<void*> blocks;
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < 16; ++i) { blocks.push_back(mr.allocate(1, streams[(i + blocks.size()) % 4])); }
    for (std::size_t i = 0; i < 16; ++i) { mr.deallocate(blocks[i], 1, streams[i % 4]); }
    blocks.clear();
  }
  EXPECT_EQ(upstream.asked().size(), 1U);
}

TEST_F(FixedSizeMemoryResource, ReturnsNullForZeroBytes)
{
  fixed mr{&upstream, 256, 1};
  EXPECT_EQ(mr.allocate(0, stream), nullptr);
  EXPECT_NO_THROW(mr.deallocate(nullptr, 0, stream));
}

TEST_F(FixedSizeMemoryResource, PassesOnWhatUpstreamThrowsAndStaysUsable)
{
  fixed mr{&upstream, 256, 1};
  void* const block = mr.allocate(256, stream);
  upstream.refuse_above(0);
  EXPECT_THROW(static_cast<void>(mr.allocate(256, stream)), rmm::out_of_memory);
  mr.deallocate(block, 256, stream);
  EXPECT_EQ(mr.allocate(256, stream), block);
  mr.deallocate(block, 256, stream);
}

TEST_F(FixedSizeMemoryResource, ReturnsItsUpstreamAndEqualsOnlyItself)
{
  fixed mr{&upstream, 256, 1};
  fixed over_ref{rmm::device_async_resource_ref{upstream}, 256, 1};
  EXPECT_EQ(mr.get_upstream(), &upstream);
  EXPECT_EQ(over_ref.get_upstream(), nullptr);
  EXPECT_EQ(over_ref.get_upstream_resource(), rmm::device_async_resource_ref{upstream});
  EXPECT_TRUE(mr.is_equal(mr));
  EXPECT_FALSE(mr.is_equal(over_ref));
}

TEST_F(FixedSizeMemoryResource, IncludesUpstreamsReport)
{
  auto const failure_over = [](auto& source) -> std::string {
    rmm::mr::fixed_size_memory_resource mr{&source, 256, 1};
    void* const block = mr.allocate(256);
    std::string said;
    try {
      mr.deallocate(mr.allocate(256), 256);
    } catch (rmm::out_of_memory const& e) {
      said = e.what();
    }
    mr.deallocate(block, 256);
    return said;
  };
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource pool{&cuda, 256, 256};
  EXPECT_THAT(failure_over(pool), ::testing::Not(::testing::HasSubstr("no block is free")));
  rmm::mr::limiting_resource_adaptor limited{&cuda, 256};
  EXPECT_THAT(failure_over(limited), ::testing::HasSubstr("no block is free, and upstream gives no more"));
}

}  // namespace
