// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/mock_resource.hpp"
#include "../../support/recycling_upstream.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::cuda_stream_view;
using rmm::mr::aligned_resource_adaptor;
using ::testing::Return;

constexpr cuda_stream_view stream{};

struct Aligned : ::testing::Test {
  using adaptor = aligned_resource_adaptor<mock_resource>;
  ::testing::StrictMock<mock_resource> mock;

  // Allocates and frees `bytes` bytes. Upstream must be asked for `upstream_bytes` bytes, and returns `upstream_address`.
  void expect(adaptor& mr,
              std::size_t bytes,
              std::size_t upstream_bytes,
              std::uintptr_t upstream_address,
              std::uintptr_t returned)
  {
    EXPECT_CALL(mock, do_allocate(upstream_bytes, stream)).WillOnce(Return(address(upstream_address)));
    EXPECT_CALL(mock, do_deallocate(address(upstream_address), upstream_bytes, stream));
    EXPECT_EQ(mr.allocate(bytes, stream), address(returned));
    mr.deallocate(address(returned), bytes, stream);
    ::testing::Mock::VerifyAndClearExpectations(&mock);
  }
};

TEST_F(Aligned, RefusesAnAlignmentOtherThanAPowerOfTwo)
{
  EXPECT_THROW((adaptor{&mock, 255}), rmm::logic_error);
  EXPECT_THROW((adaptor{&mock, 768}), rmm::logic_error);
  EXPECT_THROW((adaptor{&mock, 0}), rmm::logic_error);
  EXPECT_NO_THROW((adaptor{&mock, 256}));
}

TEST_F(Aligned, AlignsAllocationsOfAllSizesByDefault)
{
  EXPECT_EQ(adaptor::default_alignment_threshold, 0U);
  adaptor mr{&mock, 512};
  expect(mr, 1, 512 + 256, 256, 512);
}

TEST_F(Aligned, PassesEverythingThroughAtTheAlignmentOfUpstream)
{
  adaptor mr{&mock};
  expect(mr, 5, 5, 256, 256);
}

TEST_F(Aligned, PassesEverythingThroughAtALesserAlignment)
{
  adaptor mr{&mock, 64};
  expect(mr, 5, 5, 256, 256);
}

TEST_F(Aligned, PassesSizesBelowTheThresholdThrough)
{
  adaptor mr{&mock, 4096, 65536};
  expect(mr, 3, 3, 256, 256);
  expect(mr, 65528, 65528, 768, 768);
}

TEST_F(Aligned, PassesSizesThroughToAnObjectOfKnownTypeWithoutRounding)
{
  adaptor mr{mock, 4096, 65536};
  expect(mr, 3, 3, 256, 256);
  expect(mr, 65528, 65528, 768, 768);
  adaptor of_default_alignment{mock};
  expect(of_default_alignment, 5, 5, 256, 256);
}

TEST_F(Aligned, PassesZeroBytesThrough)
{
  adaptor mr{&mock, 4096};
  expect(mr, 0, 0, 0, 0);
}

TEST_F(Aligned, MovesTheAddressUpToTheAlignment)
{
  adaptor mr{&mock, 4096, 65536};
  expect(mr, 65536, 69376, 256, 4096);
  expect(mr, 73728, 77568, 131584, 135168);
  expect(mr, 77800, 81664, 263168, 266240);
}

TEST_F(Aligned, LeavesAnAlignedAddressWhereItIs)
{
  adaptor mr{&mock, 4096, 65536};
  expect(mr, 65536, 69376, 4096, 4096);
}

TEST_F(Aligned, RemembersAllAddressesThatItMoved)
{
  adaptor mr{&mock, 4096};
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(address(256))).WillOnce(Return(address(131584)));
  void* const first  = mr.allocate(4096, stream);
  void* const second = mr.allocate(4096, stream);
  EXPECT_CALL(mock, do_deallocate(address(131584), 7936, stream));
  mr.deallocate(second, 4096, stream);
  EXPECT_CALL(mock, do_deallocate(address(256), 7936, stream));
  mr.deallocate(first, 4096, stream);
}

TEST_F(Aligned, RefusesSizesThatOverflowRounding)
{
  adaptor mr{&mock, 4096};
  EXPECT_THROW(mr.allocate(std::numeric_limits<std::size_t>::max(), stream), rmm::out_of_memory);
  EXPECT_THROW(mr.allocate(std::numeric_limits<std::size_t>::max() - 4094, stream), rmm::out_of_memory);
}

TEST_F(Aligned, EqualsOnlyAnotherOfTheSameAlignmentAndThreshold)
{
  adaptor mr{&mock, 4096, 65536};
  EXPECT_TRUE(mr.is_equal(adaptor{&mock, 4096, 65536}));
  EXPECT_FALSE(mr.is_equal(adaptor{&mock, 512, 65536}));
  EXPECT_FALSE(mr.is_equal(adaptor{&mock, 4096, 0}));
}

TEST_F(Aligned, ForgetsAnAddressBeforeUpstreamGetsItBack)
{
  adaptor mr{&mock, 4096};
  void* reused{nullptr};
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(address(256))).WillOnce(Return(address(512)));
  EXPECT_CALL(mock, do_deallocate(address(256), ::testing::_, ::testing::_)).WillOnce([&](auto&&...) {
    reused = mr.allocate(100, stream);  // another thread could get the address now
  });
  mr.deallocate(mr.allocate(100, stream), 100, stream);
  EXPECT_EQ(reused, address(4096));
  EXPECT_CALL(mock, do_deallocate(address(512), ::testing::_, ::testing::_));
  mr.deallocate(reused, 100, stream);
}

TEST(AlignedMemory, IsAligned)
{
  counting_upstream upstream;
  {
    aligned_resource_adaptor mr{&upstream, 4096};
    for (auto const bytes : std::vector<std::size_t>{1, 100, 4096, 100000}) {
      void* const one   = mr.allocate(bytes);
      void* const other = mr.allocate(bytes);
      EXPECT_TRUE(rmm::is_pointer_aligned(one, 4096));
      EXPECT_TRUE(rmm::is_pointer_aligned(other, 4096));
      mr.deallocate(one, bytes);
      mr.deallocate(other, bytes);
    }
  }
  EXPECT_EQ(upstream.live_count(), 0U);
}

TEST(AlignedThreads, ReturnEachAddressToUpstreamAsItCame)
{
  // Returns odd multiples of 256, so that the adaptor moves every address, and checks the addresses that come back.
  class checking_upstream final : public rmm::mr::device_memory_resource {
   public:
    std::atomic<int> unknown{0};

   private:
    void* do_allocate(std::size_t bytes, cuda_stream_view s) override
    {
      return static_cast<char*>(recycling_.allocate(bytes, s)) + 256;
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view s) override
    {
      if (reinterpret_cast<std::uintptr_t>(ptr) % 4096 != 256) { ++unknown; }
      recycling_.deallocate(static_cast<char*>(ptr) - 256, bytes, s);
    }
    recycling_upstream recycling_;
  };

  checking_upstream upstream;
  aligned_resource_adaptor mr{&upstream, 4096};
  run_on_threads(8, [&](int) {
    for (int i = 0; i < 5000; ++i) { mr.deallocate(mr.allocate(100), 100); }
  });
  EXPECT_EQ(upstream.unknown, 0);
}

}  // namespace
