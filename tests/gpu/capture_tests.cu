// SPDX-License-Identifier: Apache-2.0
//
// On a real device: graphs replayed while other threads use the same resource, with a pattern of its owner in each block. Takes
// RMM_CAPTURE_REPLAYS replays of each graph, 1,000 if that is not set.

#include "../support/capture_program.hpp"
#include "pattern_kernels.cuh"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

using rmm::test::fill_kernel;
using rmm::test::verify_kernel;

class device_work {
 public:
  device_work()
  {
    EXPECT_EQ(cudaMalloc(&foreign_, sizeof *foreign_), cudaSuccess);
    EXPECT_EQ(cudaMemset(foreign_, 0, sizeof *foreign_), cudaSuccess);
    // A kernel is loaded when it is launched first, which must not be in a capture.
    fill(rmm::cuda_stream_legacy, foreign_, sizeof *foreign_, 0);
    verify(rmm::cuda_stream_legacy, foreign_, sizeof *foreign_, 0);
    EXPECT_EQ(cudaMemset(foreign_, 0, sizeof *foreign_), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~device_work() { EXPECT_EQ(cudaFree(foreign_), cudaSuccess); }
  device_work(device_work const&)            = delete;
  device_work& operator=(device_work const&) = delete;

  void fill(rmm::cuda_stream_view stream, void* ptr, std::size_t bytes, std::uint32_t pattern)
  {
    auto const count = bytes / sizeof(std::uint32_t);
    fill_kernel<<<grid(count), 256, 0, stream.value()>>>(static_cast<std::uint32_t*>(ptr), count, pattern);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  void verify(rmm::cuda_stream_view stream, void* ptr, std::size_t bytes, std::uint32_t pattern)
  {
    auto const count = bytes / sizeof(std::uint32_t);
    verify_kernel<<<grid(count), 256, 0, stream.value()>>>(
      static_cast<std::uint32_t const*>(ptr), count, pattern, foreign_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  [[nodiscard]] std::uint64_t foreign()
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    unsigned long long count{};
    EXPECT_EQ(cudaMemcpy(&count, foreign_, sizeof count, cudaMemcpyDefault), cudaSuccess);
    return count;
  }

 private:
  [[nodiscard]] static unsigned grid(std::size_t count)
  {
    return static_cast<unsigned>(std::min<std::size_t>(count / 256 + 1, 64));
  }

  unsigned long long* foreign_{};
};

int replays()
{
  auto const* const given = std::getenv("RMM_CAPTURE_REPLAYS");
  return given != nullptr ? std::atoi(given) : 1000;
}

struct CaptureOnDevice : ::testing::Test {
  rmm::mr::cuda_memory_resource cuda;
  device_work work;
};

TEST_F(CaptureOnDevice, GraphsKeepTheirMemoryOnAPoolThatGrows)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 0};
  rmm::test::replay_while_others_allocate(mr, work, replays(), 4);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureOnDevice, GraphsKeepTheirMemoryOnATightPool)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 24 * MiB, 24 * MiB};
  rmm::test::replay_while_others_allocate(mr, work, replays(), 4);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(CaptureOnDevice, GraphsKeepTheirMemoryOnAnArena)
{
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 64 * MiB};
  rmm::test::replay_while_others_allocate(mr, work, replays(), 4);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(CaptureOnDevice, GraphsKeepTheirMemoryOnAnElasticPool)
{
  rmm::mr::elastic_pool_memory_resource mr;
  rmm::test::replay_while_others_allocate(mr, work, replays(), 4);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureOnDevice, GraphsKeepTheirMemoryOnATightElasticPool)
{
  rmm::mr::elastic_pool_memory_resource mr{0, 24 * MiB};
  rmm::test::replay_while_others_allocate(mr, work, replays(), 4);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(CaptureOnDevice, GraphsKeepTheirMemoryOnACacheOfTheDriversPool)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&async};
  rmm::test::replay_while_others_allocate(mr, work, replays(), 4);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(CaptureOnDevice, GrowthOverTheDriversPoolAddsNothingToTheGraph)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&async, 0};
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  rmm::graph_memory const memory;
  auto const made = rmm::test::capture(stream, [&] {
    rmm::capture_scope const scope{stream, memory};
    void* const ptr = mr.allocate(64 * 1024, stream);
    work.fill(stream, ptr, 64 * 1024, 1);
    mr.deallocate(ptr, 64 * 1024, stream);
  });
  EXPECT_EQ(made.nodes(), 1U);
  made.launch(stream);
  stream.synchronize();
}

TEST_F(CaptureOnDevice, AnUnannouncedCaptureIsFoundAndNotBroken)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 16 * MiB, 16 * MiB};
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  auto const made = rmm::test::capture(
    stream, [&] { EXPECT_THROW(static_cast<void>(mr.allocate(64 * 1024, stream)), rmm::logic_error); });
}

TEST_F(CaptureOnDevice, UseOfTheLegacyStreamDoesNotBreakACaptureOfABlockingStream)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 1 * MiB, 64 * MiB};
  rmm::cuda_stream const blocking;
  auto const made = rmm::test::capture(blocking, [&] {
    void* const grown = mr.allocate(4 * MiB, rmm::cuda_stream_legacy);
    mr.deallocate(grown, 4 * MiB, rmm::cuda_stream_legacy);
    for (int i = 0; i < 200; ++i) {
      mr.deallocate(mr.allocate(200 * 1024, rmm::cuda_stream_legacy), 200 * 1024, rmm::cuda_stream_legacy);
    }
  });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

}  // namespace
