// SPDX-License-Identifier: Apache-2.0
//
// Random programs of threads, streams and devices on the suballocators, under the ordering checker. A block that reaches a stream
// too early is reported as a race, even if the race does not happen in this run. If the heap is accessible, its invariants are
// checked after each step, and each refusal is checked against the free memory.

#include "../../../support/random_program.hpp"
#include "../../../support/seeds.hpp"

#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace {

using rmm::mr::cuda_memory_resource;
using rmm::test::bare_heap;
using rmm::test::for_each_seed;
using rmm::test::memory_source;
using rmm::test::random_program;
using rmm::test::resource_source;

using arena   = rmm::mr::arena_memory_resource<cuda_memory_resource>;
using binning = rmm::mr::binning_memory_resource<cuda_memory_resource>;
using fixed   = rmm::mr::fixed_size_memory_resource<cuda_memory_resource>;
using pool    = rmm::mr::pool_memory_resource<cuda_memory_resource>;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

struct SuballocatorOrdering : Stepped {
  /// Makes a source for each of `devices` devices, with that device current.
  template <class Make>
  static std::vector<std::unique_ptr<memory_source>> on_each(int devices, Make make)
  {
    std::vector<std::unique_ptr<memory_source>> made;
    for (int device = 0; device < devices; ++device) {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      made.push_back(make());
    }
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    return made;
  }

  /// How often each place of the search served a request, over all programs.
  struct rungs {
    std::uint64_t other_stores{};
    std::uint64_t other_caches{};
    std::uint64_t put_together{};
    std::uint64_t device_synchronizations{};
  };

  static rungs run_on_heaps(std::uint64_t programs,
                            random_program::options const& how,
                            int devices,
                            std::function<std::unique_ptr<bare_heap>(std::uint64_t)> const& make)
  {
    rungs all;
    for_each_seed(programs, [&](std::uint64_t seed) {
      begin(seed, devices);
      random_program program{seed, how, on_each(devices, [&] { return make(seed); })};
      program.run();
      program.for_each_source([&](memory_source& source, std::size_t) {
        auto const now = static_cast<bare_heap&>(source).heap().figures();
        EXPECT_EQ(now.live_bytes, 0U);
        all.other_stores += now.from_other_streams;
        all.other_caches += now.from_other_caches;
        all.put_together += now.put_together;
        all.device_synchronizations += now.device_synchronizations;
      });
    });
    return all;
  }

  /// `make(upstream, seed)` makes the resource of a device.
  template <class Make>
  static void run_on_resources(
    std::uint64_t programs, random_program::options const& how, int devices, bool exact, Make make)
  {
    using resource = typename decltype(make(static_cast<cuda_memory_resource*>(nullptr), 0))::element_type;
    for_each_seed(programs, [&](std::uint64_t seed) {
      begin(seed, devices);
      auto const made = [&](cuda_memory_resource* upstream) { return make(upstream, seed); };
      random_program program{
        seed, how, on_each(devices, [&] { return std::make_unique<resource_source<resource>>(made, exact); })};
      program.run();
    });
  }
};

TEST_F(SuballocatorOrdering, HoldsOnATightHeapThatUsesEachRung)
{
  random_program::options how;
  how.threads     = 3;
  auto const used = run_on_heaps(
    100, how, 1, [](std::uint64_t seed) { return std::make_unique<bare_heap>(seed % 2 == 0 ? MiB : 3 * MiB); });
  EXPECT_GT(used.other_stores, 0U);
  EXPECT_GT(used.other_caches, 0U);
  EXPECT_GT(used.put_together, 0U);
  EXPECT_GT(used.device_synchronizations, 0U);
}

TEST_F(SuballocatorOrdering, HoldsOnAHeapWithRoom)
{
  random_program::options how;
  how.threads     = 3;
  how.streams     = 4;
  how.most_live   = 600;
  auto const used = run_on_heaps(60, how, 1, [](std::uint64_t) { return std::make_unique<bare_heap>(64 * MiB); });
  EXPECT_GT(used.other_caches + used.other_stores, 0U);
}

TEST_F(SuballocatorOrdering, HoldsOnAHeapOfManyBlocks)
{
  random_program::options how;
  how.largest = 40 * KiB;
  run_on_heaps(
    60, how, 1, [](std::uint64_t seed) { return std::make_unique<bare_heap>(seed % 2 == 0 ? 0 : 64 * KiB, 2 * MiB); });
}

TEST_F(SuballocatorOrdering, HoldsInOneThread)
{
  random_program::options how;
  how.threads        = 1;
  how.threads_end    = false;
  how.steps          = 3000;
  how.between_checks = 1;
  run_on_heaps(60, how, 1, [](std::uint64_t) { return std::make_unique<bare_heap>(MiB); });
}

TEST_F(SuballocatorOrdering, HoldsForSmallBlocksAlone)
{
  random_program::options how;
  how.threads   = 2;
  how.largest   = 4 * KiB;
  how.most_live = 1000;
  run_on_heaps(
    80, how, 1, [](std::uint64_t seed) { return std::make_unique<bare_heap>((256 + 64 * (seed % 8)) * KiB); });
}

TEST_F(SuballocatorOrdering, HoldsForLargeBlocks)
{
  random_program::options how;
  how.threads   = 3;
  how.largest   = 6 * MiB;  // most of the blocks are too large for the caches
  how.most_live = 60;
  auto const used =
    run_on_heaps(80, how, 1, [](std::uint64_t seed) { return std::make_unique<bare_heap>((16 + seed % 32) * MiB); });
  EXPECT_GT(used.other_stores, 0U);
}

TEST_F(SuballocatorOrdering, HoldsForLargeBlocksWhenCallsOfTheRuntimeFail)
{
  random_program::options how;
  how.threads   = 2;
  how.largest   = 6 * MiB;
  how.most_live = 60;
  random_program::let_the_runtime_fail(how);
  run_on_heaps(
    60, how, 1, [](std::uint64_t seed) { return std::make_unique<bare_heap>(seed % 2 == 0 ? 0 : 8 * MiB, 24 * MiB); });
}

TEST_F(SuballocatorOrdering, HoldsForLargeBlocksThatCachesKeep)
{
  random_program::options how;
  how.threads     = 3;
  how.frequent    = 3 * MiB;
  how.whole       = 1000 * MiB;
  auto const used = run_on_heaps(60, how, 1, [](std::uint64_t) { return std::make_unique<bare_heap>(1024 * MiB); });
  EXPECT_GT(used.put_together, 0U);
}

TEST_F(SuballocatorOrdering, HoldsForLargeBlocksThatCachesKeepWhenCallsOfTheRuntimeFail)
{
  random_program::options how;
  how.frequent = 3 * MiB;
  how.whole    = 1000 * MiB;
  random_program::let_the_runtime_fail(how);
  run_on_heaps(60, how, 2, [](std::uint64_t) { return std::make_unique<bare_heap>(1024 * MiB); });
}

/// Large blocks, few of which are live, on a heap whose caches serve them.
struct SuballocatorOrderingWhereMemoryIsAmple : SuballocatorOrdering {
  SuballocatorOrderingWhereMemoryIsAmple()
  {
    how.threads   = 3;
    how.largest   = 6 * MiB;
    how.frequent  = 3 * MiB;
    how.whole     = 1000 * MiB;
    how.most_live = 60;
  }

  static std::unique_ptr<bare_heap> make(std::uint64_t)
  {
    auto made = std::make_unique<bare_heap>(1024 * MiB);
    made->heap().make_ample();
    return made;
  }

  random_program::options how;
};

TEST_F(SuballocatorOrderingWhereMemoryIsAmple, Holds)
{
  auto const used = run_on_heaps(60, how, 1, make);
  EXPECT_GT(used.other_caches, 0U);
  EXPECT_GT(used.put_together, 0U);
}

TEST_F(SuballocatorOrderingWhereMemoryIsAmple, HoldsWhenCallsOfTheRuntimeFail)
{
  random_program::let_the_runtime_fail(how);
  run_on_heaps(60, how, 2, make);
}

/// Blocks that go past caches, on a heap with little free memory: caches gather them.
struct SuballocatorOrderingWhereMemoryIsScarce : SuballocatorOrdering {
  SuballocatorOrderingWhereMemoryIsScarce()
  {
    how.threads   = 3;
    how.largest   = MiB;
    how.whole     = 80 * MiB;
    how.frequent  = 300 * KiB;
    how.most_live = 40;
  }

  static std::unique_ptr<bare_heap> make(std::uint64_t)
  {
    auto made = std::make_unique<bare_heap>(1024 * MiB);
    made->heap().take_out(900 * MiB);
    return made;
  }

  random_program::options how;
};

TEST_F(SuballocatorOrderingWhereMemoryIsScarce, Holds)
{
  auto const used = run_on_heaps(60, how, 1, make);
  EXPECT_GT(used.other_stores, 0U);
}

TEST_F(SuballocatorOrderingWhereMemoryIsScarce, HoldsWhenCallsOfTheRuntimeFail)
{
  random_program::let_the_runtime_fail(how);
  run_on_heaps(60, how, 2, make);
}

TEST_F(SuballocatorOrdering, HoldsForVeryTightHeaps)
{
  random_program::options how;
  how.threads = 3;
  how.largest = 2 * KiB;
  run_on_heaps(100, how, 1, [](std::uint64_t seed) { return std::make_unique<bare_heap>(KiB * (1 + seed % 16)); });
}

TEST_F(SuballocatorOrdering, HoldsOnSeveralDevices)
{
  random_program::options how;
  how.threads = 2;
  how.streams = 2;
  run_on_heaps(60, how, 3, [](std::uint64_t) { return std::make_unique<bare_heap>(MiB); });
}

TEST_F(SuballocatorOrdering, HoldsWhenCallsOfTheRuntimeFail)
{
  random_program::options how;
  how.threads = 2;
  how.steps   = 1000;
  random_program::let_the_runtime_fail(how);
  run_on_heaps(100, how, 1, [](std::uint64_t seed) {
    return std::make_unique<bare_heap>(seed % 2 == 0 ? 0 : 512 * KiB, 2 * MiB);
  });
}

TEST_F(SuballocatorOrdering, HoldsOnPools)
{
  random_program::options how;
  how.threads = 2;
  run_on_resources(100, how, 1, true, [](cuda_memory_resource* upstream, std::uint64_t seed) {
    std::optional<std::size_t> maximum;
    if (seed % 2 == 0) { maximum = 2 * MiB; }  // tight, so that streams take memory from each other
    return std::make_unique<pool>(upstream, seed % 3 == 0 ? 0U : 64 * KiB, maximum);
  });
}

TEST_F(SuballocatorOrdering, HoldsOnPoolsWhenCallsOfTheRuntimeFail)
{
  random_program::options how;
  random_program::let_the_runtime_fail(how);
  run_on_resources(60, how, 1, true, [](cuda_memory_resource* upstream, std::uint64_t seed) {
    return std::make_unique<pool>(upstream, 64 * KiB, std::optional<std::size_t>{(1 + seed % 3) * MiB});
  });
}

TEST_F(SuballocatorOrdering, HoldsOnArenas)
{
  random_program::options how;
  run_on_resources(60, how, 2, true, [](cuda_memory_resource* upstream, std::uint64_t seed) {
    return std::make_unique<arena>(upstream, (1 + seed % 4) * MiB);
  });
}

TEST_F(SuballocatorOrdering, HoldsOnFixedSizeResources)
{
  random_program::options how;
  how.largest = 16 * KiB;
  run_on_resources(60, how, 1, false, [](cuda_memory_resource* upstream, std::uint64_t seed) {
    return std::make_unique<fixed>(upstream, 16 * KiB, 1 + seed % 8);
  });
}

TEST_F(SuballocatorOrdering, HoldsOnFixedSizeResourcesOfLargeBlocks)
{
  random_program::options how;
  how.largest   = 128 * KiB;
  how.most_live = 60;
  run_on_resources(60, how, 1, false, [](cuda_memory_resource* upstream, std::uint64_t seed) {
    return std::make_unique<fixed>(upstream, 128 * KiB, 1 + seed % 8);
  });
}

TEST_F(SuballocatorOrdering, HoldsOnBins)
{
  random_program::options how;
  how.most_live = 100;
  how.largest   = 8 * KiB;
  run_on_resources(60, how, 1, false, [](cuda_memory_resource* upstream, std::uint64_t) {
    return std::make_unique<binning>(upstream, static_cast<std::int8_t>(8), static_cast<std::int8_t>(12));
  });
}

}  // namespace
