// SPDX-License-Identifier: Apache-2.0
//
// Random programs on pools, under the ordering checker. Work on its stream writes every block. A block that reaches a stream too
// early is reported as a race, even if the race does not happen in this run.

#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace {

using pool = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;

struct PoolOrdering : Simulated {
  static void begin(std::uint64_t seed, int devices = 1)
  {
    cudasim::options machine;
    machine.devices        = devices;
    machine.mode           = cudasim::execution::stepped;
    machine.seed           = seed;
    machine.check_ordering = true;
    start(machine);
  }
};

/// Runs one random program on `mr`. Every block is written after its allocation and before its free.
void run_program(rmm::mr::device_memory_resource& mr, std::uint64_t seed)
{
  struct block {
    void* ptr;
    std::size_t bytes;
    std::size_t stream;
  };
  std::mt19937_64 random{seed};
  auto const pick               = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  constexpr std::size_t created = 5;
  std::vector<std::optional<rmm::cuda_stream>> streams(created);
  for (auto& s : streams) {
    s.emplace(pick(2) == 0 ? rmm::cuda_stream::flags::sync_default : rmm::cuda_stream::flags::non_blocking);
  }
  auto const view = [&](std::size_t i) {
    return i < created ? streams[i]->view() : i == created ? rmm::cuda_stream_legacy : rmm::cuda_stream_per_thread;
  };
  auto const use = [&](block const& b) {
    ASSERT_EQ(cudasim::launch(view(b.stream).value(), {}, {{b.ptr, b.bytes}}, {}, {"owner"}), cudaSuccess);
  };

  std::vector<block> live;
  for (int i = 0; i < 250; ++i) {
    auto const what = pick(20);
    if (what < 9 || live.empty()) {
      block b{nullptr, 1 + pick(4000), pick(created + 2)};
      b.ptr = mr.allocate(b.bytes, view(b.stream));
      live.push_back(b);
      use(b);
    } else if (what < 17) {
      auto const which = pick(live.size());
      auto const b     = live[which];
      live[which]      = live.back();
      live.pop_back();
      use(b);
      mr.deallocate(b.ptr, b.bytes, view(b.stream));
    } else if (what == 17) {
      cudasim::step();
    } else if (what == 18) {
      view(pick(created + 2)).synchronize();
    } else {  // a stream ends with work pending, after its blocks were freed; its handle is recycled
      auto const gone = pick(created);
      for (std::size_t k = live.size(); k-- > 0;) {
        if (live[k].stream != gone) { continue; }
        mr.deallocate(live[k].ptr, live[k].bytes, view(gone));
        live[k] = live.back();
        live.pop_back();
      }
      streams[gone].reset();
      streams[gone].emplace(rmm::cuda_stream::flags::non_blocking);
    }
    ASSERT_TRUE(cudasim::violations().empty())
      << "seed " << seed << ", step " << i << ": " << cudasim::violations()[0].text;
  }
  for (auto const& b : live) { mr.deallocate(b.ptr, b.bytes, view(b.stream)); }
}

TEST_F(PoolOrdering, NoBlockReachesAStreamTooEarly)
{
  for (std::uint64_t seed = 1; seed <= 300 && !HasFatalFailure(); ++seed) {
    begin(seed);
    rmm::mr::cuda_memory_resource cuda;
    std::optional<std::size_t> maximum;
    if (seed % 2 == 0) { maximum = 2 << 20; }  // tight, so that streams take memory from each other
    pool mr{&cuda, seed % 3 == 0 ? 0U : 64U * 1024U, maximum};
    run_program(mr, seed);
  }
}

TEST_F(PoolOrdering, NoBlockReachesAStreamTooEarlyOverAStreamOrderedUpstream)
{
  for (std::uint64_t seed = 1; seed <= 150 && !HasFatalFailure(); ++seed) {
    begin(seed);
    rmm::mr::cuda_async_memory_resource upstream;
    {
      pool mr{&upstream, seed % 3 == 0 ? 0U : 64U * 1024U};
      run_program(mr, seed);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

TEST_F(PoolOrdering, SurvivesAnyCallThatFails)
{
  // Nothing may be lost or handed out early. Calls that free something, such as cudaFree and cudaEventDestroy, are not included: no
  // destructor can handle their failures, so they are asserted.
  for (auto const* const function : {"cudaMalloc",
                                     "cudaEventCreateWithFlags",
                                     "cudaEventRecord",
                                     "cudaEventQuery",
                                     "cudaStreamWaitEvent",
                                     "cudaStreamGetId"}) {
    begin(1);
    std::uint64_t failed_allocations = 0;
    auto const fired                 = cudasim::for_each_fault(
      [&] {
        rmm::mr::cuda_memory_resource cuda;
        std::vector<rmm::cuda_stream> streams(3);
        try {
          pool mr{&cuda, 64 * 1024, 256 * 1024};
          for (std::size_t i = 0; i < 9; ++i) {
            auto const s = streams[i % 3].view();
            try {
              void* const ptr = mr.allocate(60 * 1024, s);
              EXPECT_EQ(cudasim::launch(s.value(), {}, {{ptr, 60 * 1024}}), cudaSuccess);
              mr.deallocate(ptr, 60 * 1024, s);
            } catch (rmm::bad_alloc const&) {
              ++failed_allocations;
            }
          }
        } catch (rmm::bad_alloc const&) {
          ++failed_allocations;
        }
      },
      [&](std::uint64_t n) {
        ASSERT_TRUE(cudasim::violations().empty())
          << function << ", call " << n << ": " << cudasim::violations()[0].text;
        ASSERT_EQ(cudasim::leak_report(), "") << function << ", call " << n;
      },
      cudaErrorInvalidValue,
      function);
    EXPECT_GT(fired, 0U) << function;
    EXPECT_LE(failed_allocations, fired) << function;  // a fault fails at most one allocation
  }
}

/// Threads need nearly the maximum, in sizes that differ. So they give unused blocks back to make room (rung trim), while others take
/// blocks, and while one more thread trims. The checker sees each write.
TEST_F(PoolOrdering, TrimsBesideThreadsThatAllocate)
{
  constexpr std::size_t MiB   = std::size_t{1} << 20U;
  constexpr unsigned threads  = 3;
  constexpr std::size_t share = 8 * MiB;
  cudasim::options machine;
  machine.check_ordering = true;
  start(machine);
  rmm::mr::cuda_memory_resource cuda;
  {
    pool mr{&cuda, 0, threads * share + 2 * MiB};
    std::atomic<unsigned> working{threads};
    std::atomic<unsigned> refused{};
    std::vector<std::thread> all;
    for (unsigned i = 0; i != threads; ++i) {
      all.emplace_back([&, i] {
        rmm::cuda_stream const stream;
        std::mt19937 random{i};
        for (int round = 0; round != 100; ++round) {
          auto const bytes = share / (1 + random() % 8);
          std::vector<void*> live;
          for (std::size_t left = share; left >= bytes; left -= bytes) {
            try {
              live.push_back(mr.allocate(bytes, stream));
              EXPECT_EQ(cudaMemsetAsync(live.back(), 1, bytes, stream.value()), cudaSuccess);
            } catch (rmm::out_of_memory const&) {
              ++refused;  // the blocks of upstream have the sizes of earlier requests
            }
          }
          for (void* const ptr : live) { mr.deallocate(ptr, bytes, stream); }
        }
        --working;
      });
    }
    std::size_t given{};
    while (working != 0) { given += mr.trim_to(8 * MiB); }
    for (auto& each : all) { each.join(); }
    EXPECT_EQ(mr.figures().live_bytes, 0U);
    EXPECT_LT(refused, 100U * threads);
    given += mr.trim_to(0);
    EXPECT_NE(given, 0U);
    EXPECT_EQ(mr.pool_size(), 0U);
  }
}

}  // namespace
