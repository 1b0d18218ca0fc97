// SPDX-License-Identifier: Apache-2.0

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/block_map.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::block_map;
using rmm::detail::seam_list;

constexpr std::size_t KiB = 1024;

struct BlockMap : ::testing::Test {
  void TearDown() override { EXPECT_TRUE(map.check_invariants()); }

  [[nodiscard]] std::vector<address_range> blocks() const { return map.all(); }

  seam_list seams;
  block_map map{seams};
};

TEST_F(BlockMap, KeepsBlocksAscendingAndCountsThem)
{
  map.add({64 * KiB, 4 * KiB});
  map.add({4 * KiB, 8 * KiB});
  EXPECT_EQ(blocks(), (std::vector<address_range>{{4 * KiB, 8 * KiB}, {64 * KiB, 4 * KiB}}));
  EXPECT_EQ(map.all().size(), 2U);
  EXPECT_EQ(map.total_bytes(), 12 * KiB);
  EXPECT_EQ(seams.count, 0U);
}

TEST_F(BlockMap, CountsWholeGranulesAsUsable)
{
  map.add({4 * KiB, 1000});
  EXPECT_EQ(map.total_bytes(), 1000U);
  EXPECT_EQ(map.usable_bytes(), 768U);
}

TEST_F(BlockMap, PublishesASeamWhereTwoBlocksTouch)
{
  map.add({8 * KiB, 8 * KiB});
  EXPECT_TRUE(map.touches({4 * KiB, 4 * KiB}));
  EXPECT_TRUE(map.touches({16 * KiB, 4 * KiB}));
  EXPECT_FALSE(map.touches({20 * KiB, 4 * KiB}));
  map.add({4 * KiB, 4 * KiB});
  map.add({16 * KiB, 4 * KiB});
  EXPECT_TRUE(seams.contains(8 * KiB));
  EXPECT_TRUE(seams.contains(16 * KiB));
  EXPECT_EQ(seams.count, 2U);
}

TEST_F(BlockMap, ExtendsBlocksWithoutASeam)
{
  map.add({8 * KiB, 8 * KiB});
  map.extend({16 * KiB, 4 * KiB});  // behind
  map.extend({4 * KiB, 4 * KiB});   // in front
  EXPECT_EQ(blocks(), (std::vector<address_range>{{4 * KiB, 16 * KiB}}));
  map.extend({24 * KiB, 4 * KiB});
  map.extend({20 * KiB, 4 * KiB});  // between two
  EXPECT_EQ(blocks(), (std::vector<address_range>{{4 * KiB, 24 * KiB}}));
  EXPECT_EQ(map.usable_bytes(), 24 * KiB);
  EXPECT_EQ(seams.count, 0U);
}

TEST_F(BlockMap, CutsARangeOutOfABlock)
{
  map.add({4 * KiB, 16 * KiB});
  ASSERT_TRUE(map.try_cut({8 * KiB, 4 * KiB}));  // from the middle
  EXPECT_EQ(blocks(), (std::vector<address_range>{{4 * KiB, 4 * KiB}, {12 * KiB, 8 * KiB}}));
  ASSERT_TRUE(map.try_cut({12 * KiB, 4 * KiB}));  // from the beginning
  ASSERT_TRUE(map.try_cut({18 * KiB, 2 * KiB}));  // from the end
  ASSERT_TRUE(map.try_cut({4 * KiB, 4 * KiB}));   // all
  EXPECT_EQ(blocks(), (std::vector<address_range>{{16 * KiB, 2 * KiB}}));
  EXPECT_EQ(map.total_bytes(), 2 * KiB);
}

TEST_F(BlockMap, CutsTheLastGranuleWithTheUnusableRest)
{
  map.add({4 * KiB, 1000});
  ASSERT_TRUE(map.try_cut({4 * KiB, 768}));
  EXPECT_TRUE(map.all().empty());
  EXPECT_EQ(map.total_bytes(), 0U);
  EXPECT_EQ(map.usable_bytes(), 0U);
}

TEST_F(BlockMap, RefusesToCutOutsideOfBlocks)
{
  map.add({4 * KiB, 4 * KiB});
  EXPECT_FALSE(map.try_cut({16 * KiB, 4 * KiB}));
  EXPECT_FALSE(map.try_cut({4 * KiB, 8 * KiB}));
  EXPECT_EQ(map.total_bytes(), 4 * KiB);
}

TEST_F(BlockMap, ForgetsTheSeamsOfARemovedBlock)
{
  map.add({4 * KiB, 4 * KiB});
  map.add({8 * KiB, 4 * KiB});
  map.add({12 * KiB, 4 * KiB});
  ASSERT_TRUE(map.try_cut({8 * KiB, 4 * KiB}));
  EXPECT_EQ(seams.count, 0U);
}

TEST_F(BlockMap, DistinguishesWholeBlocksFromParts)
{
  map.add({4 * KiB, 8 * KiB});
  EXPECT_TRUE(map.is_block({4 * KiB, 8 * KiB}));
  EXPECT_FALSE(map.is_block({4 * KiB, 4 * KiB}));
  EXPECT_FALSE(map.is_block({8 * KiB, 4 * KiB}));
  EXPECT_TRUE(map.holds({8 * KiB, 4 * KiB}));
  EXPECT_FALSE(map.holds({8 * KiB, 8 * KiB}));
}

}  // namespace
