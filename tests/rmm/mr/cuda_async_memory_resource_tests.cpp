// SPDX-License-Identifier: Apache-2.0
#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_view_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

namespace {

using rmm::mr::cuda_async_memory_resource;
using rmm::mr::cuda_async_view_memory_resource;
using ::testing::HasSubstr;

using handle_type = cuda_async_memory_resource::allocation_handle_type;
static_assert(std::is_final_v<cuda_async_memory_resource>);
static_assert(std::is_default_constructible_v<cuda_async_memory_resource>);
static_assert(std::is_convertible_v<std::optional<std::size_t>, cuda_async_memory_resource>);
static_assert(std::is_constructible_v<cuda_async_memory_resource, int, int, handle_type>);
static_assert(!std::is_copy_constructible_v<cuda_async_memory_resource>);
static_assert(!std::is_move_constructible_v<cuda_async_memory_resource>);
static_assert(std::is_same_v<std::underlying_type_t<handle_type>, std::int32_t>);
static_assert(static_cast<int>(handle_type::none) == cudaMemHandleTypeNone);
static_assert(static_cast<int>(handle_type::posix_file_descriptor) == cudaMemHandleTypePosixFileDescriptor);
static_assert(static_cast<int>(handle_type::win32) == cudaMemHandleTypeWin32);
static_assert(static_cast<int>(handle_type::win32_kmt) == cudaMemHandleTypeWin32Kmt);
static_assert(static_cast<int>(handle_type::fabric) == 8);
static_assert(static_cast<int>(cuda_async_memory_resource::mempool_usage::hw_decompress) == 0x2);
static_assert(rmm::detail::polyfill::async_resource_with<cuda_async_memory_resource, cuda::mr::device_accessible>);

static_assert(std::is_final_v<cuda_async_view_memory_resource>);
static_assert(std::is_convertible_v<cudaMemPool_t, cuda_async_view_memory_resource>);
static_assert(std::is_copy_constructible_v<cuda_async_view_memory_resource>);
static_assert(std::is_move_assignable_v<cuda_async_view_memory_resource>);
static_assert(rmm::detail::polyfill::async_resource_with<cuda_async_view_memory_resource, cuda::mr::device_accessible>);

#if !defined(RMM_CUDA_MALLOC_ASYNC_SUPPORT)
#error "the header says what the toolkit has"
#endif

[[nodiscard]] std::uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which)
{
  std::uint64_t value{};
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, which, &value), cudaSuccess);
  return value;
}

struct CudaAsyncMemoryResource : ::testing::Test {
  void SetUp() override
  {
    if (!rmm::detail::runtime_async_alloc::is_supported()) {
      GTEST_SKIP() << "this device or driver has no asynchronous pools";
    }
  }
  rmm::cuda_stream stream;
};

TEST_F(CudaAsyncMemoryResource, GivesAlignedDeviceMemory)
{
  cuda_async_memory_resource resource;
  void* const ptr = resource.allocate(100, stream);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::CUDA_ALLOCATION_ALIGNMENT));
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, rmm::get_current_cuda_device().value());
  resource.deallocate(ptr, 100, stream);
}

TEST_F(CudaAsyncMemoryResource, GivesNullForNoBytes)
{
  cuda_async_memory_resource resource;
  EXPECT_EQ(resource.allocate(0, stream), nullptr);
  EXPECT_NO_THROW(resource.deallocate(nullptr, 0, stream));
}

TEST_F(CudaAsyncMemoryResource, AllocatesFromThePoolOfItsHandle)
{
  cuda_async_memory_resource resource;
  void* const ptr = resource.allocate(1 << 20, stream);
  stream.synchronize();
  EXPECT_GE(attribute(resource.pool_handle(), cudaMemPoolAttrUsedMemCurrent), std::uint64_t{1} << 20);
  resource.deallocate(ptr, 1 << 20, stream);
  stream.synchronize();
  EXPECT_EQ(attribute(resource.pool_handle(), cudaMemPoolAttrUsedMemCurrent), 0U);
}

TEST_F(CudaAsyncMemoryResource, ReservesNothingByDefault)
{
  cuda_async_memory_resource const resource;
  cuda_async_memory_resource const zero{0};
  EXPECT_EQ(attribute(resource.pool_handle(), cudaMemPoolAttrReservedMemHigh), 0U);
  EXPECT_EQ(attribute(zero.pool_handle(), cudaMemPoolAttrReservedMemHigh), 0U);
}

TEST_F(CudaAsyncMemoryResource, ReservesTheInitialSize)
{
  std::size_t const size = 64 << 20;
  cuda_async_memory_resource const resource{size};
  EXPECT_GE(attribute(resource.pool_handle(), cudaMemPoolAttrReservedMemHigh), size);
  ASSERT_EQ(cudaStreamSynchronize(rmm::cuda_stream_default.value()), cudaSuccess);
  EXPECT_EQ(attribute(resource.pool_handle(), cudaMemPoolAttrUsedMemCurrent), 0U);
}

TEST_F(CudaAsyncMemoryResource, CannotReserveMoreThanTheDeviceHas)
{
  EXPECT_THROW(cuda_async_memory_resource{std::size_t{1} << 50}, rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaAsyncMemoryResource, KeepsAllMemoryOfTheDeviceByDefault)
{
  cuda_async_memory_resource const resource;
  EXPECT_EQ(attribute(resource.pool_handle(), cudaMemPoolAttrReleaseThreshold), rmm::available_device_memory().second);
}

TEST_F(CudaAsyncMemoryResource, KeepsMemoryUpToTheThreshold)
{
  cuda_async_memory_resource const resource{std::nullopt, 1 << 20};
  EXPECT_EQ(attribute(resource.pool_handle(), cudaMemPoolAttrReleaseThreshold), std::uint64_t{1} << 20);
}

TEST_F(CudaAsyncMemoryResource, ExportsAsFileDescriptor)
{
  if (!rmm::detail::export_handle_type::is_supported(cudaMemHandleTypePosixFileDescriptor)) {
    GTEST_SKIP() << "this device cannot export memory as a file descriptor";
  }
  cuda_async_memory_resource resource{std::nullopt, std::nullopt, handle_type::posix_file_descriptor};
  resource.deallocate(resource.allocate(100, stream), 100, stream);
  EXPECT_NE(resource.pool_handle(), nullptr);
}

TEST_F(CudaAsyncMemoryResource, RefusesUnsupportedHandleTypes)
{
  try {
    cuda_async_memory_resource const resource{std::nullopt, std::nullopt, handle_type::win32};
    ADD_FAILURE() << "this is not Windows";
  } catch (rmm::logic_error const& error) {
    EXPECT_THAT(error.what(), HasSubstr("Requested IPC memory handle type not supported"));
  }
}

TEST_F(CudaAsyncMemoryResource, ReportsLackOfMemory)
{
  cuda_async_memory_resource resource;
  EXPECT_THROW(resource.allocate(std::size_t{1} << 50, stream), rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaAsyncMemoryResource, IsEqualIfThePoolIs)
{
  cuda_async_memory_resource const resource;
  cuda_async_memory_resource const other;
  EXPECT_TRUE(resource == resource);
  EXPECT_FALSE(resource == other);
  EXPECT_FALSE(resource == rmm::mr::cuda_memory_resource{});
  EXPECT_FALSE(resource == cuda_async_view_memory_resource{resource.pool_handle()});
}

TEST_F(CudaAsyncMemoryResource, ServesContainers)
{
  cuda_async_memory_resource resource;
  rmm::device_uvector<int> vector{10, stream, resource};
  vector.set_element(9, 7, stream);
  vector.resize(1000, stream);
  EXPECT_EQ(vector.element(9, stream), 7);
}

using CudaAsyncViewMemoryResource = CudaAsyncMemoryResource;

TEST_F(CudaAsyncViewMemoryResource, AllocatesFromAForeignPool)
{
  cudaMemPool_t pool{};
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, rmm::get_current_cuda_device().value()), cudaSuccess);
  cuda_async_view_memory_resource resource{pool};
  EXPECT_EQ(resource.pool_handle(), pool);
  void* const ptr = resource.allocate(100, stream);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, rmm::CUDA_ALLOCATION_ALIGNMENT));
  resource.deallocate(ptr, 100, stream);
}

TEST_F(CudaAsyncViewMemoryResource, LeavesThePoolToItsOwner)
{
  cuda_async_memory_resource owner;
  {
    cuda_async_view_memory_resource const view{owner.pool_handle()};
  }
  void* const ptr = owner.allocate(100, stream);
  EXPECT_NE(ptr, nullptr);
  owner.deallocate(ptr, 100, stream);
}

TEST_F(CudaAsyncViewMemoryResource, SharesMemoryWithItsCopies)
{
  cuda_async_memory_resource const owner;
  cuda_async_view_memory_resource view{owner.pool_handle()};
  cuda_async_view_memory_resource copy{view};
  EXPECT_EQ(copy.pool_handle(), view.pool_handle());
  copy.deallocate(view.allocate(100, stream), 100, stream);
}

TEST_F(CudaAsyncViewMemoryResource, GivesNullForNoBytes)
{
  cuda_async_memory_resource const owner;
  cuda_async_view_memory_resource view{owner.pool_handle()};
  EXPECT_EQ(view.allocate(0, stream), nullptr);
  EXPECT_NO_THROW(view.deallocate(nullptr, 0, stream));
}

TEST_F(CudaAsyncViewMemoryResource, RefusesANullPool)
{
  EXPECT_THROW(cuda_async_view_memory_resource{cudaMemPool_t{}}, rmm::logic_error);
}

TEST_F(CudaAsyncViewMemoryResource, WithoutAPoolHasNoHandle)
{
  cuda_async_view_memory_resource const resource{};
  EXPECT_EQ(resource.pool_handle(), nullptr);
}

TEST_F(CudaAsyncViewMemoryResource, IsEqualToItsClass)
{
  cuda_async_memory_resource const owner;
  cuda_async_memory_resource const other;
  cuda_async_view_memory_resource const view{owner.pool_handle()};
  EXPECT_TRUE(view == cuda_async_view_memory_resource{other.pool_handle()});
  EXPECT_FALSE(view == owner);
}

}  // namespace
