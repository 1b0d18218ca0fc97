// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <type_traits>

namespace {

using rmm::mr::cuda_memory_resource;
using rmm::mr::managed_memory_resource;

static_assert(std::is_final_v<cuda_memory_resource>);
static_assert(std::is_base_of_v<rmm::mr::device_memory_resource, cuda_memory_resource>);
static_assert(std::is_copy_constructible_v<cuda_memory_resource>);
static_assert(std::is_copy_assignable_v<cuda_memory_resource>);
static_assert(rmm::detail::polyfill::async_resource_with<cuda_memory_resource, cuda::mr::device_accessible>);
static_assert(!rmm::detail::polyfill::resource_with<cuda_memory_resource, cuda::mr::host_accessible>);

static_assert(std::is_final_v<managed_memory_resource>);
static_assert(rmm::detail::polyfill::
                async_resource_with<managed_memory_resource, cuda::mr::device_accessible, cuda::mr::host_accessible>);
static_assert(std::is_constructible_v<rmm::host_device_async_resource_ref, managed_memory_resource&>);

cudaMemoryType type_of(void const* ptr)
{
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
  return attributes.type;
}

TEST(CudaMemoryResourceTest, ItsMemoryIsDeviceMemory)
{
  cuda_memory_resource mr;
  void* const ptr = mr.allocate(100);
  EXPECT_EQ(type_of(ptr), cudaMemoryTypeDevice);
  mr.deallocate(ptr, 100);
}

TEST(CudaMemoryResourceTest, ZeroBytesAreANullPointer)
{
  cuda_memory_resource mr;
  EXPECT_EQ(mr.allocate(0), nullptr);
  EXPECT_NO_THROW(mr.deallocate(nullptr, 0));
}

TEST(CudaMemoryResourceTest, TooMuchMemoryIsOutOfMemory)
{
  cuda_memory_resource mr;
  EXPECT_THROW(mr.allocate(std::size_t{1} << 50U), rmm::out_of_memory);
  EXPECT_THROW(mr.allocate(std::numeric_limits<std::size_t>::max()), rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaMemoryResourceTest, AllAreEqualAndNoOthers)
{
  cuda_memory_resource const first;
  cuda_memory_resource const second;
  managed_memory_resource const managed;
  EXPECT_TRUE(first == second);
  EXPECT_TRUE(first.is_equal(second));
  EXPECT_FALSE(first != second);
  EXPECT_FALSE(first.is_equal(managed));
  EXPECT_FALSE(managed.is_equal(first));
}

TEST(CudaMemoryResourceTest, OneGivesBackWhatAnotherAllocated)
{
  void* const ptr = cuda_memory_resource{}.allocate(100);
  EXPECT_NO_THROW(cuda_memory_resource{}.deallocate(ptr, 100));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(ManagedMemoryResourceTest, ItsMemoryIsManaged)
{
  managed_memory_resource mr;
  void* const ptr = mr.allocate(100);
  EXPECT_EQ(type_of(ptr), cudaMemoryTypeManaged);
  mr.deallocate(ptr, 100);
}

TEST(ManagedMemoryResourceTest, TheHostCanUseIt)
{
  managed_memory_resource mr;
  rmm::cuda_stream const stream;
  auto* const ptr = static_cast<unsigned char*>(mr.allocate(100, stream));
  ASSERT_EQ(cudaMemsetAsync(ptr, 7, 100, stream.value()), cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(ptr[99], 7);
  ptr[99] = 8;
  EXPECT_EQ(ptr[99], 8);
  mr.deallocate(ptr, 100, stream);
}

TEST(ManagedMemoryResourceTest, ZeroBytesAreANullPointer)
{
  managed_memory_resource mr;
  EXPECT_EQ(mr.allocate(0), nullptr);
  EXPECT_NO_THROW(mr.deallocate(nullptr, 0));
}

TEST(ManagedMemoryResourceTest, AllAreEqualAndNoOthers)
{
  managed_memory_resource const first;
  managed_memory_resource const second;
  EXPECT_TRUE(first == second);
  EXPECT_FALSE(first != second);
}

}  // namespace
