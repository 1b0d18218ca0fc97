// SPDX-License-Identifier: Apache-2.0
#include "../../support/watched_upstream.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device/thrust_allocator_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <thrust/device_malloc_allocator.h>
#include <thrust/device_ptr.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

template class rmm::mr::thrust_allocator<int>;

namespace {

using rmm::mr::thrust_allocator;
using rmm::test::registered_for_current_device;
using rmm::test::watched_upstream;

struct record {
  double values[5];
};

template <class T>
struct ThrustAllocator : ::testing::Test {
  rmm::cuda_stream stream;
  watched_upstream upstream;
};

using Elements = ::testing::Types<std::int8_t, std::int32_t, std::uint64_t, double, record>;
TYPED_TEST_SUITE(ThrustAllocator, Elements);

TYPED_TEST(ThrustAllocator, IsAThrustAllocator)
{
  using allocator = thrust_allocator<TypeParam>;
  static_assert(std::is_base_of_v<thrust::device_malloc_allocator<TypeParam>, allocator>);
  static_assert(std::is_same_v<typename allocator::Base, thrust::device_malloc_allocator<TypeParam>>);
  static_assert(std::is_same_v<typename allocator::pointer, thrust::device_ptr<TypeParam>>);
  static_assert(
    std::is_same_v<typename std::allocator_traits<allocator>::template rebind_alloc<char>, thrust_allocator<char>>);
  static_assert(cuda::has_property<allocator, cuda::mr::device_accessible>);
  static_assert(!std::is_convertible_v<rmm::cuda_stream_view, allocator>);
  EXPECT_TRUE(allocator{} == (allocator{this->stream, this->upstream}));  // Thrust treats it as stateless
}

TYPED_TEST(ThrustAllocator, UsesTheDefaultStreamAndTheRegisteredResource)
{
  registered_for_current_device const registration{&this->upstream};
  thrust_allocator<TypeParam> const allocator;
  EXPECT_EQ(allocator.stream(), rmm::cuda_stream_default);
  EXPECT_TRUE(allocator.get_upstream_resource() == rmm::mr::get_current_device_resource_ref());
  EXPECT_EQ(allocator.device(), rmm::get_current_cuda_device());
}

TYPED_TEST(ThrustAllocator, UsesTheGivenStreamAndTheRegisteredResource)
{
  registered_for_current_device const registration{&this->upstream};
  thrust_allocator<TypeParam> const allocator{this->stream};
  EXPECT_EQ(allocator.stream(), this->stream);
  EXPECT_TRUE(allocator.get_upstream_resource() == rmm::mr::get_current_device_resource_ref());
}

TYPED_TEST(ThrustAllocator, AllocatesElementsOnItsStream)
{
  thrust_allocator<TypeParam> allocator{this->stream, &this->upstream};
  auto const ptr = allocator.allocate(64);
  EXPECT_NE(ptr.get(), nullptr);
  allocator.deallocate(ptr, 64);
  ASSERT_EQ(this->upstream.allocated().size(), 1U);
  EXPECT_EQ(this->upstream.allocated()[0].bytes, 64 * sizeof(TypeParam));
  EXPECT_EQ(this->upstream.allocated()[0].stream, this->stream.value());
  ASSERT_EQ(this->upstream.deallocated().size(), 1U);
  EXPECT_EQ(this->upstream.deallocated()[0].stream, this->stream.value());
}

TYPED_TEST(ThrustAllocator, RefusesMoreElementsThanAnAddressSpaceHas)
{
  auto const fits     = std::numeric_limits<std::size_t>::max() / sizeof(TypeParam);
  auto const too_many = sizeof(TypeParam) == 1 ? fits : fits + 1;
  thrust_allocator<TypeParam> allocator{this->stream, this->upstream};
  EXPECT_THROW(static_cast<void>(allocator.allocate(too_many)), rmm::out_of_memory);
}

TYPED_TEST(ThrustAllocator, ConvertsWithResourceAndStream)
{
  thrust_allocator<TypeParam> const allocator{this->stream, this->upstream};
  thrust_allocator<char> const converted{allocator};
  EXPECT_EQ(converted.stream(), this->stream);
  EXPECT_TRUE(converted.get_upstream_resource() == allocator.get_upstream_resource());
  EXPECT_EQ(converted.device(), allocator.device());
}

TYPED_TEST(ThrustAllocator, CallsTheResourceOnItsDevice)
{
  if (rmm::get_num_cuda_devices() < 2) { GTEST_SKIP() << "needs two devices"; }
  rmm::cuda_set_device_raii const original{rmm::cuda_device_id{0}};
  thrust_allocator<char> const made_on_original{rmm::cuda_stream_default, this->upstream};
  {
    rmm::cuda_set_device_raii const other{rmm::cuda_device_id{1}};
    thrust_allocator<TypeParam> allocator{made_on_original};
    allocator.deallocate(allocator.allocate(8), 8);
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
  }
  ASSERT_EQ(this->upstream.allocated().size(), 1U);
  EXPECT_EQ(this->upstream.allocated()[0].device, 0);
  EXPECT_EQ(this->upstream.deallocated()[0].device, 0);
}

}  // namespace
