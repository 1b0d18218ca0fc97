// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/mock_resource.hpp"
#include "../../support/recycling_upstream.hpp"

#include <rmm/error.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <limits>
#include <string>

namespace {

using namespace rmm::test;
using rmm::mr::limiting_resource_adaptor;
using ::testing::HasSubstr;

constexpr std::size_t mib{1 << 20};

struct Limiting : ::testing::Test {
  counting_upstream upstream;
  void TearDown() override { EXPECT_EQ(upstream.live_count(), 0U); }
};

TEST_F(Limiting, ReturnsItsLimitAndTheBytesInUse)
{
  limiting_resource_adaptor mr{&upstream, 10 * mib};
  EXPECT_EQ(mr.get_allocation_limit(), 10 * mib);
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
  void* const ptr = mr.allocate(4 * mib);
  EXPECT_EQ(mr.get_allocated_bytes(), 4 * mib);
  mr.deallocate(ptr, 4 * mib);
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST_F(Limiting, RefusesRequestsBeyondTheLimitAndGrantsThoseUpToIt)
{
  limiting_resource_adaptor mr{&upstream, 10 * mib};
  void* const first  = mr.allocate(4 * mib);
  void* const second = mr.allocate(4 * mib);
  EXPECT_THROW(mr.allocate(3 * mib), rmm::out_of_memory);
  EXPECT_EQ(mr.get_allocated_bytes(), 8 * mib);
  mr.deallocate(first, 4 * mib);
  void* const exact = mr.allocate(6 * mib);
  EXPECT_EQ(mr.get_allocated_bytes(), 10 * mib);
  mr.deallocate(second, 4 * mib);
  mr.deallocate(exact, 6 * mib);
}

TEST_F(Limiting, RefusesOneByteAboveTheLimit)
{
  limiting_resource_adaptor mr{&upstream, 5 * mib};
  EXPECT_THROW(mr.allocate(5 * mib + 1), rmm::out_of_memory);
  EXPECT_TRUE(upstream.asked().empty());
}

TEST_F(Limiting, ReportsTheRequestAndTheBytesInUse)
{
  limiting_resource_adaptor mr{&upstream, 5 * mib};
  void* const ptr = mr.allocate(mib);
  try {
    mr.allocate(6 * mib);
    ADD_FAILURE();
  } catch (rmm::out_of_memory const& e) {
    EXPECT_THAT(e.what(), HasSubstr("Exceeded memory limit (failed to allocate 6.000000 MiB)"));
    EXPECT_THAT(e.what(), HasSubstr("1.000000 MiB of 5.000000 MiB are in use"));
  }
  mr.deallocate(ptr, mib);
}

TEST_F(Limiting, CountsSizesRoundedUpAndPassesThemOnUnrounded)
{
  limiting_resource_adaptor mr{&upstream, 10 * mib};
  void* const ptr = mr.allocate(1);
  EXPECT_EQ(mr.get_allocated_bytes(), 256U);
  EXPECT_EQ(upstream.asked(), std::vector<std::size_t>{1});
  mr.deallocate(ptr, 1);
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST_F(Limiting, RoundsUpToTheAlignmentGiven)
{
  limiting_resource_adaptor mr{&upstream, 10 * mib, 4096};
  void* const ptr = mr.allocate(4097);
  EXPECT_EQ(mr.get_allocated_bytes(), 8192U);
  mr.deallocate(ptr, 4097);
}

TEST_F(Limiting, RefusesAnAlignmentOtherThanAPowerOfTwo)
{
  EXPECT_THROW((limiting_resource_adaptor{&upstream, mib, 0}), rmm::logic_error);
  EXPECT_THROW((limiting_resource_adaptor{&upstream, mib, 768}), rmm::logic_error);
}

TEST_F(Limiting, RefusesSizesThatOverflowRounding)
{
  limiting_resource_adaptor mr{&upstream, std::numeric_limits<std::size_t>::max()};
  try {
    mr.allocate(std::numeric_limits<std::size_t>::max());
    FAIL();
  } catch (rmm::out_of_memory const& error) {
    EXPECT_NE(std::string{error.what()}.find("Exceeded memory limit (failed to allocate "), std::string::npos);
  }
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST_F(Limiting, RefundsRequestsThatUpstreamRefuses)
{
  limiting_resource_adaptor inner{&upstream, 2 * mib};
  limiting_resource_adaptor outer{&inner, 5 * mib};
  EXPECT_THROW(outer.allocate(4 * mib), rmm::out_of_memory);
  EXPECT_EQ(inner.get_allocated_bytes(), 0U);
  EXPECT_EQ(outer.get_allocated_bytes(), 0U);
}

TEST_F(Limiting, ComesFromAFactory)
{
  auto made = rmm::mr::make_limiting_adaptor(&upstream, 1000);
  EXPECT_EQ(made.get_upstream(), &upstream);
  EXPECT_EQ(made.get_allocation_limit(), 1000U);
}

TEST(LimitingOrder, CountsMemoryUntilUpstreamHasItBack)
{
  ::testing::StrictMock<mock_resource> mock;
  limiting_resource_adaptor mr{&mock, 1000};
  EXPECT_CALL(mock, do_allocate).WillOnce(::testing::Return(address(0x1000)));
  EXPECT_CALL(mock, do_deallocate).WillOnce([&](auto&&...) { EXPECT_EQ(mr.get_allocated_bytes(), 256U); });
  mr.deallocate(mr.allocate(100), 100);
}

TEST(LimitingThreads, AreNeverRefusedARequestThatFits)
{
  recycling_upstream upstream;
  limiting_resource_adaptor mr{&upstream, 8 * 256};
  std::atomic<int> refused{0};
  run_on_threads(8, [&](int) {
    for (int i = 0; i < 5000; ++i) {
      try {
        mr.deallocate(mr.allocate(256), 256);
      } catch (rmm::out_of_memory const&) {
        ++refused;
      }
      if (i % 16 == 0) { EXPECT_THROW(mr.allocate(8 * 256 + 1), rmm::out_of_memory); }
    }
  });
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

}  // namespace
