// SPDX-License-Identifier: Apache-2.0
#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/detail/runtime_capabilities.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace {

using rmm::mr::cuda_async_managed_memory_resource;

static_assert(std::is_final_v<cuda_async_managed_memory_resource>);
static_assert(std::is_copy_constructible_v<cuda_async_managed_memory_resource>);
static_assert(std::is_constructible_v<cuda_async_managed_memory_resource, std::size_t>);
static_assert(std::is_constructible_v<cuda_async_managed_memory_resource, std::optional<std::size_t>>);
static_assert(!std::is_convertible_v<std::size_t, cuda_async_managed_memory_resource>);
static_assert(!std::is_convertible_v<std::optional<std::size_t>, cuda_async_managed_memory_resource>);

/// The default constructor is not explicit: this compiles.
[[maybe_unused]] cuda_async_managed_memory_resource made_of_empty_braces() { return {}; }

[[nodiscard]] std::uint64_t threshold_of(cuda_async_managed_memory_resource const& resource)
{
  std::uint64_t bytes{};
  EXPECT_EQ(cudaMemPoolGetAttribute(resource.pool_handle(), cudaMemPoolAttrReleaseThreshold, &bytes), cudaSuccess);
  return bytes;
}

static_assert(rmm::detail::polyfill::async_resource_with<cuda_async_managed_memory_resource,
                                                         cuda::mr::host_accessible,
                                                         cuda::mr::device_accessible>);

TEST(CudaAsyncManagedMemorySupport, IsNeededByTheResource)
{
  if (rmm::detail::runtime_async_managed_alloc::is_supported()) {
    GTEST_SKIP() << "this device has pools of managed memory";
  }
  EXPECT_THROW(cuda_async_managed_memory_resource{}, rmm::logic_error);
  EXPECT_THROW(cuda_async_managed_memory_resource{std::size_t{1} << 20U}, rmm::logic_error);
}

struct CudaAsyncManagedMemoryResource : ::testing::Test {
  void SetUp() override
  {
    if (!rmm::detail::runtime_async_managed_alloc::is_supported()) {
      GTEST_SKIP() << "this device or driver has no pools of managed memory";
    }
  }
  rmm::cuda_stream stream;
};

TEST_F(CudaAsyncManagedMemoryResource, GivesAlignedManagedMemory)
{
  cuda_async_managed_memory_resource resource;
  void* const ptr = resource.allocate(1000, stream);
  stream.synchronize();
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::CUDA_ALLOCATION_ALIGNMENT));
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
  static_cast<char*>(ptr)[999] = 1;
  resource.deallocate(ptr, 1000, stream);
}

TEST_F(CudaAsyncManagedMemoryResource, GivesNullForNoBytes)
{
  cuda_async_managed_memory_resource resource;
  EXPECT_EQ(resource.allocate(0, stream), nullptr);
  EXPECT_NO_THROW(resource.deallocate(nullptr, 0, stream));
}

TEST_F(CudaAsyncManagedMemoryResource, UsesOnePoolOfTheDriver)
{
  cuda_async_managed_memory_resource const resource;
  cuda_async_managed_memory_resource const other;
  EXPECT_NE(resource.pool_handle(), nullptr);
  EXPECT_EQ(resource.pool_handle(), other.pool_handle());
  EXPECT_TRUE(resource == other);
  EXPECT_FALSE(resource == rmm::mr::managed_memory_resource{});
}

TEST_F(CudaAsyncManagedMemoryResource, KeepsAsMuchAsTheDeviceHasByDefault)
{
  auto const all = rmm::available_device_memory().second;
  cuda_async_managed_memory_resource const less{0};
  EXPECT_EQ(threshold_of(less), 0U);
  EXPECT_EQ(threshold_of(cuda_async_managed_memory_resource{}), all);
  cuda_async_managed_memory_resource const less_again{0};
  EXPECT_EQ(threshold_of(cuda_async_managed_memory_resource{std::nullopt}), all);
}

TEST_F(CudaAsyncManagedMemoryResource, TheLastThresholdCountsForAllWhoUseThePool)
{
  cuda_async_managed_memory_resource const first{std::size_t{3} << 20U};
  EXPECT_EQ(threshold_of(first), std::uint64_t{3} << 20U);
  cuda_async_managed_memory_resource const second{std::size_t{2} << 20U};
  EXPECT_EQ(threshold_of(first), std::uint64_t{2} << 20U);
  EXPECT_EQ(threshold_of(second), std::uint64_t{2} << 20U);
  EXPECT_TRUE(first == second);
  cuda_async_managed_memory_resource const copy{first};
  EXPECT_EQ(threshold_of(copy), std::uint64_t{2} << 20U) << "a copy sets none";
}

}  // namespace
