// SPDX-License-Identifier: Apache-2.0
#include "../../../support/counting_upstream.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace {

using rmm::test::counting_upstream;

/// Has one block, or none. Records the sizes of the calls.
struct one_block final : rmm::mr::detail::immediate_resource {
  alignas(256) unsigned char block[256]{};
  bool is_ready{true};
  std::size_t allocated{};
  std::size_t deallocated{};

  void* try_allocate_nonblocking(std::size_t bytes, rmm::detail::identified_stream) noexcept override
  {
    allocated = bytes;
    return is_ready ? &block : nullptr;
  }

  bool try_deallocate_nonblocking(void*, std::size_t bytes, rmm::detail::identified_stream) noexcept override
  {
    deallocated = bytes;
    return is_ready;
  }
};

constexpr int calls_before = 10;

/// Gives the calling thread a counter with room below the peak.
template <class Statistics>
void warm_up(Statistics& mr)
{
  void* const most = mr.allocate(2000);
  for (int i = 1; i != calls_before; ++i) { mr.deallocate(mr.allocate(1000), 1000); }
  mr.deallocate(most, 2000);
}

struct NonblockingCalls : ::testing::Test {
  counting_upstream upstream;
  one_block at_hand;
  rmm::cuda_stream_view const stream{reinterpret_cast<cudaStream_t>(std::uintptr_t{0x70})};
};

TEST_F(NonblockingCalls, HaveTheSameLimit)
{
  rmm::mr::limiting_resource_adaptor mr{&upstream, 512};
  void* const ptr = mr.try_allocate_nonblocking(100, stream, at_hand);
  EXPECT_EQ(ptr, &at_hand.block);
  EXPECT_EQ(at_hand.allocated, 100U);
  EXPECT_EQ(mr.get_allocated_bytes(), 256U);
  EXPECT_TRUE(mr.try_deallocate_nonblocking(ptr, 100, stream, at_hand));
  EXPECT_EQ(at_hand.deallocated, 100U);
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST_F(NonblockingCalls, AreRefusedAboveTheLimitBeforeUpstreamIsAsked)
{
  rmm::mr::limiting_resource_adaptor mr{&upstream, 512};
  for (auto const bytes : {std::size_t{513}, SIZE_MAX}) {
    EXPECT_EQ(mr.try_allocate_nonblocking(bytes, stream, at_hand), nullptr);
  }
  EXPECT_EQ(at_hand.allocated, 0U);
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST_F(NonblockingCalls, CountNothingIfTheyAreRefused)
{
  rmm::mr::limiting_resource_adaptor limiting{&upstream, 512};
  rmm::mr::statistics_resource_adaptor statistics{&upstream};
  warm_up(statistics);
  void* const first  = limiting.try_allocate_nonblocking(100, stream, at_hand);
  void* const second = statistics.try_allocate_nonblocking(100, stream, at_hand);
  at_hand.is_ready   = false;
  EXPECT_EQ(limiting.try_allocate_nonblocking(100, stream, at_hand), nullptr);
  EXPECT_FALSE(limiting.try_deallocate_nonblocking(first, 100, stream, at_hand));
  EXPECT_EQ(limiting.get_allocated_bytes(), 256U);
  EXPECT_EQ(statistics.try_allocate_nonblocking(100, stream, at_hand), nullptr);
  EXPECT_FALSE(statistics.try_deallocate_nonblocking(second, 100, stream, at_hand));
  EXPECT_EQ(statistics.get_bytes_counter().value, 100);
  EXPECT_EQ(statistics.get_allocations_counter().total, calls_before + 1);
}

TEST_F(NonblockingCalls, CountInTheStatistics)
{
  rmm::mr::statistics_resource_adaptor mr{&upstream};
  EXPECT_EQ(mr.try_allocate_nonblocking(100, stream, at_hand), nullptr);  // the thread has no counter yet
  EXPECT_EQ(at_hand.allocated, 0U);
  warm_up(mr);
  void* const ptr = mr.try_allocate_nonblocking(100, stream, at_hand);
  EXPECT_EQ(ptr, &at_hand.block);
  EXPECT_EQ(mr.get_bytes_counter().value, 100);
  EXPECT_TRUE(mr.try_deallocate_nonblocking(ptr, 100, stream, at_hand));
  EXPECT_EQ(mr.get_bytes_counter().value, 0);
  EXPECT_EQ(mr.get_bytes_counter().total, 2000 + (calls_before - 1) * 1000 + 100);
  EXPECT_EQ(upstream.asked().size(), std::size_t{calls_before});
}

TEST_F(NonblockingCalls, UseTheSizeThatAReferenceRoundsTo)
{
  rmm::device_buffer{1, rmm::cuda_stream_view{}, upstream};  // fixes the way sizes are rounded
  rmm::device_buffer buffer{0, rmm::cuda_stream_view{}, upstream};
  ASSERT_TRUE(buffer.try_allocate_nonblocking(100, stream, at_hand));
  EXPECT_EQ(at_hand.allocated, 112U);
  EXPECT_EQ(buffer.data(), &at_hand.block);
  EXPECT_EQ(buffer.size(), 100U);
  EXPECT_EQ(buffer.capacity(), 100U);
  EXPECT_EQ(buffer.stream(), stream);
  ASSERT_TRUE(buffer.try_deallocate_nonblocking(upstream, at_hand));
  EXPECT_EQ(at_hand.deallocated, 112U);
  EXPECT_TRUE(buffer.is_empty());
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_TRUE(buffer.try_deallocate_nonblocking(upstream, at_hand));  // `at_hand` has no block
  EXPECT_EQ(upstream.asked().size(), 1U);
}

TEST_F(NonblockingCalls, LeaveABufferUnchangedIfTheyAreRefused)
{
  rmm::device_buffer buffer{0, rmm::cuda_stream_view{}, upstream};
  at_hand.is_ready = false;
  EXPECT_FALSE(buffer.try_allocate_nonblocking(100, stream, at_hand));
  EXPECT_EQ(buffer.stream(), rmm::cuda_stream_view{});
  EXPECT_EQ(buffer.size(), 0U);
  buffer.resize(100, rmm::cuda_stream_view{});
  EXPECT_FALSE(buffer.try_deallocate_nonblocking(upstream, at_hand));
  EXPECT_EQ(buffer.size(), 100U);
  EXPECT_EQ(upstream.live_count(), 1U);
}

TEST_F(NonblockingCalls, DoNotFreeABufferOfAnotherResource)
{
  counting_upstream other;
  rmm::device_buffer buffer{100, rmm::cuda_stream_view{}, other};
  EXPECT_FALSE(buffer.try_deallocate_nonblocking(upstream, at_hand));
  EXPECT_EQ(at_hand.deallocated, 0U);
  EXPECT_EQ(buffer.size(), 100U);
}

TEST_F(NonblockingCalls, DoNotServeABufferWithALargeAlignment)
{
  rmm::device_buffer buffer{std::size_t{0}, 4096, rmm::cuda_stream_view{}, upstream};
  EXPECT_FALSE(buffer.try_allocate_nonblocking(100, stream, at_hand));
  EXPECT_EQ(at_hand.allocated, 0U);
}

}  // namespace
