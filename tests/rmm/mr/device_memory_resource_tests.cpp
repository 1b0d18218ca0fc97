// SPDX-License-Identifier: Apache-2.0
#include "../../support/host_resources.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <vector>

// Classes of a user's program.
namespace user {

using rmm::mr::device_memory_resource;

class mock_resource : public device_memory_resource {
 public:
  MOCK_METHOD(void*, do_allocate, (std::size_t, rmm::cuda_stream_view), (override));
  MOCK_METHOD(void, do_deallocate, (void*, std::size_t, rmm::cuda_stream_view), (override));
};

class later_mock_resource : public device_memory_resource {
 public:
  MOCK_METHOD(void*, do_allocate, (std::size_t, rmm::cuda_stream_view), (override));
  MOCK_METHOD(void, do_deallocate, (void*, std::size_t, rmm::cuda_stream_view), (noexcept, override));
  bool operator==(later_mock_resource const& other) const noexcept { return this == &other; }
  bool operator!=(later_mock_resource const& other) const noexcept { return !(*this == other); }
  friend void get_property(later_mock_resource const&, cuda::mr::device_accessible) noexcept {}
};

// A typical adaptor of a user: private overrides, and its base named by the injected class name.
class adaptor : public device_memory_resource {
 public:
  explicit adaptor(device_memory_resource* upstream) : upstream_{upstream} {}
  [[nodiscard]] rmm::device_async_resource_ref get_upstream_resource() const noexcept { return upstream_; }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    return upstream_->allocate(bytes, stream);
  }
  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    upstream_->deallocate(ptr, bytes, stream);
  }
  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    auto const* const cast = dynamic_cast<adaptor const*>(&other);
    return cast != nullptr ? upstream_->is_equal(*cast->upstream_) : upstream_->is_equal(other);
  }

  device_memory_resource* upstream_;
};

}  // namespace user

namespace {

using namespace rmm::test;
using rmm::mr::device_memory_resource;

static_assert(std::is_abstract_v<device_memory_resource>);
static_assert(std::has_virtual_destructor_v<device_memory_resource>);
static_assert(std::is_copy_constructible_v<recording_device_resource>);
static_assert(std::is_nothrow_move_constructible_v<always_equal_resource>);
static_assert(std::is_copy_assignable_v<recording_device_resource>);
static_assert(cuda::has_property<device_memory_resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<device_memory_resource, cuda::mr::host_accessible>);
static_assert(rmm::detail::polyfill::resource_with<device_memory_resource, cuda::mr::device_accessible>);
static_assert(rmm::detail::polyfill::async_resource_with<recording_device_resource, cuda::mr::device_accessible>);
#if CCCL_VERSION < 3001000
static_assert(cuda::mr::resource_with<device_memory_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<device_memory_resource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::synchronous_resource_with<device_memory_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<device_memory_resource, cuda::mr::device_accessible>);
#endif

cudaStream_t handle(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

// Converts to a stream as cuda_stream does.
struct stream_owner {
  operator rmm::cuda_stream_view() const { return handle(9); }
};

struct DeviceMemoryResourceTest : ::testing::Test {
  recording_device_resource mr;
};

TEST_F(DeviceMemoryResourceTest, AllocateWithoutAStreamUsesTheDefaultStream)
{
  void* const ptr = mr.allocate(100);
  mr.deallocate(ptr, 100);
  EXPECT_EQ(mr.calls, (std::vector<call>{{100, nullptr}, {100, nullptr}}));
}

TEST_F(DeviceMemoryResourceTest, ASizeAndAStreamArePassedAsTheyAre)
{
  rmm::cuda_stream_view const stream{handle(5)};
  mr.deallocate(mr.allocate(100, stream), 100, stream);
  mr.deallocate_async(mr.allocate_async(7, stream), 7, stream);
  EXPECT_EQ(mr.calls, (std::vector<call>{{100, handle(5)}, {100, handle(5)}, {7, handle(5)}, {7, handle(5)}}));
}

TEST_F(DeviceMemoryResourceTest, AnyKindOfStreamIsTaken)
{
  mr.deallocate(mr.allocate(1, handle(5)), 1, handle(5));
  mr.deallocate(mr.allocate(1, stream_owner{}), 1, stream_owner{});
  mr.deallocate(stream_owner{}, mr.allocate(stream_owner{}, 1), 1);
  mr.deallocate(handle(5), mr.allocate(cuda::stream_ref{handle(5)}, 1), 1);
  EXPECT_EQ(mr.calls,
            (std::vector<call>{{1, handle(5)},
                               {1, handle(5)},
                               {1, handle(9)},
                               {1, handle(9)},
                               {1, handle(9)},
                               {1, handle(9)},
                               {1, handle(5)},
                               {1, handle(5)}}));
}

TEST_F(DeviceMemoryResourceTest, TwoIntegersAreASizeAndAnAlignment)
{
  void* const ptr = mr.allocate(1000, 256);
  mr.deallocate(ptr, 1000, 256);
#ifdef RMM_UNROUNDED_SIZES
  EXPECT_EQ(mr.calls, (std::vector<call>{{1000, nullptr}, {1000, nullptr}}));
#else
  EXPECT_EQ(mr.calls, (std::vector<call>{{1024, nullptr}, {1024, nullptr}}));
#endif
}

#ifndef RMM_UNROUNDED_SIZES
TEST_F(DeviceMemoryResourceTest, AnAlignmentInTheOlderOrderRoundsTheSize)
{
  rmm::cuda_stream_view const stream{handle(5)};
  mr.deallocate_async(mr.allocate_async(10, 16, stream), 10, 16, stream);
  mr.deallocate_async(mr.allocate_async(512, 256, stream), 512, 256, stream);
  mr.deallocate_async(mr.allocate_async(0, 4096, stream), 0, 4096, stream);
  mr.deallocate_async(mr.allocate_async(1, 4096, stream), 1, 4096, stream);
  EXPECT_EQ(mr.calls,
            (std::vector<call>{{16, handle(5)},
                               {16, handle(5)},
                               {512, handle(5)},
                               {512, handle(5)},
                               {0, handle(5)},
                               {0, handle(5)},
                               {4096, handle(5)},
                               {4096, handle(5)}}));
}

TEST_F(DeviceMemoryResourceTest, ASizeThatCannotBeRoundedIsOutOfMemory)
{
  auto const huge = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(mr.allocate(huge, 2), rmm::out_of_memory);
  EXPECT_THROW(mr.allocate_async(huge - 254, 256, handle(5)), rmm::out_of_memory);
  EXPECT_TRUE(mr.calls.empty());
}
#endif

TEST_F(DeviceMemoryResourceTest, RefusesAnAlignmentOtherThanAPowerOfTwo)
{
  for (std::size_t const alignment : {0U, 3U, 48U, 257U}) {
    EXPECT_THROW(mr.allocate(100, alignment), rmm::bad_alloc) << alignment;
    EXPECT_THROW(mr.allocate_async(100, alignment, handle(5)), rmm::bad_alloc) << alignment;
    EXPECT_THROW(mr.allocate_sync(100, alignment), rmm::bad_alloc) << alignment;
    EXPECT_THROW(mr.allocate(handle(5), 100, alignment), rmm::bad_alloc) << alignment;
  }
  EXPECT_TRUE(mr.calls.empty());
}

TEST_F(DeviceMemoryResourceTest, LaterNamesPassTheSizeUnchanged)
{
  mr.deallocate_sync(mr.allocate_sync(10), 10);
  mr.deallocate_sync(mr.allocate_sync(11, 64), 11, 64);
  mr.deallocate(handle(5), mr.allocate(handle(5), 12), 12);
  mr.deallocate(handle(5), mr.allocate(handle(5), 13, 256), 13, 256);
  EXPECT_EQ(mr.calls,
            (std::vector<call>{{10, nullptr},
                               {10, nullptr},
                               {11, nullptr},
                               {11, nullptr},
                               {12, handle(5)},
                               {12, handle(5)},
                               {13, handle(5)},
                               {13, handle(5)}}));
}

TEST_F(DeviceMemoryResourceTest, LaterNamesRefuseAnAlignmentAbove256)
{
  EXPECT_THROW(mr.allocate_sync(100, 512), rmm::bad_alloc);
  EXPECT_THROW(mr.allocate(handle(5), 100, 512), rmm::bad_alloc);
  EXPECT_TRUE(mr.calls.empty());
}

TEST_F(DeviceMemoryResourceTest, EqualityIsIdentityUnlessOverridden)
{
  recording_device_resource other;
  EXPECT_TRUE(mr.is_equal(mr));
  EXPECT_FALSE(mr.is_equal(other));
  EXPECT_TRUE(mr == mr);
  EXPECT_FALSE(mr == other);
  EXPECT_TRUE(mr != other);
  EXPECT_FALSE(mr != mr);
}

TEST_F(DeviceMemoryResourceTest, AnOverrideDecidesEquality)
{
  always_equal_resource first;
  always_equal_resource second;
  EXPECT_TRUE(first == second);
  EXPECT_FALSE(first != second);
  EXPECT_TRUE(first.is_equal(second));
  EXPECT_FALSE(first == mr);
  EXPECT_FALSE(static_cast<device_memory_resource&>(mr) == first);
}

template <class Mock>
struct DeviceMemoryResourceMockTest : ::testing::Test {};
using mocks = ::testing::Types<user::mock_resource, user::later_mock_resource>;
TYPED_TEST_SUITE(DeviceMemoryResourceMockTest, mocks);

TYPED_TEST(DeviceMemoryResourceMockTest, AMockReceivesTheUsersArguments)
{
  TypeParam mock;
  int memory{};
  EXPECT_CALL(mock, do_allocate(10, rmm::cuda_stream_view{})).WillOnce(::testing::Return(&memory));
  EXPECT_CALL(mock, do_deallocate(&memory, 10, rmm::cuda_stream_view{}));
  mock.deallocate(mock.allocate(10), 10);
}

TYPED_TEST(DeviceMemoryResourceMockTest, AMockIsReferredTo)
{
  TypeParam mock;
  int memory{};
  rmm::device_async_resource_ref const ref{mock};
  EXPECT_CALL(mock, do_allocate(16, rmm::cuda_stream_view{handle(4)})).WillOnce(::testing::Return(&memory));
  EXPECT_CALL(mock, do_deallocate(&memory, 16, rmm::cuda_stream_view{handle(4)}));
  ref.deallocate_async(ref.allocate_async(16, handle(4)), 16, handle(4));
  EXPECT_EQ(ref, rmm::device_async_resource_ref{mock});
}

TEST_F(DeviceMemoryResourceTest, AUsersAdaptorForwards)
{
  user::adaptor adaptor{&mr};
  user::adaptor same{&mr};
  adaptor.deallocate(adaptor.allocate(33, handle(5)), 33, handle(5));
  EXPECT_EQ(mr.calls, (std::vector<call>{{33, handle(5)}, {33, handle(5)}}));
  EXPECT_TRUE(adaptor == same);
  EXPECT_EQ(adaptor.get_upstream_resource(), rmm::device_async_resource_ref{static_cast<device_memory_resource*>(&mr)});
}

}  // namespace
