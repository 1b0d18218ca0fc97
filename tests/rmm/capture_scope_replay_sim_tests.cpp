// SPDX-License-Identifier: Apache-2.0
//
// Graphs that are replayed 1,000 times while other threads allocate. All memory holds patterns, and the ordering checker is on.

#include "../support/capture_program.hpp"
#include "../support/sanitizers.hpp"
#include "../support/simulated.hpp"

#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

/// Checks the first and the last words only, because the ordering checker sees all accesses.
class simulated_work {
 public:
  void fill(rmm::cuda_stream_view stream, void* ptr, std::size_t bytes, std::uint32_t pattern)
  {
    auto* const words = static_cast<std::uint32_t*>(ptr);
    EXPECT_EQ(cudasim::launch(stream.value(),
                              {},
                              {{ptr, bytes}},
                              [=] {
                                std::fill_n(words, looks, pattern);
                                std::fill_n(words + bytes / sizeof *words - looks, looks, pattern);
                              }),
              cudaSuccess);
  }
  void verify(rmm::cuda_stream_view stream, void* ptr, std::size_t bytes, std::uint32_t pattern)
  {
    auto const* const words = static_cast<std::uint32_t const*>(ptr);
    auto const look         = [this, pattern](std::uint32_t const* first) {
      foreign_ += looks - static_cast<std::uint64_t>(std::count(first, first + looks, pattern));
    };
    EXPECT_EQ(cudasim::launch(stream.value(),
                              {{ptr, bytes}},
                              {},
                              [=] {
                                look(words);
                                look(words + bytes / sizeof *words - looks);
                              }),
              cudaSuccess);
  }
  [[nodiscard]] std::uint64_t foreign()
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return foreign_;
  }

 private:
  static constexpr std::size_t looks = 8;
  std::atomic<std::uint64_t> foreign_{0};
};

struct CaptureReplaySim : Simulated {
  void SetUp() override
  {
    auto machine           = cudasim::environment_options();
    machine.mode           = cudasim::execution::threads;
    machine.check_ordering = true;
    cudasim::reset(machine);
  }

  rmm::mr::cuda_memory_resource cuda;
  simulated_work work;
};

TEST_F(CaptureReplaySim, GraphsKeepTheirMemoryForThousandReplaysOnAPoolThatGrows)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 0};
  rmm::test::replay_while_others_allocate(mr, work, 1000, 2);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureReplaySim, GraphsKeepTheirMemoryOnATightPool)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 8 * MiB, 8 * MiB};
  rmm::test::replay_while_others_allocate(mr, work, 200, 2);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureReplaySim, GraphsKeepTheirMemoryOnAnElasticPoolThatIsTrimmed)
{
  rmm::mr::elastic_pool_memory_resource mr;
  std::atomic<bool> ends{false};
  std::thread trimming{[&] {
    while (!ends) { static_cast<void>(mr.trim_to(4 * MiB)); }
  }};
  rmm::test::replay_while_others_allocate(mr, work, 200, 2);
  ends = true;
  trimming.join();
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureReplaySim, GraphsKeepTheirMemoryOnAFrontCache)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&async};
  rmm::test::replay_while_others_allocate(mr, work, 200, 2);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureReplaySim, GraphsKeepTheirMemoryOnAnArena)
{
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 16 * MiB};
  rmm::test::replay_while_others_allocate(mr, work, 200, 2);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

}  // namespace
