// SPDX-License-Identifier: Apache-2.0
//
// On two real devices: pools of device 1 that are called while device 0 is current, as by a new thread that frees on a stream it was
// given, and a pool that two devices share. Kernels look for the pattern of each block's owner, as in owner_pattern_tests.cu: a
// block that reaches a stream too early holds foreign bytes. Takes RMM_PATTERN_SECONDS seconds for each test, 2 if that is not set.

#include "owner_pattern.cuh"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace {

using rmm::cuda_device_id;
using rmm::cuda_set_device_raii;
using rmm::mr::cuda_async_memory_resource;
using rmm::mr::cuda_memory_resource;
using rmm::test::owner_threads;

constexpr std::size_t MiB = std::size_t{1} << 20;

std::chrono::duration<double> time_for_a_test()
{
  auto const* const given = std::getenv("RMM_PATTERN_SECONDS");
  return std::chrono::duration<double>{given != nullptr ? std::strtod(given, nullptr) : 2.0};
}

/// Keeps its stream busy.
__global__ void wait_kernel(std::uint64_t nanoseconds)
{
  std::uint64_t begin{};
  std::uint64_t now{};
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

struct TwoDevices : ::testing::Test {
  static constexpr int home      = 1;  // the device of the memory and the streams
  static constexpr int elsewhere = 0;  // the device that is current when the resource is called

  void SetUp() override
  {
    if (rmm::get_num_cuda_devices() < 2) { GTEST_SKIP() << "needs two devices"; }
  }

  /// The calling thread calls `beside` over and over meanwhile, with the other device current.
  static void run(owner_threads& threads, std::function<void()> const& beside = {})
  {
    auto const seen = threads.run(8, time_for_a_test(), beside);
    EXPECT_EQ(seen.foreign, 0U);
    EXPECT_GT(seen.allocations, 1000U);
    RecordProperty("steps", std::to_string(seen.steps));
  }

  static void run_with_another_current(rmm::mr::device_memory_resource& mr,
                                       std::size_t largest,
                                       std::function<void()> const& beside = {})
  {
    cuda_set_device_raii const there{cuda_device_id{elsewhere}};
    owner_threads threads{mr, largest, {home}, elsewhere};
    run(threads, beside);
  }

  cuda_memory_resource cuda_;
};

TEST_F(TwoDevices, ATightPoolHolds)
{
  cuda_set_device_raii const there{cuda_device_id{home}};
  rmm::mr::pool_memory_resource<cuda_memory_resource> mr{&cuda_, 32 * MiB, 32 * MiB};
  run_with_another_current(mr, 2 * MiB);
  auto const now = mr.figures();
  EXPECT_EQ(now.live_bytes, 0U);
  EXPECT_GT(now.from_other_streams + now.from_other_caches + now.put_together, 0U);
}

TEST_F(TwoDevices, AVeryTightPoolOfSmallBlocksHolds)
{
  cuda_set_device_raii const there{cuda_device_id{home}};
  rmm::mr::pool_memory_resource<cuda_memory_resource> mr{&cuda_, MiB / 2, MiB / 2};
  run_with_another_current(mr, 8 * 1024);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(TwoDevices, AnArenaHolds)
{
  cuda_set_device_raii const there{cuda_device_id{home}};
  rmm::mr::arena_memory_resource<cuda_memory_resource> mr{&cuda_, 32 * MiB};
  run_with_another_current(mr, 2 * MiB);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(TwoDevices, AFixedSizeResourceHolds)
{
  cuda_set_device_raii const there{cuda_device_id{home}};
  rmm::mr::fixed_size_memory_resource<cuda_memory_resource> mr{&cuda_, 64 * 1024, 64};
  run_with_another_current(mr, 64 * 1024);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(TwoDevices, AnElasticPoolThatIsTrimmedMeanwhileHolds)
{
  cuda_set_device_raii const there{cuda_device_id{home}};
  rmm::mr::elastic_pool_memory_resource mr;
  std::size_t released{};
  run_with_another_current(mr, 8 * MiB, [&] { released += mr.trim_to(mr.pool_size() / 2); });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_GT(released, 0U);
}

TEST_F(TwoDevices, ACacheOfTheDriversPoolThatIsTrimmedMeanwhileHolds)
{
  cuda_set_device_raii const there{cuda_device_id{home}};
  cuda_async_memory_resource async;
  rmm::mr::cached_memory_resource<cuda_async_memory_resource> mr{&async};
  run_with_another_current(mr, 4 * MiB, [&] { mr.trim_to(mr.pool_size() / 2); });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(TwoDevices, APinnedPoolThatTwoDevicesShareHolds)
{
  rmm::mr::pinned_pool_memory_resource mr{16 * MiB, 16 * MiB};
  owner_threads threads{mr, MiB, {0, 1}};
  run(threads);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

/// The pool gives its memory back to the driver's pool while a kernel still reads it. Another stream must not get it before.
TEST_F(TwoDevices, APoolThatEndsOnAnotherDeviceLeavesItsMemoryToPendingWork)
{
  constexpr std::size_t bytes = 8 * MiB;
  cuda_set_device_raii const there{cuda_device_id{home}};
  cuda_async_memory_resource async;
  rmm::cuda_stream const reads;
  rmm::cuda_stream const writes;
  unsigned long long* foreign{};
  ASSERT_EQ(cudaMalloc(&foreign, sizeof *foreign), cudaSuccess);
  ASSERT_EQ(cudaMemset(foreign, 0, sizeof *foreign), cudaSuccess);
  for (std::uint32_t turn = 0; turn != 10; ++turn) {
    std::optional<rmm::mr::pool_memory_resource<cuda_async_memory_resource>> pool{std::in_place, &async, bytes, bytes};
    rmm::test::owned_block const block{pool->allocate(bytes, reads), bytes, reads, turn};
    block.fill();
    wait_kernel<<<1, 1, 0, reads.value()>>>(20'000'000);
    block.verify(foreign);
    {
      cuda_set_device_raii const away{cuda_device_id{elsewhere}};
      pool->deallocate(block.ptr, bytes, reads);
      pool.reset();
    }
    rmm::test::owned_block const next{async.allocate(bytes, writes), bytes, writes, ~turn};
    next.fill();
    async.deallocate(next.ptr, bytes, writes);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  unsigned long long seen{};
  ASSERT_EQ(cudaMemcpy(&seen, foreign, sizeof seen, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(seen, 0U);
  ASSERT_EQ(cudaFree(foreign), cudaSuccess);
}

}  // namespace
