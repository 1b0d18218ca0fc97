// SPDX-License-Identifier: Apache-2.0
#include "../../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <vector>

namespace {

using rmm::mr::cuda_async_managed_memory_resource;
using rmm::mr::cuda_async_memory_resource;
using rmm::mr::cuda_async_view_memory_resource;
using ::testing::HasSubstr;

[[maybe_unused]] constexpr std::size_t mebibyte = std::size_t{1} << 20U;

struct CudaAsyncFaults : Simulated {};

TEST_F(CudaAsyncFaults, AResourceThatCannotBeMadeLeavesNothingBehind)
{
  auto const failures = cudasim::for_each_fault(
    [] {
      try {
        cuda_async_memory_resource const resource{1 << 20, 1 << 20};
      } catch (std::exception const&) {}
    },
    [](auto call) { EXPECT_EQ(cudasim::leak_report(), "") << "call " << call << " failed"; },
    cudaErrorMemoryAllocation,
    "cudaMemPoolSetAttribute");
  EXPECT_EQ(failures, 1U);

  cudasim::inject({"cudaMallocFromPoolAsync", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW((cuda_async_memory_resource{1 << 20}), rmm::out_of_memory);
  EXPECT_EQ(cudasim::leak_report(), "");
}

TEST_F(CudaAsyncFaults, APoolThatCannotBeMadeIsACudaError)
{
  cudasim::inject({"cudaMemPoolCreate", 1, cudaErrorInvalidValue, 1});
  EXPECT_THROW(cuda_async_memory_resource{}, rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaAsyncFaults, LackOfMemoryIsOutOfMemory)
{
  cuda_async_memory_resource resource;
  cudasim::inject({"cudaMallocFromPoolAsync", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW(resource.allocate(100), rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaAsyncFaults, OtherFailuresAreBadAllocButNotOutOfMemory)
{
  cuda_async_memory_resource resource;
  cudasim::inject({"cudaMallocFromPoolAsync", 1, cudaErrorInvalidValue, 1});
  try {
    resource.allocate(100);
    FAIL() << "nothing was thrown";
  } catch (rmm::out_of_memory const&) {
    FAIL() << "memory is not what is missing";
  } catch (rmm::bad_alloc const&) {}
}

TEST_F(CudaAsyncFaults, AFailedDeviceQueryIsACudaErrorThatNamesIt)
{
  auto const make = [] { cuda_async_memory_resource const resource; };
  for (auto const* const function : {"cudaGetDevice", "cudaDeviceGetAttribute", "cudaRuntimeGetVersion"}) {
    auto const before = cudasim::calls(function);
    make();
    auto const calls = cudasim::calls(function) - before;
    EXPECT_GE(calls, 1U) << function;
    for (std::uint64_t n = 1; n <= calls; ++n) {
      cudasim::inject({function, n, cudaErrorUnknown, 1});
      try {
        make();
        ADD_FAILURE() << function << " " << n << " failed and nobody noticed";
      } catch (rmm::cuda_error const& error) {
        EXPECT_THAT(error.what(), HasSubstr("cudaErrorUnknown")) << function << " " << n;
      }
      EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << function << " " << n;
    }
  }
}

TEST_F(CudaAsyncFaults, DevicesWithoutPoolsAreRefused)
{
  cuda_async_memory_resource const made_before;
  cudasim::set_device_attribute(0, cudaDevAttrMemoryPoolsSupported, 0);
  EXPECT_THROW(cuda_async_memory_resource{}, rmm::logic_error);
  EXPECT_THROW(cuda_async_view_memory_resource{made_before.pool_handle()}, rmm::logic_error);
}

TEST_F(CudaAsyncFaults, ExportsOnlyInWaysThatTheDeviceSupports)
{
  using handle_type = cuda_async_memory_resource::allocation_handle_type;
  cudasim::set_device_attribute(0, cudaDevAttrMemoryPoolSupportedHandleTypes, cudaMemHandleTypePosixFileDescriptor);
  EXPECT_NO_THROW((cuda_async_memory_resource{{}, {}, handle_type::none}));
  EXPECT_NO_THROW((cuda_async_memory_resource{{}, {}, handle_type::posix_file_descriptor}));
  EXPECT_THROW((cuda_async_memory_resource{{}, {}, handle_type::fabric}), rmm::logic_error);
}

TEST_F(CudaAsyncFaults, OldDriversMayNotReuseOpportunistically)
{
  auto const allows = [] {
    cuda_async_memory_resource const resource;
    int value{};
    EXPECT_EQ(cudaMemPoolGetAttribute(resource.pool_handle(), cudaMemPoolReuseAllowOpportunistic, &value), cudaSuccess);
    return value != 0;
  };
  EXPECT_TRUE(allows());
  cudasim::set_versions(11040, 0);
  EXPECT_FALSE(allows());
}

TEST_F(CudaAsyncFaults, ManagedPoolsNeedDriverAndDevice)
{
  cudasim::set_device_attribute(0, cudaDevAttrConcurrentManagedAccess, 0);
  EXPECT_THROW(cuda_async_managed_memory_resource{}, rmm::logic_error);
  EXPECT_THROW(cuda_async_managed_memory_resource{mebibyte}, rmm::logic_error);
  cudasim::set_device_attribute(0, cudaDevAttrConcurrentManagedAccess, 1);
  cudasim::set_versions(12090, 0);
  EXPECT_THROW(cuda_async_managed_memory_resource{}, rmm::logic_error);
  EXPECT_THROW(cuda_async_managed_memory_resource{mebibyte}, rmm::logic_error);
  EXPECT_EQ(cudasim::calls("cudaMemPoolSetAttribute"), 0U);
}

#if CUDART_VERSION >= 13000

TEST_F(CudaAsyncFaults, AManagedPoolKeepsMemoryUpToItsThreshold)
{
  auto const kept = [](cuda_async_managed_memory_resource resource) {
    rmm::cuda_stream const stream;
    resource.deallocate(resource.allocate(100 * mebibyte, stream), 100 * mebibyte, stream);
    stream.synchronize();
    std::uint64_t bytes{};
    EXPECT_EQ(cudaMemPoolGetAttribute(resource.pool_handle(), cudaMemPoolAttrReservedMemCurrent, &bytes), cudaSuccess);
    return bytes;
  };
  EXPECT_GE(kept(cuda_async_managed_memory_resource{}), 100 * mebibyte);
  EXPECT_EQ(kept(cuda_async_managed_memory_resource{0}), 0U);
  EXPECT_GE(kept(cuda_async_managed_memory_resource{200 * mebibyte}), 100 * mebibyte);
}

TEST_F(CudaAsyncFaults, AThresholdThatCannotBeSetIsACudaError)
{
  for (auto const* const call : {"cudaMemPoolSetAttribute", "cudaMemGetInfo"}) {
    cudasim::inject({call, 1, cudaErrorUnknown, 1});
    EXPECT_THROW(cuda_async_managed_memory_resource{}, rmm::cuda_error) << call;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << call;
  }
  cudasim::inject({"cudaMemPoolSetAttribute", 1, cudaErrorUnknown, 1});
  EXPECT_THROW(cuda_async_managed_memory_resource{mebibyte}, rmm::cuda_error);
}

TEST_F(CudaAsyncFaults, AManagedPoolCanBeTakenWhileAStreamCaptures)
{
  rmm::cuda_stream const capturing;
  ASSERT_EQ(cudaStreamBeginCapture(capturing.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_NO_THROW(cuda_async_managed_memory_resource{});
  EXPECT_NO_THROW(cuda_async_managed_memory_resource{mebibyte});
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(capturing.value(), &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

#endif

TEST_F(CudaAsyncFaults, PoolMemoryIsFreedAndZeroBytesMakeNoCall)
{
  cuda_async_memory_resource own;
  cuda_async_view_memory_resource view{own.pool_handle()};
  std::vector<rmm::mr::device_memory_resource*> all{&own, &view};
#if CUDART_VERSION >= 13000
  cuda_async_managed_memory_resource managed;
  all.push_back(&managed);
#endif
  auto const live  = cudasim::leak_report();
  auto const asked = cudasim::calls("cudaMallocFromPoolAsync");
  for (auto* const each : all) {
    EXPECT_EQ(each->allocate(0), nullptr);
    each->deallocate(nullptr, 0);
  }
  EXPECT_EQ(cudasim::calls("cudaMallocFromPoolAsync"), asked);
  for (auto* const each : all) { each->deallocate(each->allocate(1), 1); }
  EXPECT_EQ(cudasim::leak_report(), live);
}

TEST_F(CudaAsyncFaults, ManagedAndPinnedMemoryIsFreedAndZeroBytesMakeNoCall)
{
  rmm::mr::managed_memory_resource managed;
  rmm::mr::pinned_host_memory_resource pinned;
  managed.deallocate(managed.allocate(0), 0);
  pinned.deallocate(pinned.allocate(0), 0);
  EXPECT_EQ(cudasim::calls("cudaMallocManaged"), 0U);
  EXPECT_EQ(cudasim::calls("cudaHostAlloc"), 0U);
  managed.deallocate(managed.allocate(1), 1);
  pinned.deallocate(pinned.allocate(1), 1);
  pinned.deallocate(pinned.allocate(1, std::size_t{64}), 1, std::size_t{64});
  pinned.deallocate_async(pinned.allocate_async(1, 64, rmm::cuda_stream_default), 1, 64, rmm::cuda_stream_default);
  EXPECT_EQ(cudasim::leak_report(), "");
}

TEST_F(CudaAsyncFaults, PinnedMemoryThatIsMissingIsOutOfMemory)
{
  cudasim::inject({"cudaHostAlloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW(rmm::mr::pinned_host_memory_resource{}.allocate(100), rmm::out_of_memory);
  cudasim::inject({"cudaHostAlloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW(rmm::mr::pinned_memory_resource{}.allocate(100), std::bad_alloc);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
