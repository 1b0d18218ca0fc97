// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/detail/block_source.hpp>

#include "../../../support/counting_upstream.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

namespace {

using rmm::test::counting_upstream;
using sizes  = std::vector<std::size_t>;
using source = rmm::mr::detail::block_source<counting_upstream>;

struct BlockSource : ::testing::Test {
  counting_upstream upstream;
  rmm::mr::detail::suballocator_upstream<counting_upstream> calls{&upstream};
  rmm::detail::stream_ordered_heap heap;
  rmm::cuda_stream stream;
  rmm::mr::detail::failure_reason reason;

  ~BlockSource() override { EXPECT_EQ(upstream.live_count(), 0U) << "the source has given all back"; }

  static sizes sizes_of(source::ranges const& blocks)
  {
    sizes all;
    std::transform(blocks.begin(), blocks.end(), std::back_inserter(all), [](auto each) { return each.bytes; });
    std::sort(all.begin(), all.end());
    return all;
  }
};

TEST_F(BlockSource, HalvesRequestsDownToTheNeededSize)
{
  source blocks{heap, calls};
  upstream.refuse_above(0);
  EXPECT_EQ(blocks.grow({4096, 512, blocks.room()}, stream, reason), nullptr);
  EXPECT_EQ(upstream.asked(), (sizes{4096, 2048, 1024, 512}));
  EXPECT_NE(reason.text.find("upstream gives no more"), std::string::npos) << reason.text;
}

TEST_F(BlockSource, AsksForWholeGranulesThatTheMaximumLeaves)
{
  source blocks{heap, calls, 8 * 256 + 100};
  EXPECT_EQ(blocks.room(), 8 * 256U);
  upstream.refuse_above(512);
  EXPECT_NE(blocks.grow({7 * 128, 256, blocks.room()}, stream, reason), nullptr);
  EXPECT_EQ(upstream.asked(), (sizes{1024, 512}));
  EXPECT_EQ(blocks.room(), 6 * 256U);
  EXPECT_EQ(blocks.grow({0, 7 * 256, blocks.room()}, stream, reason), nullptr);
  EXPECT_EQ(upstream.asked().size(), 2U);
  EXPECT_EQ(reason.text, "the pool holds 512.000000 B of at most 2.097656 KiB and no free part of it is large enough");
}

TEST_F(BlockSource, AsksForNoMoreThanTheMaximumLeaves)
{
  source blocks{heap, calls, 4096};
  EXPECT_NE(blocks.grow({1 << 20, 256, blocks.room()}, stream, reason), nullptr);
  EXPECT_EQ(upstream.asked(), sizes{4096});
}

TEST_F(BlockSource, LeavesTheLargestRequestToAnUpstreamWithoutABound)
{
  source blocks{heap, calls};
  blocks.add(512, 0, stream);
  upstream.refuse_above(1 << 20);
  EXPECT_EQ(blocks.grow({0, blocks.room(), blocks.room()}, stream, reason), nullptr);
  EXPECT_NE(reason.text.find("upstream gives no more"), std::string::npos) << reason.text;
}

TEST_F(BlockSource, UsesTheWholeGranulesOfABlockOfAnOddSize)
{
  source blocks{heap, calls};
  void* const ptr = blocks.add(7 * 64, 256, stream);
  EXPECT_NE(ptr, nullptr);
  EXPECT_EQ(heap.figures().reserved_bytes, 7 * 64U);
  EXPECT_EQ(heap.figures().free_bytes, 0U);
}

TEST_F(BlockSource, GivesBackABlockThatTheHeapRefuses)
{
  source blocks{heap, calls};
  EXPECT_TRUE(blocks.try_take(1024, reason));
  upstream.refuse_above(0);
  EXPECT_FALSE(blocks.try_take(1024, reason));
  EXPECT_EQ(heap.block_bytes(), 1024U);
}

TEST_F(BlockSource, ChoosesTheLargestUnusedBlocks)
{
  source blocks{heap, calls};
  for (auto const bytes : sizes{2048, 8192, 1024, 4096}) { blocks.add(bytes, 0, stream); }
  void* const used = blocks.add(16384, 256, stream);
  heap.settle();
  EXPECT_EQ(sizes_of(blocks.unused_blocks(0)), (sizes{1024, 2048, 4096, 8192}));
  EXPECT_EQ(sizes_of(blocks.unused_blocks(0, 2048)), (sizes{4096, 8192}));
  EXPECT_EQ(sizes_of(blocks.unused_blocks(heap.block_bytes() - 8193)), (sizes{4096, 8192}));
  EXPECT_TRUE(blocks.unused_blocks(heap.block_bytes()).empty());
  auto const chosen = blocks.unused_blocks(0);
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end(), [](auto a, auto b) { return a.begin < b.begin; }));
  EXPECT_EQ(blocks.give_back({chosen.front()}, stream, source::leaving::after_a_wait), chosen.front().bytes);
  EXPECT_EQ(blocks.trim(0), 15 * 1024U - chosen.front().bytes);
  EXPECT_EQ(upstream.live_count(), 1U);
  heap.deallocate(used, 256, stream);
}

}  // namespace
