// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/prefetch.hpp>

#include <cuda_runtime_api.h>
#include <cuda/std/span>

#include <gtest/gtest.h>

#include <cstddef>

namespace {

// Managed memory of a million ints on a device where it migrates.
class Prefetch : public ::testing::Test {
 protected:
  static constexpr std::size_t count{std::size_t{1} << 20U};  // larger than any page
  static constexpr std::size_t bytes{count * sizeof(int)};

  void SetUp() override
  {
    if (rmm::detail::device_attribute(cudaDevAttrConcurrentManagedAccess) == 0) {
      GTEST_SKIP() << "managed memory of this device does not migrate";
    }
    ASSERT_EQ(cudaMallocManaged(reinterpret_cast<void**>(&memory), bytes), cudaSuccess);
  }
  void TearDown() override { EXPECT_EQ(cudaFree(memory), cudaSuccess); }

  [[nodiscard]] int last_location(int const* ptr) const
  {
    int location{};
    EXPECT_EQ(
      cudaMemRangeGetAttribute(&location, sizeof location, cudaMemRangeAttributeLastPrefetchLocation, ptr, sizeof(int)),
      cudaSuccess);
    return location;
  }

  int* memory{};
  rmm::cuda_device_id const device{rmm::get_current_cuda_device()};
  rmm::cuda_stream const stream{};
};

TEST_F(Prefetch, MemoryHasNoLocationBefore) { EXPECT_EQ(last_location(memory), cudaInvalidDeviceId); }

TEST_F(Prefetch, MovesMemoryToADevice)
{
  rmm::prefetch(memory, bytes, device, stream);
  stream.synchronize();
  EXPECT_EQ(last_location(memory), device.value());
  EXPECT_EQ(last_location(memory + count - 1), device.value());
}

TEST_F(Prefetch, MovesMemoryToTheHost)
{
  rmm::prefetch(memory, bytes, device, stream);
  rmm::prefetch(memory, bytes, rmm::cuda_device_id{cudaCpuDeviceId}, stream);
  stream.synchronize();
  EXPECT_EQ(last_location(memory), cudaCpuDeviceId);
}

TEST_F(Prefetch, MovesTheElementsOfASpan)
{
  rmm::prefetch(cuda::std::span<int const>{memory, count}, device, stream);
  stream.synchronize();
  EXPECT_EQ(last_location(memory), device.value());
  EXPECT_EQ(last_location(memory + count - 1), device.value());
}

TEST_F(Prefetch, MovesWhatConvertsToASpan)
{
  rmm::prefetch<int>({memory, memory + count}, device, stream);
  rmm::prefetch<int>(cuda::std::span<int>{memory, count}, device, rmm::cuda_stream_default);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(last_location(memory), device.value());
}

TEST_F(Prefetch, IgnoresNoBytes)
{
  rmm::prefetch(memory, 0, device, stream);
  rmm::prefetch(cuda::std::span<int const>{}, device, stream);
  stream.synchronize();
  EXPECT_EQ(last_location(memory), cudaInvalidDeviceId);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(Prefetch, IgnoresMemoryThatDoesNotMigrate)
{
  void* fixed{};
  ASSERT_EQ(cudaMalloc(&fixed, bytes), cudaSuccess);
  EXPECT_NO_THROW(rmm::prefetch(fixed, bytes, device, stream));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(fixed), cudaSuccess);
}

}  // namespace
