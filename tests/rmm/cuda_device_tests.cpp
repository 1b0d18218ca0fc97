// SPDX-License-Identifier: Apache-2.0
#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/detail/cuda/device.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <thread>
#include <type_traits>

namespace {

#define SKIP_UNLESS_SEVERAL_DEVICES() \
  if (rmm::get_num_cuda_devices() < 2) { GTEST_SKIP() << "needs two devices"; }

int device_of_runtime()
{
  int device{-1};
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

// --- cuda_device_id

TEST(CudaDeviceId, HoldsTheNumberItIsGiven)
{
  static_assert(std::is_same_v<rmm::cuda_device_id::value_type, int>);
  static_assert(rmm::cuda_device_id{3}.value() == 3);
  EXPECT_EQ(rmm::cuda_device_id{-1}.value(), -1);
  EXPECT_EQ(rmm::cuda_device_id{cudaInvalidDeviceId}.value(), cudaInvalidDeviceId);
}

TEST(CudaDeviceId, IsNotMadeFromNumbersImplicitly)
{
  static_assert(!std::is_convertible_v<int, rmm::cuda_device_id>);
  static_assert(std::is_nothrow_default_constructible_v<rmm::cuda_device_id>);
  static_assert(std::is_trivially_copyable_v<rmm::cuda_device_id>);
}

TEST(CudaDeviceId, IsTheCurrentDeviceByDefault) { EXPECT_EQ(rmm::cuda_device_id{}.value(), device_of_runtime()); }

TEST(CudaDeviceId, IsComparedByNumber)
{
  static_assert(rmm::cuda_device_id{1} == rmm::cuda_device_id{1});
  static_assert(rmm::cuda_device_id{1} != rmm::cuda_device_id{2});
  EXPECT_FALSE(rmm::cuda_device_id{1} == rmm::cuda_device_id{2});
  EXPECT_FALSE(rmm::cuda_device_id{1} != rmm::cuda_device_id{1});
}

// --- queries

TEST(CudaDevice, ReturnsTheCurrentDeviceOfTheRuntime)
{
  EXPECT_EQ(rmm::get_current_cuda_device().value(), device_of_runtime());
}

TEST(CudaDevice, CurrentDeviceFollowsTheRuntime)
{
  SKIP_UNLESS_SEVERAL_DEVICES();
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(rmm::get_current_cuda_device(), rmm::cuda_device_id{1});
  EXPECT_EQ(rmm::cuda_device_id{}, rmm::cuda_device_id{1});
  EXPECT_EQ(rmm::detail::current_device(), 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(rmm::get_current_cuda_device(), rmm::cuda_device_id{0});
  EXPECT_EQ(rmm::detail::current_device(), 0);
}

TEST(CudaDevice, CurrentDeviceBelongsToTheThread)
{
  SKIP_UNLESS_SEVERAL_DEVICES();
  rmm::cuda_set_device_raii const here{rmm::cuda_device_id{1}};
  int there{-1};
  std::thread{[&] { there = rmm::detail::current_device(); }}.join();
  EXPECT_EQ(there, 0);
}

TEST(CudaDevice, ReturnsTheNumberOfDevicesOfTheRuntime)
{
  int count{};
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(rmm::get_num_cuda_devices(), count);
  EXPECT_EQ(rmm::detail::sees_one_device(), count == 1);
}

TEST(CudaDevice, ThreadsStartOnDeviceZero)
{
  int device{-1};
  std::thread{[&] { device = rmm::detail::current_device(); }}.join();
  EXPECT_EQ(device, 0);
}

TEST(CudaDevice, AvailableMemoryIsThatOfTheRuntime)
{
  std::size_t runtime_free{};
  std::size_t runtime_total{};
  auto const [free, total] = rmm::available_device_memory();
  ASSERT_EQ(cudaMemGetInfo(&runtime_free, &runtime_total), cudaSuccess);
  EXPECT_EQ(total, runtime_total);
  EXPECT_GT(free, 0U);
  EXPECT_LE(free, total);
}

TEST(CudaDevice, AvailableMemoryShrinksByWhatIsAllocated)
{
  constexpr std::size_t bytes{64U << 20U};
  auto const before = rmm::available_device_memory().first;
  void* ptr{};
  ASSERT_EQ(cudaMalloc(&ptr, bytes), cudaSuccess);
  auto const after = rmm::available_device_memory().first;
  ASSERT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_LE(after + bytes, before);
}

TEST(CudaDevice, PercentOfFreeMemoryIsAMultipleOfTheAlignment)
{
  for (int percent : {1, 33, 50, 99, 100}) {
    EXPECT_TRUE(rmm::is_aligned(rmm::percent_of_free_device_memory(percent), rmm::CUDA_ALLOCATION_ALIGNMENT));
  }
}

TEST(CudaDevice, PercentOfFreeMemoryIsRoundedDown)
{
  auto const free = rmm::available_device_memory().first;
  EXPECT_EQ(rmm::percent_of_free_device_memory(0), 0U);
  EXPECT_EQ(rmm::percent_of_free_device_memory(50), rmm::align_down(free / 2, 256));
  EXPECT_EQ(rmm::percent_of_free_device_memory(100), rmm::align_down(free, 256));
}

TEST(CudaDevice, AttributesAreThoseOfTheCurrentDevice)
{
  int expected{};
  ASSERT_EQ(cudaDeviceGetAttribute(&expected, cudaDevAttrComputeCapabilityMajor, device_of_runtime()), cudaSuccess);
  EXPECT_EQ(rmm::detail::device_attribute(cudaDevAttrComputeCapabilityMajor), expected);
  EXPECT_EQ(rmm::detail::device_attribute_or_zero(cudaDevAttrComputeCapabilityMajor), expected);
}

TEST(CudaDevice, VersionsAreThoseOfTheRuntime)
{
  int driver{};
  int runtime{};
  ASSERT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  ASSERT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_EQ(rmm::detail::driver_version(), driver);
  EXPECT_EQ(rmm::detail::runtime_version(), runtime);
}

// --- cuda_set_device_raii

TEST(CudaSetDevice, IsNeitherCopiedNorMoved)
{
  using guard = rmm::cuda_set_device_raii;
  static_assert(!std::is_copy_constructible_v<guard> && !std::is_move_constructible_v<guard>);
  static_assert(!std::is_copy_assignable_v<guard> && !std::is_move_assignable_v<guard>);
  static_assert(!std::is_convertible_v<rmm::cuda_device_id, guard>);
  static_assert(std::is_nothrow_destructible_v<guard>);
}

TEST(CudaSetDevice, LeavesTheCurrentDeviceWhereItIsTheSame)
{
  auto const device = rmm::get_current_cuda_device();
  {
    rmm::cuda_set_device_raii const guard{device};
    EXPECT_EQ(rmm::get_current_cuda_device(), device);
  }
  EXPECT_EQ(rmm::get_current_cuda_device(), device);
}

TEST(CudaSetDevice, IgnoresNegativeNumbers)
{
  auto const device = rmm::get_current_cuda_device();
  for (int number : {-1, cudaInvalidDeviceId}) {
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{number}};
    EXPECT_EQ(rmm::get_current_cuda_device(), device);
  }
  EXPECT_EQ(rmm::get_current_cuda_device(), device);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaSetDevice, MakesADeviceCurrentAndRestoresTheOneBefore)
{
  SKIP_UNLESS_SEVERAL_DEVICES();
  {
    rmm::cuda_set_device_raii const outer{rmm::cuda_device_id{1}};
    EXPECT_EQ(device_of_runtime(), 1);
    {
      rmm::cuda_set_device_raii const inner{rmm::cuda_device_id{0}};
      EXPECT_EQ(device_of_runtime(), 0);
    }
    EXPECT_EQ(device_of_runtime(), 1);
  }
  EXPECT_EQ(device_of_runtime(), 0);
}

TEST(CudaSetDevice, DoesNotRestoreWhatItDidNotChange)
{
  SKIP_UNLESS_SEVERAL_DEVICES();
  {
    rmm::cuda_set_device_raii const same{rmm::cuda_device_id{0}};
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  }
  EXPECT_EQ(device_of_runtime(), 1);
  {
    rmm::cuda_set_device_raii const none{rmm::cuda_device_id{-1}};
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  EXPECT_EQ(device_of_runtime(), 0);
}

}  // namespace
