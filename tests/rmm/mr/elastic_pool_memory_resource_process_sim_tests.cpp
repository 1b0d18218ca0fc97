// SPDX-License-Identifier: Apache-2.0
//
// Elastic pools beside other users of the device. Memory that a pool gives back is free for other processes and libraries, and
// fragmentation does not make them fail.

#include "../../support/seeds.hpp"
#include "../../support/simulated.hpp"
#include "../../support/temporary_folder.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::mr::elastic_pool_memory_resource;
using rmm::mr::elastic_pool_options;

constexpr std::size_t MiB   = std::size_t{1} << 20U;
constexpr std::size_t chunk = 2 * MiB;
constexpr std::size_t total = 256 * MiB;

std::size_t free_memory()
{
  std::size_t free{};
  std::size_t all{};
  EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
  return free;
}

void begin_machine(std::size_t bytes)
{
  auto machine         = cudasim::environment_options();
  machine.devices      = 1;
  machine.memory_bytes = bytes;
  cudasim::reset(machine);
}

// --- other processes

constexpr char const* expected_variable = "RMM_TEST_FREE_BYTES";

/// A simulated device that this process shares with its children.
struct ElasticPoolProcesses : Simulated {
  void SetUp() override
  {
    ::setenv("CUDASIM_SHARED", (folder / "devices").c_str(), 1);
    begin_machine(total);
  }
  void TearDown() override
  {
    ::unsetenv("CUDASIM_SHARED");
    Simulated::TearDown();
    cudasim::reset();
  }

  /// Returns whether another process finds `bytes` free bytes with cudaMemGetInfo.
  static bool has_free_elsewhere(std::size_t bytes)
  {
    ::setenv(expected_variable, std::to_string(bytes).c_str(), 1);
    auto const child = ::fork();
    if (child == 0) {
      ::execl("/proc/self/exe",
              "tests",
              "--gtest_filter=DISABLED_OtherProcess.SeesTheFreeMemory",
              "--gtest_also_run_disabled_tests",
              "--gtest_brief=1",
              nullptr);
      ::_exit(127);
    }
    int status{-1};
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  rmm::test::temporary_folder folder;
};

/// Runs in the other process. It fails if it is started directly.
TEST(DISABLED_OtherProcess, SeesTheFreeMemory)
{
  auto const* const expected = std::getenv(expected_variable);
  ASSERT_NE(expected, nullptr);
  begin_machine(total);
  EXPECT_EQ(std::to_string(free_memory()), expected);
}

TEST_F(ElasticPoolProcesses, SeeWhatAPoolTakesAndGivesBack)
{
  elastic_pool_memory_resource pool;
  rmm::cuda_stream const stream;
  EXPECT_TRUE(has_free_elsewhere(total));
  void* const kept  = pool.allocate(10 * chunk, stream);
  void* const freed = pool.allocate(50 * chunk, stream);
  EXPECT_TRUE(has_free_elsewhere(total - pool.pool_size()));
  pool.deallocate(freed, 50 * chunk, stream);
  EXPECT_TRUE(has_free_elsewhere(total - pool.pool_size()));
  EXPECT_LT(free_memory(), total - 50 * chunk) << "a pool keeps what is freed";
  EXPECT_EQ(pool.trim_to(20 * chunk), 40 * chunk);
  EXPECT_TRUE(has_free_elsewhere(total - 20 * chunk));
  EXPECT_EQ(pool.release_unused(), 10 * chunk);
  EXPECT_TRUE(has_free_elsewhere(total - 10 * chunk));
  pool.deallocate(kept, 10 * chunk, stream);
}

// --- other libraries

struct ElasticPoolNeighbours : Simulated {
  void SetUp() override { begin_machine(total); }
  void TearDown() override
  {
    Simulated::TearDown();
    cudasim::reset();
  }
};

TEST_F(ElasticPoolNeighbours, TakeTurnsWithThePoolOnMostOfTheDevice)
{
  elastic_pool_memory_resource pool;
  rmm::cuda_stream const stream;
  constexpr std::size_t peak = total / 10 * 7 / chunk * chunk;
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<void*> blocks;
    for (std::size_t bytes = 0; bytes + 3 * MiB <= peak; bytes += 3 * MiB) {
      blocks.push_back(pool.allocate(3 * MiB, stream));
    }
    for (void* const ptr : blocks) { pool.deallocate(ptr, 3 * MiB, stream); }
    EXPECT_GT(pool.release_unused(), peak - 4 * MiB);
    void* theirs{};
    ASSERT_EQ(cudaMalloc(&theirs, peak), cudaSuccess) << "turn " << turn;
    ASSERT_EQ(cudaFree(theirs), cudaSuccess);
  }
}

// --- fragmentation

/// A step of a workload: frees the block in slot `replaced`, and allocates `bytes` bytes there.
struct step {
  std::size_t bytes;
  std::size_t replaced;
};

std::vector<step> varied_workload(std::uint64_t seed, std::size_t live, std::size_t largest)
{
  std::mt19937_64 random{seed};
  std::vector<step> steps;
  for (int i = 0; i < 400; ++i) {
    auto const scale = std::size_t{1} << random() % 16;
    steps.push_back({1 + random() % (largest / scale), random() % live});
  }
  return steps;
}

/// Runs the workload and frees everything. Returns the peak of live bytes, rounded up to whole blocks.
template <class Resource>
std::size_t run(Resource& mr, std::vector<step> const& steps, std::size_t live, rmm::cuda_stream_view stream)
{
  std::vector<std::pair<void*, std::size_t>> slots(live);
  std::size_t now{};
  std::size_t peak{};
  auto const free = [&](auto& slot) {
    if (slot.first == nullptr) { return; }
    mr.deallocate(slot.first, slot.second, stream);
    now -= rmm::align_up(slot.second, 256);
    slot = {};
  };
  for (auto const& each : steps) {
    auto& slot = slots[each.replaced];
    free(slot);
    slot = {mr.allocate(each.bytes, stream), each.bytes};
    now += rmm::align_up(each.bytes, 256);
    peak = std::max(peak, now);
  }
  for (auto& slot : slots) { free(slot); }
  return peak;
}

TEST_F(ElasticPoolNeighbours, AWorkloadRunsForeverInLittleMoreThanItsPeak)
{
  constexpr std::size_t live = 100;
  begin_machine(100'000 * MiB);
  rmm::cuda_stream const stream;
  rmm::test::for_each_seed(4, [&](std::uint64_t seed) {
    auto const steps = varied_workload(seed, live, 1024 * MiB);
    std::size_t peak{};
    {
      elastic_pool_memory_resource unlimited;
      peak = run(unlimited, steps, live, stream);
    }
    elastic_pool_memory_resource pool{0, rmm::align_up(peak + peak / 10, chunk)};
    for (int i = 0; i < 20; ++i) {
      ASSERT_NO_THROW(static_cast<void>(run(pool, steps, live, stream))) << "round " << i;
    }
  });
}

TEST_F(ElasticPoolNeighbours, AllFreeChunksAreUsable)
{
  constexpr std::size_t count = 64;
  elastic_pool_memory_resource pool{0, count * chunk};
  rmm::cuda_stream const stream;
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < count; ++i) { blocks.push_back(pool.allocate(chunk, stream)); }
  for (std::size_t i = 0; i < count; i += 2) { pool.deallocate(blocks[i], chunk, stream); }
  void* const half = pool.allocate(count / 2 * chunk, stream);
  EXPECT_EQ(pool.pool_size(), count * chunk);
  EXPECT_THROW(static_cast<void>(pool.allocate(1, stream)), rmm::out_of_memory);
  pool.deallocate(half, count / 2 * chunk, stream);
  for (std::size_t i = 1; i < count; i += 2) { pool.deallocate(blocks[i], chunk, stream); }
}

}  // namespace
