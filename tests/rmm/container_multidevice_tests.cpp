// SPDX-License-Identifier: Apache-2.0
#include "../support/watched_upstream.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>

/// Containers of another device than the current one. The resource records the current device of each call.

namespace {

using rmm::cuda_device_id;
using rmm::cuda_set_device_raii;
using rmm::device_buffer;
using rmm::test::watched_upstream;

template <class Container>
struct ContainerMultiDeviceTest : ::testing::Test {
  void SetUp() override
  {
    if (rmm::get_num_cuda_devices() < 2) { GTEST_SKIP() << "needs two devices"; }
    rmm::mr::set_per_device_resource(cuda_device_id{0}, &resource);
    rmm::mr::set_per_device_resource(cuda_device_id{1}, &resource);
  }

  void TearDown() override
  {
    rmm::mr::reset_per_device_resource(cuda_device_id{0});
    rmm::mr::reset_per_device_resource(cuda_device_id{1});
  }

  // Returns the current device of the resource's last call.
  [[nodiscard]] int last_device() const { return resource.calls.back().device; }
  static int current_device() { return rmm::get_current_cuda_device().value(); }

  watched_upstream resource;
  std::size_t const count{1000};
};
using containers = ::testing::Types<device_buffer, rmm::device_uvector<char>>;
TYPED_TEST_SUITE(ContainerMultiDeviceTest, containers);

TYPED_TEST(ContainerMultiDeviceTest, ItAllocatesOnTheCurrentDevice)
{
  cuda_set_device_raii const guard{cuda_device_id{1}};
  TypeParam const container(this->count, rmm::cuda_stream_default);
  EXPECT_EQ(this->last_device(), 1);
}

TYPED_TEST(ContainerMultiDeviceTest, ItsMemoryIsGivenBackOnItsOwnDevice)
{
  {
    cuda_set_device_raii const guard{cuda_device_id{0}};
    TypeParam const container(this->count, rmm::cuda_stream_default);
    cuda_set_device_raii const other{cuda_device_id{1}};
    EXPECT_EQ(this->current_device(), 1);
    TypeParam const second(this->count, rmm::cuda_stream_default);
  }
  EXPECT_EQ(this->last_device(), 0);
}

TYPED_TEST(ContainerMultiDeviceTest, DestructionLeavesTheCurrentDevice)
{
  cuda_set_device_raii const guard{cuda_device_id{0}};
  TypeParam container(this->count, rmm::cuda_stream_default);
  cuda_set_device_raii const other{cuda_device_id{1}};
  {
    TypeParam const dies{std::move(container)};
  }
  EXPECT_EQ(this->last_device(), 0);
  EXPECT_EQ(this->current_device(), 1);
}

TYPED_TEST(ContainerMultiDeviceTest, MovingTakesTheDeviceOver)
{
  cuda_set_device_raii const guard{cuda_device_id{0}};
  TypeParam from(this->count, rmm::cuda_stream_default);
  {
    cuda_set_device_raii const other{cuda_device_id{1}};
    TypeParam const to{std::move(from)};
  }
  EXPECT_EQ(this->last_device(), 0);
}

TYPED_TEST(ContainerMultiDeviceTest, MoveAssignmentGivesTheOldMemoryBackOnItsDevice)
{
  cuda_set_device_raii const guard{cuda_device_id{0}};
  TypeParam first(this->count, rmm::cuda_stream_default);
  {
    cuda_set_device_raii const other{cuda_device_id{1}};
    TypeParam second(this->count, rmm::cuda_stream_default);
    first = std::move(second);
    EXPECT_EQ(this->last_device(), 0);
    EXPECT_EQ(this->current_device(), 1);
  }
  first = TypeParam(0, rmm::cuda_stream_default);
  EXPECT_EQ(this->last_device(), 1);
}

TYPED_TEST(ContainerMultiDeviceTest, ResizingUsesItsOwnDevice)
{
  cuda_set_device_raii const guard{cuda_device_id{0}};
  TypeParam container(this->count, rmm::cuda_stream_default);
  cuda_set_device_raii const other{cuda_device_id{1}};
  container.resize(2 * this->count, rmm::cuda_stream_default);
  EXPECT_EQ(this->resource.calls.size(), 3);
  EXPECT_EQ(this->resource.calls[1].device, 0);
  EXPECT_EQ(this->resource.calls[2].device, 0);
  EXPECT_EQ(this->current_device(), 1);
}

TYPED_TEST(ContainerMultiDeviceTest, ReservingUsesItsOwnDevice)
{
  cuda_set_device_raii const guard{cuda_device_id{0}};
  TypeParam container(this->count, rmm::cuda_stream_default);
  cuda_set_device_raii const other{cuda_device_id{1}};
  container.reserve(2 * this->count, rmm::cuda_stream_default);
  EXPECT_EQ(this->last_device(), 0);
  EXPECT_EQ(this->current_device(), 1);
}

TYPED_TEST(ContainerMultiDeviceTest, ShrinkingUsesItsOwnDevice)
{
  cuda_set_device_raii const guard{cuda_device_id{0}};
  TypeParam container(this->count, rmm::cuda_stream_default);
  cuda_set_device_raii const other{cuda_device_id{1}};
  container.resize(this->count / 2, rmm::cuda_stream_default);
  container.shrink_to_fit(rmm::cuda_stream_default);
  EXPECT_EQ(this->last_device(), 0);
  EXPECT_EQ(this->current_device(), 1);
}

TYPED_TEST(ContainerMultiDeviceTest, AFailureLeavesTheCurrentDevice)
{
  cuda_set_device_raii const guard{cuda_device_id{0}};
  TypeParam container(this->count, rmm::cuda_stream_default);
  cuda_set_device_raii const other{cuda_device_id{1}};
  this->resource.allocations_until_failure = 0;
  EXPECT_THROW(container.resize(2 * this->count, rmm::cuda_stream_default), rmm::out_of_memory);
  EXPECT_EQ(this->current_device(), 1);
}

}  // namespace
