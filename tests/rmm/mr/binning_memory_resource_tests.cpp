// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/binning_memory_resource.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include "../../support/counting_upstream.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <optional>

namespace {

using binning = rmm::mr::binning_memory_resource<rmm::mr::device_memory_resource>;
using sizes   = std::vector<std::size_t>;

struct BinningMemoryResource : ::testing::Test {
  rmm::test::counting_upstream upstream;
  rmm::cuda_stream stream;

  void TearDown() override { EXPECT_EQ(upstream.live_count(), 0U); }
};

TEST_F(BinningMemoryResource, RefusesANullUpstreamAndBadExponents)
{
  EXPECT_THROW(binning{static_cast<rmm::mr::device_memory_resource*>(nullptr)}, rmm::logic_error);
  EXPECT_THROW((binning{&upstream, -1, 3}), rmm::logic_error);
  EXPECT_THROW((binning{&upstream, 10, 64}), rmm::logic_error);
  EXPECT_THROW((binning{&upstream, 63, 63}), rmm::bad_alloc);  // valid exponents, but more memory than upstream has
}

TEST_F(BinningMemoryResource, SendsEverythingUpstreamWithoutBins)
{
  binning mr{&upstream};
  void* const ptr = mr.allocate(4096, stream);
  EXPECT_EQ(upstream.asked(), sizes{4096});
  mr.deallocate(ptr, 4096, stream);
}

TEST_F(BinningMemoryResource, PassesSizesUnchanged)
{
  rmm::test::counting_upstream bin;
  binning mr{&upstream};
  mr.add_bin(1024, &bin);
  for (auto const bytes : std::initializer_list<std::size_t>{5, 1001, 1025}) {
    void* const ptr = mr.allocate(bytes, stream);
    mr.deallocate(ptr, bytes, stream);
  }
  EXPECT_EQ(bin.asked(), (sizes{5, 1001}));
  EXPECT_EQ(upstream.asked(), (sizes{1025}));
  EXPECT_EQ(bin.live_count(), 0U);
}

TEST_F(BinningMemoryResource, RoutesToTheSmallestBinThatFits)
{
  rmm::test::counting_upstream small;
  rmm::test::counting_upstream large;
  binning mr{&upstream};
  mr.add_bin(1024, &small);
  mr.add_bin(4096, &large);
  for (auto const bytes : std::initializer_list<std::size_t>{16, 1024, 1040, 4096, 4112}) {
    void* const ptr = mr.allocate(bytes, stream);
    mr.deallocate(ptr, bytes, stream);
  }
  EXPECT_EQ(small.asked(), (sizes{16, 1024}));
  EXPECT_EQ(large.asked(), (sizes{1040, 4096}));
  EXPECT_EQ(upstream.asked(), (sizes{4112}));
}

TEST_F(BinningMemoryResource, MakesBinsOfItsOwn)
{
  binning mr{&upstream, 10, 12};
  EXPECT_EQ(upstream.asked(), (sizes{1024U * 128, 2048U * 128, 4096U * 128}));
  void* const ptr = mr.allocate(1500, stream);
  EXPECT_EQ(upstream.asked().size(), 3U);
  mr.deallocate(ptr, 1500, stream);
}

TEST_F(BinningMemoryResource, MakesBinsOfItsOwnOverAReference)
{
  binning mr{rmm::device_async_resource_ref{upstream}, 10, 11};
  EXPECT_EQ(upstream.asked(), (sizes{1024U * 128, 2048U * 128}));
  void* const ptr = mr.allocate(1500, stream);
  EXPECT_EQ(mr.figures().live_bytes, 2048U);
  mr.deallocate(ptr, 1500, stream);
}

TEST_F(BinningMemoryResource, KeepsTheFirstBinOfASize)
{
  rmm::test::counting_upstream first;
  rmm::test::counting_upstream second;
  binning mr{&upstream};
  mr.add_bin(1000, &first);
  mr.add_bin(1024, &second);  // the sizes are equal after rounding
  void* const ptr = mr.allocate(1024, stream);
  EXPECT_EQ(first.asked(), sizes{1024});
  EXPECT_TRUE(second.asked().empty());
  mr.deallocate(ptr, 1024, stream);
}

TEST_F(BinningMemoryResource, AddsBinsThroughAllOverloads)
{
  rmm::test::counting_upstream bin;
  binning mr{&upstream};
  mr.add_bin(256, bin);
  mr.add_bin(512, rmm::device_async_resource_ref{bin});
  mr.add_bin(1024, nullptr);
  mr.add_bin(2048, std::nullopt);
  void* const ptr = mr.allocate(300, stream);
  EXPECT_EQ(bin.asked().size(), 1U);
  mr.deallocate(ptr, 300, stream);
  EXPECT_EQ(upstream.asked(), (sizes{1024U * 128, 2048U * 128}));
}

TEST_F(BinningMemoryResource, ReportsTheSumOfItsOwnBins)
{
  binning mr{&upstream, 10, 11};
  void* const small = mr.allocate(1000, stream);
  void* const large = mr.allocate(2000, stream);
  auto const now    = mr.figures();
  EXPECT_EQ(now.live_bytes, 1024U + 2048U);
  EXPECT_EQ(now.live_bytes + now.free_bytes, now.reserved_bytes);
  EXPECT_EQ(now.upstream_blocks, 2U);
  mr.deallocate(small, 1000, stream);
  mr.deallocate(large, 2000, stream);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(BinningMemoryResource, ReturnsNullForZeroBytes)
{
  binning mr{&upstream};
  EXPECT_EQ(mr.allocate(0, stream), nullptr);
  EXPECT_NO_THROW(mr.deallocate(nullptr, 0, stream));
  EXPECT_TRUE(upstream.asked().empty());
}

TEST_F(BinningMemoryResource, ReturnsItsUpstreamAndEqualsOnlyItself)
{
  binning mr{&upstream};
  binning over_ref{rmm::device_async_resource_ref{upstream}};
  EXPECT_EQ(mr.get_upstream(), &upstream);
  EXPECT_EQ(over_ref.get_upstream(), nullptr);
  EXPECT_EQ(over_ref.get_upstream_resource(), rmm::device_async_resource_ref{upstream});
  EXPECT_TRUE(mr.is_equal(mr));
  EXPECT_FALSE(mr.is_equal(over_ref));
}

}  // namespace
