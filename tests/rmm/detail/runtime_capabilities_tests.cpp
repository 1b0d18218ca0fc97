// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/dynamic_load_runtime.hpp>
#include <rmm/detail/runtime_async_alloc.hpp>
#include <rmm/detail/runtime_capabilities.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

namespace {

using rmm::detail::async_alloc;
using rmm::detail::dynamic_load_runtime;
using rmm::detail::runtime_async_alloc;

int attribute(cudaDeviceAttr which)
{
  int device{};
  int value{};
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, which, device), cudaSuccess);
  return value;
}

int driver_version()
{
  int version{};
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  return version;
}

TEST(RuntimeCapabilities, AsyncPoolsFollowTheDevice)
{
  bool const expected = attribute(cudaDevAttrMemoryPoolsSupported) != 0;
  EXPECT_EQ(runtime_async_alloc::is_supported(), expected);
  EXPECT_EQ(async_alloc::is_supported(), expected);
  static_assert(noexcept(runtime_async_alloc::is_supported()));
}

TEST(RuntimeCapabilities, ExportHandleTypesFollowTheDevice)
{
  auto const known = attribute(cudaDevAttrMemoryPoolSupportedHandleTypes);
  for (auto const type : {cudaMemHandleTypePosixFileDescriptor, cudaMemHandleTypeWin32, cudaMemHandleTypeWin32Kmt}) {
    bool const expected = (known & type) != 0;
    EXPECT_EQ(rmm::detail::export_handle_type::is_supported(type), expected) << type;
    EXPECT_EQ(runtime_async_alloc::is_export_handle_type_supported(type), expected) << type;
    EXPECT_EQ(async_alloc::is_export_handle_type_supported(type), expected) << type;
  }
}

TEST(RuntimeCapabilities, NotExportingIsAlwaysSupported)
{
  EXPECT_TRUE(rmm::detail::export_handle_type::is_supported(cudaMemHandleTypeNone));
}

TEST(RuntimeCapabilities, AllOfSeveralHandleTypesMustBeSupported)
{
  auto const both =
    static_cast<cudaMemAllocationHandleType>(cudaMemHandleTypePosixFileDescriptor | cudaMemHandleTypeWin32);
  bool const expected = (attribute(cudaDevAttrMemoryPoolSupportedHandleTypes) & both) == both;
  EXPECT_EQ(rmm::detail::export_handle_type::is_supported(both), expected);
}

TEST(RuntimeCapabilities, HardwareDecompressionNeedsCuda128)
{
  static_assert(RMM_MIN_HWDECOMPRESS_CUDA_DRIVER_VERSION == 12080);
  bool const expected = CUDART_VERSION >= 12080 && driver_version() >= 12080;
  EXPECT_EQ(rmm::detail::hwdecompress::is_supported(), expected);
  EXPECT_EQ(runtime_async_alloc::is_hwdecompress_supported(), expected);
}

TEST(RuntimeCapabilities, ConcurrentManagedAccessFollowsTheDevice)
{
  EXPECT_EQ(rmm::detail::concurrent_managed_access::is_supported(), attribute(cudaDevAttrConcurrentManagedAccess) != 0);
}

TEST(RuntimeCapabilities, IntegratedMemoryFollowsTheDevice)
{
  EXPECT_EQ(rmm::detail::device_integrated_memory::is_supported(), attribute(cudaDevAttrIntegrated) != 0);
}

TEST(RuntimeCapabilities, AsyncManagedPoolsNeedCuda13AndConcurrentAccess)
{
  bool const expected =
    CUDART_VERSION >= 13000 && driver_version() >= 13000 && attribute(cudaDevAttrConcurrentManagedAccess) != 0;
  EXPECT_EQ(rmm::detail::runtime_async_managed_alloc::is_supported(), expected);
}

TEST(AsyncAlloc, ReachesTheFunctionsOfTheRuntime)
{
  if (!async_alloc::is_supported()) { GTEST_SKIP() << "this device has no asynchronous pools"; }
  cudaMemPoolProps properties{};
  properties.allocType     = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  ASSERT_EQ(cudaGetDevice(&properties.location.id), cudaSuccess);

  cudaMemPool_t pool{};
  ASSERT_EQ(async_alloc::cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  std::uint64_t threshold{1U << 20U};
  EXPECT_EQ(async_alloc::cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), cudaSuccess);
  std::uint64_t stored{};
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &stored), cudaSuccess);
  EXPECT_EQ(stored, threshold);

  void* ptr{};
  ASSERT_EQ(async_alloc::cudaMallocFromPoolAsync(&ptr, 1024, pool, cudaStreamPerThread), cudaSuccess);
  EXPECT_NE(ptr, nullptr);
  EXPECT_EQ(async_alloc::cudaFreeAsync(ptr, cudaStreamPerThread), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  EXPECT_EQ(async_alloc::cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST(AsyncAlloc, FindsTheDefaultPool)
{
  if (!async_alloc::is_supported()) { GTEST_SKIP() << "this device has no asynchronous pools"; }
  cudaMemPool_t expected{};
  cudaMemPool_t found{};
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&expected, 0), cudaSuccess);
  EXPECT_EQ(async_alloc::cudaDeviceGetDefaultMemPool(&found, 0), cudaSuccess);
  EXPECT_EQ(found, expected);
}

TEST(DynamicLoadRuntime, HasAHandle) { EXPECT_NE(dynamic_load_runtime::get_cuda_runtime_handle(), nullptr); }

TEST(DynamicLoadRuntime, FindsFunctionsOfASharedRuntime)
{
  using signature = dynamic_load_runtime::function_sig<int*>;
  static_assert(std::is_same_v<signature, cudaError_t (*)(int*)>);
  auto const function = dynamic_load_runtime::function<signature>("cudaRuntimeGetVersion");
#ifndef RMM_STATIC_CUDART
  ASSERT_TRUE(function.has_value());
  int found{};
  int linked{};
  EXPECT_EQ((*function)(&found), cudaSuccess);
  EXPECT_EQ(cudaRuntimeGetVersion(&linked), cudaSuccess);
  EXPECT_EQ(found, linked);
#else
  static_cast<void>(function);
  GTEST_SKIP() << "a static runtime hides its functions";
#endif
}

TEST(DynamicLoadRuntime, ReturnsNullForMissingSymbols)
{
  EXPECT_FALSE(dynamic_load_runtime::function<dynamic_load_runtime::function_sig<>>("cudaNoSuchFunction").has_value());
}

}  // namespace
