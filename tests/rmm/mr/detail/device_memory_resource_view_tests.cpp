// SPDX-License-Identifier: Apache-2.0
#include "../../../support/host_resources.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/detail/device_memory_resource_view.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

namespace {

using rmm::mr::device_memory_resource;
using rmm::mr::detail::device_memory_resource_view;
using rmm::test::always_equal_resource;
using rmm::test::recording_device_resource;

static_assert(std::is_convertible_v<device_memory_resource*, device_memory_resource_view>);
static_assert(std::is_convertible_v<recording_device_resource*, device_memory_resource_view>);
static_assert(std::is_nothrow_copy_constructible_v<device_memory_resource_view>);
static_assert(std::is_nothrow_copy_assignable_v<device_memory_resource_view>);
static_assert(std::is_convertible_v<device_memory_resource_view&, rmm::host_device_async_resource_ref>);

TEST(DeviceMemoryResourceView, TellsItsResource)
{
  recording_device_resource resource;
  device_memory_resource_view const view = &resource;
  EXPECT_EQ(view.get(), &resource);
}

TEST(DeviceMemoryResourceView, RefusesNull) { EXPECT_THROW(device_memory_resource_view{nullptr}, rmm::logic_error); }

TEST(DeviceMemoryResourceView, PassesSizesAndStreamsOn)
{
  recording_device_resource resource;
  device_memory_resource_view view{&resource};
  auto const stream = rmm::cuda_stream_per_thread;
  view.deallocate_sync(view.allocate_sync(10), 10);
  view.deallocate(stream, view.allocate(stream, 20), 20);
  ASSERT_EQ(resource.calls.size(), 4U);
  EXPECT_EQ(resource.calls[0].bytes, 10U);
  EXPECT_EQ(resource.calls[2].bytes, 20U);
  EXPECT_EQ(resource.calls[2].stream, stream.value());
  EXPECT_EQ(resource.calls[3].stream, stream.value());
}

TEST(DeviceMemoryResourceView, RefusesAnAlignmentThatTheResourceDoesNotGuarantee)
{
  recording_device_resource resource;
  device_memory_resource_view view{&resource};
  EXPECT_THROW(static_cast<void>(view.allocate_sync(10, 512)), rmm::bad_alloc);
  EXPECT_THROW(static_cast<void>(view.allocate(rmm::cuda_stream_view{}, 10, 24)), rmm::bad_alloc);
  EXPECT_TRUE(resource.calls.empty());
}

TEST(DeviceMemoryResourceView, IsEqualIfTheResourcesAre)
{
  recording_device_resource one;
  recording_device_resource two;
  always_equal_resource same;
  always_equal_resource as_same;
  EXPECT_EQ(device_memory_resource_view{&one}, device_memory_resource_view{&one});
  EXPECT_NE(device_memory_resource_view{&one}, device_memory_resource_view{&two});
  EXPECT_EQ(device_memory_resource_view{&same}, device_memory_resource_view{&as_same});
}

TEST(DeviceMemoryResourceView, IsReferredTo)
{
  recording_device_resource resource;
  device_memory_resource_view view{&resource};
  rmm::device_async_resource_ref const ref{view};
  ref.deallocate_async(ref.allocate_async(10, rmm::cuda_stream_per_thread), 10, rmm::cuda_stream_per_thread);
  ASSERT_EQ(resource.calls.size(), 2U);
  EXPECT_EQ(resource.calls[0].stream, rmm::cuda_stream_per_thread.value());
}

#if CCCL_VERSION >= 3002000
TEST(DeviceMemoryResourceView, IsOwnedByALibcudacxxOwnerThatOutlivesIt)
{
  recording_device_resource resource;
  cuda::mr::any_resource<cuda::mr::device_accessible> owner{device_memory_resource_view{&resource}};
  rmm::device_async_resource_ref const ref{owner};
  ref.deallocate_async(ref.allocate_async(10, rmm::cuda_stream_per_thread), 10, rmm::cuda_stream_per_thread);
  EXPECT_EQ(resource.calls.size(), 2U);
}
#endif

}  // namespace
