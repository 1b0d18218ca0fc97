// SPDX-License-Identifier: Apache-2.0
#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include "../../support/sanitizers.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

namespace {

using rmm::mr::pinned_host_memory_resource;

static_assert(rmm::detail::polyfill::async_resource_with<pinned_host_memory_resource,
                                                         cuda::mr::host_accessible,
                                                         cuda::mr::device_accessible>);
static_assert(std::is_convertible_v<pinned_host_memory_resource&, rmm::host_device_async_resource_ref>);
static_assert(std::is_convertible_v<pinned_host_memory_resource*, rmm::device_async_resource_ref>);
static_assert(std::is_convertible_v<pinned_host_memory_resource&, rmm::host_resource_ref>);
static_assert(std::is_base_of_v<rmm::mr::device_memory_resource, pinned_host_memory_resource>);

// Calls functions of the class without virtual dispatch: no object has to exist.
static_assert(noexcept(std::declval<pinned_host_memory_resource&>().deallocate(nullptr, 0, 16)));
static_assert(noexcept(std::declval<pinned_host_memory_resource&>().deallocate_async(nullptr, 0, 16, {})));

struct PinnedHostMemoryResource : ::testing::Test {
  pinned_host_memory_resource resource;
  rmm::cuda_stream stream;
};

TEST_F(PinnedHostMemoryResource, GivesHostMemoryThatCudaKnows)
{
  auto* const ptr = static_cast<char*>(resource.allocate(1000, stream));
  std::memset(ptr, 1, 1000);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  resource.deallocate(ptr, 1000, stream);
}

TEST_F(PinnedHostMemoryResource, AlignsAsDeviceResourcesDo)
{
  for (auto const bytes : std::initializer_list<std::size_t>{1, 3, 100, 5000}) {
    void* const ptr = resource.allocate(bytes);
    EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::CUDA_ALLOCATION_ALIGNMENT));
    resource.deallocate(ptr, bytes);
  }
}

// Programs write pool_memory_resource<pinned_host_memory_resource>(std::make_shared<…>().get(), …), so the resource is destroyed
// before the pool.
TEST_F(PinnedHostMemoryResource, MayEndBeforeAPoolOverIt)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "such programs are wrong, and sanitizers say so"; }
  alignas(pinned_host_memory_resource) std::byte storage[sizeof(pinned_host_memory_resource)];
  auto* const upstream = new (storage) pinned_host_memory_resource;
  rmm::mr::pool_memory_resource<pinned_host_memory_resource> pool{upstream, 4096};
  upstream->~pinned_host_memory_resource();
  std::memset(storage, 0, sizeof storage);
  void* const ptr = pool.allocate(10000, stream);
  std::memset(ptr, 1, 10000);
  pool.deallocate(ptr, 10000, stream);
}

TEST_F(PinnedHostMemoryResource, HonoursLargerAlignments)
{
  rmm::host_device_async_resource_ref const ref{resource};
  for (std::size_t alignment = 1; alignment <= 65536; alignment *= 2) {
    void* const direct = resource.allocate(1000, alignment);
    void* const async  = resource.allocate_async(1000, alignment, stream);
    void* const by_ref = ref.allocate_async(1000, alignment, stream);
    EXPECT_TRUE(rmm::is_pointer_aligned(direct, alignment));
    EXPECT_TRUE(rmm::is_pointer_aligned(async, alignment));
    EXPECT_TRUE(rmm::is_pointer_aligned(by_ref, alignment));
    resource.deallocate(direct, 1000, alignment);
    resource.deallocate_async(async, 1000, alignment, stream);
    ref.deallocate_async(by_ref, 1000, alignment, stream);
  }
}

TEST_F(PinnedHostMemoryResource, RefusesAlignmentsOtherThanPowersOfTwo)
{
  EXPECT_THROW(resource.allocate(1000, std::size_t{48}), rmm::bad_alloc);
  EXPECT_THROW(resource.allocate_async(1000, 48, stream), rmm::bad_alloc);
}

TEST_F(PinnedHostMemoryResource, GivesNullForNoBytes)
{
  EXPECT_EQ(resource.allocate(0), nullptr);
  EXPECT_EQ(resource.allocate(0, std::size_t{64}), nullptr);
  EXPECT_NO_THROW(resource.deallocate(nullptr, 0));
  EXPECT_NO_THROW(resource.deallocate_async(nullptr, 0, 64, stream));
}

TEST_F(PinnedHostMemoryResource, AnswersInEverySpelling)
{
  void* ptr = resource.allocate_async(8, stream);
  resource.deallocate_async(ptr, 8, stream);
  ptr = resource.allocate_sync(8);
  resource.deallocate_sync(ptr, 8);
  ptr = resource.allocate(stream, 8);
  resource.deallocate(stream, ptr, 8);
  ptr = resource.allocate(8, stream.value());
  resource.deallocate(ptr, 8, stream.value());
  EXPECT_NE(ptr, nullptr);
}

TEST_F(PinnedHostMemoryResource, SaysThatMemoryIsMissing)
{
  EXPECT_THROW(resource.allocate(std::size_t{1} << 50), rmm::out_of_memory);
  EXPECT_THROW(resource.allocate(std::numeric_limits<std::size_t>::max()), rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(PinnedHostMemoryResource, IsEqualToItsClass)
{
  EXPECT_TRUE(resource == pinned_host_memory_resource{});
  EXPECT_FALSE(resource != pinned_host_memory_resource{});
  EXPECT_FALSE(resource == rmm::mr::cuda_memory_resource{});
}

TEST_F(PinnedHostMemoryResource, ServesContainers)
{
  char const text[] = "pinned";
  rmm::device_buffer const buffer(text, sizeof text, stream, resource);
  stream.synchronize();
  EXPECT_STREQ(static_cast<char const*>(buffer.data()), text);
}

}  // namespace
