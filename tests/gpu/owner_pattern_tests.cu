// SPDX-License-Identifier: Apache-2.0
//
// On a real device: kernels fill each block with a pattern of its owner and look for it again before the block is freed, on
// streams of several threads that share the suballocators. A block that reaches a stream too early holds foreign bytes. Takes
// RMM_PATTERN_SECONDS seconds for each test, 5 if that is not set.

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// Writes the pattern: another word at each place, so that memory of the wrong place is seen too.
__global__ void fill_kernel(std::uint32_t* words, std::size_t count, std::uint32_t pattern)
{
  auto const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (auto i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = pattern ^ static_cast<std::uint32_t>(i);
  }
}

__global__ void verify_kernel(std::uint32_t const* words,
                              std::size_t count,
                              std::uint32_t pattern,
                              unsigned long long* foreign)
{
  auto const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (auto i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    if (words[i] != (pattern ^ static_cast<std::uint32_t>(i))) { atomicAdd(foreign, 1ULL); }
  }
}

std::chrono::duration<double> time_for_a_test()
{
  auto const* const given = std::getenv("RMM_PATTERN_SECONDS");
  return std::chrono::duration<double>{given != nullptr ? std::strtod(given, nullptr) : 5.0};
}

struct block {
  void* ptr;
  std::size_t bytes;
  rmm::cuda_stream_view stream;
  std::uint32_t pattern;

  [[nodiscard]] std::uint32_t* words() const { return static_cast<std::uint32_t*>(ptr); }
  [[nodiscard]] std::size_t count() const { return bytes / sizeof(std::uint32_t); }
  [[nodiscard]] unsigned grid() const { return static_cast<unsigned>(std::min<std::size_t>(count() / 256 + 1, 64)); }
};

struct OwnerPattern : ::testing::Test {
  static constexpr std::size_t MiB = std::size_t{1} << 20;

  void SetUp() override
  {
    ASSERT_EQ(cudaMalloc(&foreign_, sizeof *foreign_), cudaSuccess);
    ASSERT_EQ(cudaMemset(foreign_, 0, sizeof *foreign_), cudaSuccess);
  }
  void TearDown() override { EXPECT_EQ(cudaFree(foreign_), cudaSuccess); }

  static void fill(block const& b)
  {
    fill_kernel<<<b.grid(), 256, 0, b.stream.value()>>>(b.words(), b.count(), b.pattern);
  }
  void verify(block const& b) const
  {
    verify_kernel<<<b.grid(), 256, 0, b.stream.value()>>>(b.words(), b.count(), b.pattern, foreign_);
  }

  /// A thread: streams of its own, some of which end with work pending, and streams that all threads use.
  void use(rmm::mr::device_memory_resource& mr,
           std::uint64_t seed,
           std::size_t largest,
           std::vector<rmm::cuda_stream> const& shared,
           std::chrono::steady_clock::time_point end)
  {
    std::mt19937_64 random{seed};
    auto const pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<rmm::cuda_stream> mine(3);
    cudaStream_t raw{};
    ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
    std::vector<block> live;
    auto const free_block = [&](std::size_t which) {
      auto const b = live[which];
      live[which]  = live.back();
      live.pop_back();
      verify(b);
      mr.deallocate(b.ptr, b.bytes, b.stream);
    };
    auto const free_all_of = [&](rmm::cuda_stream_view stream) {
      for (auto i = live.size(); i-- > 0;) {
        if (live[i].stream == stream) { free_block(i); }
      }
    };
    auto const any_stream = [&]() -> rmm::cuda_stream_view {
      switch (pick(8)) {
        case 0:
          return rmm::cuda_stream_per_thread;
        case 1:
          return rmm::cuda_stream_view{raw};
        case 2:
        case 3:
          return shared[pick(shared.size())].view();
        default:
          return mine[pick(mine.size())].view();
      }
    };
    for (std::uint64_t step = 0; step % 64 != 0 || std::chrono::steady_clock::now() < end; ++step) {
      auto const what = pick(100);
      if (what < 50 && live.size() < 100) {
        auto const kind  = pick(10);
        auto const bytes = kind < 6 ? 256 * (1 + pick(16)) : 4 + pick(kind < 9 ? std::min(largest, MiB / 8) : largest);
        auto const s     = any_stream();
        try {
          live.push_back({nullptr, bytes, s, static_cast<std::uint32_t>(random())});
          live.back().ptr = mr.allocate(bytes, s);
          fill(live.back());
        } catch (std::bad_alloc const&) {
          live.pop_back();
          while (live.size() > 20) { free_block(pick(live.size())); }
        }
      } else if (what < 96) {
        if (!live.empty()) { free_block(pick(live.size())); }
      } else if (what < 98) {
        auto& ends = mine[pick(mine.size())];
        free_all_of(ends);
        ends = rmm::cuda_stream{rmm::cuda_stream::flags::non_blocking};
      } else if (what == 98) {
        free_all_of(rmm::cuda_stream_view{raw});
        ASSERT_EQ(cudaStreamDestroy(raw), cudaSuccess);
        ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
      } else {
        mine[pick(mine.size())].synchronize();
      }
      ++steps_;
    }
    while (!live.empty()) { free_block(live.size() - 1); }
    ASSERT_EQ(cudaStreamDestroy(raw), cudaSuccess);
  }

  /// The calling thread calls `beside` over and over meanwhile.
  void run(rmm::mr::device_memory_resource& mr, std::size_t largest, std::function<void()> const& beside = {})
  {
    constexpr std::uint64_t thread_count = 4;
    auto const begin                     = std::chrono::steady_clock::now();
    auto const end = begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(time_for_a_test());
    std::vector<rmm::cuda_stream> shared(2);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < thread_count; ++t) {
      threads.emplace_back([&, t] {
        if (t != 0) { return use(mr, t, largest, shared, end); }
        for (std::uint64_t part = 0; std::chrono::steady_clock::now() < end; ++part) {  // threads that come and go
          auto const soon = std::min(end, std::chrono::steady_clock::now() + std::chrono::milliseconds{50});
          std::thread{[&] { use(mr, 100 + part, largest, shared, soon); }}.join();
        }
      });
    }
    while (beside && std::chrono::steady_clock::now() < end) { beside(); }
    for (auto& thread : threads) { thread.join(); }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    unsigned long long foreign{};
    ASSERT_EQ(cudaMemcpy(&foreign, foreign_, sizeof foreign, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(foreign, 0U);
    EXPECT_GT(steps_, 1000U);
    RecordProperty("steps", std::to_string(steps_));
  }

  rmm::mr::cuda_memory_resource cuda_;
  unsigned long long* foreign_{};
  std::atomic<std::uint64_t> steps_{0};
};

TEST_F(OwnerPattern, HoldsOnATightPool)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 32 * MiB, 32 * MiB};
  run(mr, 2 * MiB);
  auto const now = mr.figures();
  EXPECT_EQ(now.live_bytes, 0U);
  EXPECT_GT(now.from_other_streams + now.from_other_caches + now.put_together, 0U);
}

TEST_F(OwnerPattern, HoldsOnAPoolThatGrows)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 0};
  run(mr, 4 * MiB);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnAVeryTightPoolOfSmallBlocks)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, MiB / 2, MiB / 2};
  run(mr, 8 * 1024);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnAnArena)
{
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 32 * MiB};
  run(mr, 2 * MiB);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnATightElasticPool)
{
  rmm::mr::elastic_pool_memory_resource mr{0, 32 * MiB};
  run(mr, 2 * MiB);
  auto const now = mr.figures();
  EXPECT_EQ(now.live_bytes, 0U);
  EXPECT_GT(now.from_other_streams + now.from_other_caches + now.put_together, 0U);
}

TEST_F(OwnerPattern, HoldsOnAnElasticPoolThatIsTrimmedMeanwhile)
{
  rmm::mr::elastic_pool_memory_resource mr;
  std::size_t released{};
  run(mr, 8 * MiB, [&] { released += mr.trim_to(mr.pool_size() / 2); });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_GT(released, 0U);
}

TEST_F(OwnerPattern, HoldsOnACacheOfTheDriversPoolThatIsTrimmedMeanwhile)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&async};
  run(mr, 4 * MiB, [&] { mr.trim_to(mr.pool_size() / 2); });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnAFixedSizeResource)
{
  rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 64 * 1024, 64};
  run(mr, 64 * 1024);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

}  // namespace
