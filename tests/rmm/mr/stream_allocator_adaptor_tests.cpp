// SPDX-License-Identifier: Apache-2.0
#include "../../support/watched_upstream.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/polymorphic_allocator.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

namespace {

using rmm::mr::polymorphic_allocator;
using rmm::mr::stream_allocator_adaptor;
using rmm::test::watched_upstream;

using adaptor = stream_allocator_adaptor<polymorphic_allocator<int>>;
static_assert(!std::is_default_constructible_v<adaptor>);
static_assert(std::is_same_v<adaptor::value_type, int>);
static_assert(std::is_same_v<std::allocator_traits<adaptor>::rebind_alloc<double>,
                             stream_allocator_adaptor<polymorphic_allocator<double>>>);
static_assert(std::is_same_v<adaptor::rebind<double>::other, stream_allocator_adaptor<polymorphic_allocator<double>>>);

struct StreamAllocatorAdaptor : ::testing::Test {
  rmm::cuda_stream stream;
  watched_upstream upstream;
  polymorphic_allocator<int> allocator{upstream};
};

TEST_F(StreamAllocatorAdaptor, IsDeducedFromItsArguments)
{
  stream_allocator_adaptor adapted{allocator, stream};
  static_assert(std::is_same_v<decltype(adapted), adaptor>);
  EXPECT_EQ(adapted.stream(), stream);
  EXPECT_EQ(adapted.underlying_allocator(), allocator);
}

TEST_F(StreamAllocatorAdaptor, IsMadeByTheFunction)
{
  auto const adapted = rmm::mr::make_stream_allocator_adaptor(allocator, stream);
  static_assert(std::is_same_v<decltype(adapted), adaptor const>);
  EXPECT_EQ(adapted.stream(), stream);
  EXPECT_EQ(adapted.underlying_allocator(), allocator);
}

TEST_F(StreamAllocatorAdaptor, AllocatesOnItsStream)
{
  adaptor adapted{allocator, stream};
  int* const ptr = adapted.allocate(100);
  adapted.deallocate(ptr, 100);
  ASSERT_EQ(upstream.allocated().size(), 1U);
  EXPECT_EQ(upstream.allocated()[0].bytes, 400U);
  EXPECT_EQ(upstream.allocated()[0].stream, stream.value());
  ASSERT_EQ(upstream.deallocated().size(), 1U);
  EXPECT_EQ(upstream.deallocated()[0].stream, stream.value());
}

TEST_F(StreamAllocatorAdaptor, IsAnAllocatorOfTheStandardLibrary)
{
  using traits = std::allocator_traits<adaptor>;
  adaptor adapted{allocator, stream};
  int* const ptr = traits::allocate(adapted, 10);
  EXPECT_NE(ptr, nullptr);
  traits::deallocate(adapted, ptr, 10);
  EXPECT_EQ(upstream.deallocated().size(), 1U);
}

TEST_F(StreamAllocatorAdaptor, ConvertsToOtherElementsWithItsStream)
{
  adaptor const adapted{allocator, stream};
  stream_allocator_adaptor<polymorphic_allocator<double>> converted{adapted};
  EXPECT_EQ(converted.stream(), stream);
  EXPECT_TRUE(converted == adapted);
  converted.deallocate(converted.allocate(100), 100);
  ASSERT_EQ(upstream.allocated().size(), 1U);
  EXPECT_EQ(upstream.allocated()[0].bytes, 800U);
}

TEST_F(StreamAllocatorAdaptor, IsEqualWhateverTheStream)
{
  rmm::cuda_stream other_stream;
  watched_upstream other_upstream;
  adaptor const adapted{allocator, stream};
  EXPECT_TRUE(adapted == (adaptor{allocator, other_stream}));
  EXPECT_FALSE(adapted != (adaptor{allocator, other_stream}));
  EXPECT_TRUE(adapted != (adaptor{polymorphic_allocator<int>{other_upstream}, stream}));
}

}  // namespace
