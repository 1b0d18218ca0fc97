// SPDX-License-Identifier: Apache-2.0
#include "../../support/device_resource_suite.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>

namespace {

using rmm::mr::pinned_host_memory_resource;
using rmm::mr::pinned_memory_options;
using rmm::mr::pinned_pool_memory_resource;
using rmm::mr::pool_memory_resource;
using rmm::mr::registered_host_memory_resource;

template <class Resource>
inline constexpr bool is_pinned_resource =
  rmm::detail::polyfill::async_resource_with<Resource, cuda::mr::host_accessible, cuda::mr::device_accessible>;

static_assert(is_pinned_resource<registered_host_memory_resource>);
static_assert(is_pinned_resource<pinned_pool_memory_resource>);
static_assert(is_pinned_resource<pool_memory_resource<registered_host_memory_resource>>);
static_assert(std::is_convertible_v<pinned_pool_memory_resource&, rmm::host_device_async_resource_ref>);

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

struct RegisteredHostMemoryResource : ::testing::Test {
  registered_host_memory_resource resource;
  rmm::cuda_stream stream;
};

TEST_F(RegisteredHostMemoryResource, GivesHostMemoryThatCudaKnows)
{
  for (auto const bytes : std::initializer_list<std::size_t>{1, 1000, mebibyte - 1, mebibyte, 5 * mebibyte + 3}) {
    auto* const ptr = static_cast<char*>(resource.allocate(bytes, stream));
    std::memset(ptr, 1, bytes);
    for (auto const* const place : {ptr, ptr + bytes - 1}) {
      cudaPointerAttributes attributes{};
      ASSERT_EQ(cudaPointerGetAttributes(&attributes, place), cudaSuccess);
      EXPECT_EQ(attributes.type, cudaMemoryTypeHost) << bytes;
      EXPECT_EQ(attributes.devicePointer, place) << bytes;
    }
    resource.deallocate(ptr, bytes, stream);
  }
}

TEST_F(RegisteredHostMemoryResource, AlignsLargeBlocksToPages)
{
  auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (auto const bytes : {mebibyte, 3 * mebibyte + 1}) {
    void* const ptr = resource.allocate(bytes);
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, page));
    resource.deallocate(ptr, bytes);
  }
}

TEST_F(RegisteredHostMemoryResource, GivesMemoryThatTheDeviceReadsAndWrites)
{
  std::size_t const bytes = 80 * mebibyte;  // two threads create its pages
  auto* const source      = static_cast<char*>(resource.allocate(bytes, stream));
  auto* const target      = static_cast<char*>(resource.allocate(bytes, stream));
  for (std::size_t i = 0; i < bytes; ++i) { source[i] = static_cast<char>(i * 7 + i / 4096); }
  {
    rmm::device_buffer const buffer{source, bytes, stream};
    ASSERT_EQ(cudaMemcpyAsync(target, buffer.data(), bytes, cudaMemcpyDefault, stream.value()), cudaSuccess);
    stream.synchronize();
  }
  EXPECT_TRUE(std::equal(source, source + bytes, target));
  resource.deallocate(source, bytes, stream);
  resource.deallocate(target, bytes, stream);
}

TEST_F(RegisteredHostMemoryResource, GivesNullForNoBytes)
{
  EXPECT_EQ(resource.allocate(0), nullptr);
  EXPECT_NO_THROW(resource.deallocate(nullptr, 0));
  EXPECT_NO_THROW(resource.deallocate(nullptr, mebibyte));
}

TEST_F(RegisteredHostMemoryResource, SaysThatMemoryIsMissing)
{
  EXPECT_THROW(resource.allocate(std::size_t{1} << 50U), rmm::out_of_memory);
  EXPECT_THROW(resource.allocate(std::numeric_limits<std::size_t>::max()), rmm::out_of_memory);
  EXPECT_THROW(resource.allocate(std::numeric_limits<std::size_t>::max() - 4096), rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(RegisteredHostMemoryResource, IsEqualToItsClass)
{
  registered_host_memory_resource const near_device{pinned_memory_options{true, {}, 1}};
  EXPECT_TRUE(resource == near_device);
  EXPECT_FALSE(resource == pinned_host_memory_resource{});
  EXPECT_FALSE(pinned_host_memory_resource{} == resource);

  void* const ptr = registered_host_memory_resource{}.allocate(mebibyte);
  resource.deallocate(ptr, mebibyte);
}

TEST_F(RegisteredHostMemoryResource, ServesOnEveryNode)
{
  for (int const node : {0, 1, 1023, 1024, std::numeric_limits<int>::max()}) {
    registered_host_memory_resource of_node{pinned_memory_options{false, node, 0}};
    EXPECT_EQ(of_node.numa_node(), node);
    void* const ptr = of_node.allocate(2 * mebibyte);
    std::memset(ptr, 1, 2 * mebibyte);
    of_node.deallocate(ptr, 2 * mebibyte);
  }
  registered_host_memory_resource near_device{pinned_memory_options{true, {}, 0}};
  void* const ptr = near_device.allocate(2 * mebibyte);
  near_device.deallocate(ptr, 2 * mebibyte);
  EXPECT_EQ(resource.numa_node(), std::nullopt);
}

TEST_F(RegisteredHostMemoryResource, OnlyTheNodeHasToBeGiven)
{
  pinned_memory_options options;
  options.numa_node = 0;
  EXPECT_EQ(registered_host_memory_resource{options}.numa_node(), 0);
}

TEST_F(RegisteredHostMemoryResource, RefusesInvalidNodes)
{
  EXPECT_THROW((registered_host_memory_resource{pinned_memory_options{false, -1, 0}}), rmm::logic_error);
  EXPECT_THROW((registered_host_memory_resource{pinned_memory_options{true, 0, 0}}), rmm::logic_error);
}

TEST(PinnedPool, SuballocatesWhatItLocked)
{
  pinned_pool_memory_resource pool{4 * mebibyte, 8 * mebibyte};
  EXPECT_EQ(pool.pool_size(), 4 * mebibyte);
  void* const first = pool.allocate(1000);
  std::memset(first, 1, 1000);
  void* const all = pool.allocate(3 * mebibyte);
  EXPECT_EQ(pool.pool_size(), 4 * mebibyte);
  EXPECT_EQ(pool.figures().live_bytes, 3 * mebibyte + 1024);
  EXPECT_THROW(pool.allocate(5 * mebibyte), rmm::out_of_memory);
  pool.deallocate(first, 1000);
  pool.deallocate(all, 3 * mebibyte);
}

TEST(PinnedPool, TakesItsMemoryFromTheRequestedNode)
{
  pinned_pool_memory_resource const pool{mebibyte, {}, pinned_memory_options{false, 0, 2}};
  EXPECT_EQ(pool.numa_node(), 0);
  EXPECT_EQ(pool.pool().get_upstream()->numa_node(), 0);
}

}  // namespace

namespace rmm::test {

struct pinned_pool {
  mr::pinned_pool_memory_resource mr{4 * mebibyte, 768 * mebibyte};
};

INSTANTIATE_TYPED_TEST_SUITE_P(PinnedPool, DeviceMrRefTest, ::testing::Types<pinned_pool>);

}  // namespace rmm::test
