// SPDX-License-Identifier: Apache-2.0
#include "../../support/watched_upstream.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/polymorphic_allocator.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <type_traits>

namespace {

using rmm::mr::polymorphic_allocator;
using rmm::test::registered_for_current_device;
using rmm::test::watched_upstream;

static_assert(std::is_same_v<polymorphic_allocator<int>::value_type, int>);
static_assert(std::is_convertible_v<rmm::device_async_resource_ref, polymorphic_allocator<int>>);
static_assert(std::is_nothrow_constructible_v<polymorphic_allocator<int>, polymorphic_allocator<double> const&>);
static_assert(std::is_same_v<std::allocator_traits<polymorphic_allocator<int>>::rebind_alloc<double>,
                             polymorphic_allocator<double>>);

TEST(PolymorphicAllocator, UsesTheRegisteredResourceByDefault)
{
  watched_upstream upstream;
  registered_for_current_device const registration{&upstream};
  polymorphic_allocator<int> const allocator{};
  EXPECT_TRUE(allocator.get_upstream_resource() == rmm::mr::get_current_device_resource_ref());
}

TEST(PolymorphicAllocator, KeepsTheResourceThatWasRegisteredFirst)
{
  rmm::cuda_stream stream;
  watched_upstream upstream;
  polymorphic_allocator<int> allocator = [&] {
    registered_for_current_device const registration{&upstream};
    return polymorphic_allocator<int>{};
  }();
  allocator.deallocate(allocator.allocate(4, stream), 4, stream);
  EXPECT_EQ(upstream.allocated().size(), 1U);
}

TEST(PolymorphicAllocator, TakesPointersAndObjects)
{
  watched_upstream upstream;
  polymorphic_allocator<int> const from_pointer{&upstream};
  polymorphic_allocator<int> const from_object{upstream};
  EXPECT_TRUE(from_pointer.get_upstream_resource() == rmm::device_async_resource_ref{upstream});
  EXPECT_EQ(from_pointer, from_object);
}

TEST(PolymorphicAllocator, AllocatesObjectsInTheOrderOfTheStream)
{
  rmm::cuda_stream stream;
  rmm::cuda_stream other;
  watched_upstream upstream;
  polymorphic_allocator<double> allocator{upstream};
  double* const ptr = allocator.allocate(100, stream);
  EXPECT_NE(ptr, nullptr);
  ASSERT_EQ(upstream.allocated().size(), 1U);
  EXPECT_EQ(upstream.allocated()[0].bytes, 800U);
  EXPECT_EQ(upstream.allocated()[0].stream, stream.value());
  allocator.deallocate(ptr, 100, other);
  ASSERT_EQ(upstream.deallocated().size(), 1U);
  EXPECT_EQ(upstream.deallocated()[0].stream, other.value());
}

TEST(PolymorphicAllocator, RefusesMoreObjectsThanAnAddressSpaceHas)
{
  watched_upstream upstream;
  polymorphic_allocator<double> allocator{upstream};
  auto const too_many = std::numeric_limits<std::size_t>::max() / sizeof(double) + 1;
  EXPECT_THROW(static_cast<void>(allocator.allocate(too_many, {})), rmm::out_of_memory);
  EXPECT_TRUE(upstream.allocated().empty());
}

TEST(PolymorphicAllocator, ConvertsToOtherElements)
{
  watched_upstream upstream;
  polymorphic_allocator<int> const allocator{upstream};
  polymorphic_allocator<double> const converted{allocator};
  EXPECT_TRUE(converted == allocator);
  EXPECT_FALSE(converted != allocator);
}

TEST(PolymorphicAllocator, IsEqualIfItsResourceIs)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::cuda_memory_resource same;
  rmm::mr::managed_memory_resource managed;
  EXPECT_TRUE(polymorphic_allocator<int>{cuda} == polymorphic_allocator<int>{same});
  EXPECT_TRUE(polymorphic_allocator<int>{cuda} != polymorphic_allocator<int>{managed});
  EXPECT_FALSE(polymorphic_allocator<int>{cuda} == polymorphic_allocator<double>{managed});
}

}  // namespace
