// SPDX-License-Identifier: Apache-2.0
//
// Suballocators without host memory. An allocation may fail, a deallocation must not, and no block is lost. Linked with
// --wrap=calloc; operator new is replaced.

#include "../../../support/failing_host_memory.hpp"
#include "../../../support/graph.hpp"
#include "../../../support/random_program.hpp"
#include "../../../support/seeds.hpp"
#include "../../../support/worker.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

thread_local std::uint64_t until_failure{0};  // the n-th allocation of this thread fails; 0 for none
thread_local std::uint64_t failures{0};       // so many allocations in a row fail
thread_local std::uint64_t failed{0};
thread_local bool calloc_fails{false};  // in this thread, always
std::atomic<std::size_t> largest_request{0};

/// Makes `count` allocations of the calling thread fail, from the n-th on.
void fail_host_allocations(std::uint64_t n, std::uint64_t count)
{
  failed        = 0;
  failures      = count;
  until_failure = n;
}

/// Returns how many allocations failed.
std::uint64_t stop_failing()
{
  until_failure = 0;
  return std::exchange(failed, 0);
}

constexpr std::uint64_t all = ~std::uint64_t{0};

}  // namespace

/// Counts allocations of this program, but not of the simulated runtime, which may call C++ library functions that are compiled
/// into this program.
bool rmm::test::host_allocation_fails(void const* caller) noexcept
{
  static thread_local bool is_looking{false};
  if (until_failure == 0 || is_looking || !is_of_this_program(caller)) { return false; }
  is_looking            = true;
  bool const of_runtime = is_called_by_the_runtime();
  is_looking            = false;
  if (of_runtime) { return false; }
  if (until_failure > 1) {
    --until_failure;
    return false;
  }
  ++failed;
  if (--failures == 0) { until_failure = 0; }
  return true;
}

extern "C" void* __real_calloc(std::size_t count, std::size_t bytes);
extern "C" void* __wrap_calloc(std::size_t count, std::size_t bytes)
{
  if (calloc_fails || rmm::test::host_allocation_fails(__builtin_return_address(0))) { return nullptr; }
  auto seen = largest_request.load();
  while (seen < count * bytes && !largest_request.compare_exchange_weak(seen, count * bytes)) {}
  return __real_calloc(count, bytes);
}

namespace {

using rmm::test::bare_heap;
using rmm::test::for_each_seed;
using rmm::test::memory_source;
using rmm::test::random_program;
using rmm::test::run_on_a_thread_that_ends;
using rmm::test::worker;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

struct SuballocatorHostMemory : Stepped {
  struct block {
    void* ptr;
    std::size_t bytes;
    rmm::cuda_stream_view stream;
  };

  /// Fills the heap with blocks of all kinds, alternately on the two streams.
  std::vector<block> fill(device_heap& heap)
  {
    std::vector<block> blocks;
    blocks.reserve(10'000);
    for (std::size_t i = 0;; ++i) {
      auto const bytes = i % 16 == 0 ? 100 * KiB : 256 * (1 + i % 7);
      auto const s     = (i % 2 == 0 ? stream : other).view();
      void* const ptr  = heap.allocate(bytes, s);
      if (ptr == nullptr) { return blocks; }
      blocks.push_back({ptr, bytes, s});
      write(ptr, bytes, s);
    }
  }

  /// Expects that all memory is free again, and in one piece.
  static void expect_all_free(device_heap& heap, std::size_t size)
  {
    EXPECT_TRUE(heap.good());
    EXPECT_EQ(heap.figures().live_bytes, 0U);
    rmm::cuda_stream const fresh;
    void* const whole = heap.allocate(size, fresh);
    ASSERT_NE(whole, nullptr);
    write(whole, size, fresh, "next owner");
    heap.deallocate(whole, size, fresh);
  }

  void TearDown() override
  {
    for (auto* const each : {&stream, &other}) { rmm::cuda_stream const ends{std::move(*each)}; }
    Simulated::TearDown();
  }

  rmm::cuda_stream stream;
  rmm::cuda_stream other;
};

TEST_F(SuballocatorHostMemory, IsNotNeededToDeallocate)
{
  device_heap heap{4 * MiB};
  auto const blocks = fill(heap);
  fail_host_allocations(1, all);
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    heap.deallocate(blocks[i].ptr, blocks[i].bytes, blocks[i].stream);
  }
  for (std::size_t i = 1; i < blocks.size(); i += 2) {
    heap.deallocate(blocks[i].ptr, blocks[i].bytes, blocks[i].stream);
  }
  stop_failing();
  expect_all_free(heap, 4 * MiB);
}

TEST_F(SuballocatorHostMemory, IsNotNeededToDeallocateInAnotherThread)
{
  device_heap heap{4 * MiB};
  auto const blocks = fill(heap);
  worker thread;
  thread.run([&] {
    fail_host_allocations(1, all);
    for (auto const& b : blocks) { heap.deallocate(b.ptr, b.bytes, b.stream); }  // it has no cache, and gets none
    stop_failing();
  });
  expect_all_free(heap, 4 * MiB);
}

TEST_F(SuballocatorHostMemory, IsNotNeededToDeallocateOnAnUnknownStream)
{
  device_heap heap{MiB};
  auto const blocks = fill(heap);
  rmm::cuda_stream fresh;
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  fail_host_allocations(1, all);
  for (auto const& b : blocks) { heap.deallocate(b.ptr, b.bytes, fresh); }
  stop_failing();
  expect_all_free(heap, MiB);
}

TEST_F(SuballocatorHostMemory, IsNotNeededWhileAThreadEnds)
{
  device_heap heap{MiB};
  auto const blocks = fill(heap);
  run_on_a_thread_that_ends([&] {
    for (auto const& b : blocks) { heap.deallocate(b.ptr, b.bytes, b.stream); }
    fail_host_allocations(1, all);  // stays on while the thread ends
  });
  expect_all_free(heap, MiB);
}

TEST_F(SuballocatorHostMemory, IsNotNeededToDeallocateABlockInAnnouncedParts)
{
  constexpr std::size_t part_bytes = 4 * KiB;
  constexpr std::size_t parts      = 4 * MiB / part_bytes;
  device_heap heap{4 * MiB};
  auto* const whole = static_cast<char*>(heap.allocate(parts * part_bytes, stream));
  ASSERT_NE(whole, nullptr);
  write(whole, parts * part_bytes, stream);

  std::size_t told = 1;
  fail_host_allocations(1, all);
  while (told < parts && heap.heap().try_divide()) { ++told; }
  stop_failing();
  EXPECT_LT(told, parts) << "without host memory there is no room for so many";
  for (; told < parts; ++told) { ASSERT_TRUE(heap.heap().try_divide()); }

  fail_host_allocations(1, all);
  for (std::size_t const first : {0U, 1U}) {  // first parts whose neighbours are in use
    for (auto i = first; i < parts; i += 2) { heap.deallocate(whole + i * part_bytes, part_bytes, stream); }
  }
  stop_failing();
  expect_all_free(heap, 4 * MiB);
}

TEST_F(SuballocatorHostMemory, MayRunOutAtAnyPointWhileAThreadEnds)
{
  for (std::uint64_t n = 1; n <= 12; ++n) {
    device_heap heap{MiB};
    auto const blocks = fill(heap);
    run_on_a_thread_that_ends([&] {
      for (auto const& b : blocks) { heap.deallocate(b.ptr, b.bytes, b.stream); }
      fail_host_allocations(n, 1);
    });
    expect_all_free(heap, MiB);
  }
}

TEST_F(SuballocatorHostMemory, MayRunOutAtAnyPointOfAnAllocation)
{
  std::uint64_t runs = 0;
  for (bool any = true; any; ++runs) {
    device_heap heap{64 * KiB, 512 * KiB};
    std::vector<block> blocks;
    blocks.reserve(1000);
    worker thread;
    thread.run([&] {
      auto const n = runs + 1;
      fail_host_allocations(n, 1);
      for (std::size_t i = 0; i < 300; ++i) {
        auto const bytes = i % 16 == 0 ? 70 * KiB : 256 * (1 + i % 7);
        auto const s     = (i % 2 == 0 ? stream : other).view();
        try {
          if (void* const ptr = heap.allocate(bytes, s)) { blocks.push_back({ptr, bytes, s}); }
        } catch (std::bad_alloc const&) {}
        if (i % 3 == 0 && !blocks.empty()) {
          heap.deallocate(blocks.back().ptr, blocks.back().bytes, blocks.back().stream);
          blocks.pop_back();
        }
      }
      any = stop_failing() != 0;
    });
    ASSERT_TRUE(heap.good()) << "allocation " << runs;
    for (auto const& b : blocks) { heap.deallocate(b.ptr, b.bytes, b.stream); }
    ASSERT_EQ(heap.figures().free_bytes, heap.figures().reserved_bytes) << "allocation " << runs;
    ASSERT_TRUE(heap.good()) << "allocation " << runs;
  }
  EXPECT_GT(runs, 5U);
}

TEST_F(SuballocatorHostMemory, MayRunOutAtAnyPointOfAFreeOfAGraphsMemory)
{
  constexpr std::size_t bytes = 256 * KiB;
  std::uint64_t runs          = 0;
  for (bool any = true; any; ++runs) {
    device_heap heap{4 * MiB};
    rmm::graph_memory memory;
    std::vector<void*> blocks(8);
    auto const made = rmm::test::capture(stream, [&] {
      rmm::capture_scope const scope{stream, memory};
      for (auto& each : blocks) { each = heap.allocate(bytes, stream); }
    });
    fail_host_allocations(runs + 1, 1);
    for (std::size_t i = 0; i < blocks.size(); i += 2) { heap.deallocate(blocks[i], bytes, stream); }
    any = stop_failing() != 0;
    ASSERT_TRUE(heap.good()) << "allocation " << runs;
    EXPECT_EQ(heap.figures().live_bytes, blocks.size() / 2 * bytes) << "allocation " << runs;
    memory.release(stream);
    ASSERT_TRUE(heap.good()) << "allocation " << runs;
    for (std::size_t i = 1; i < blocks.size(); i += 2) { heap.deallocate(blocks[i], bytes, stream); }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_TRUE(heap.heap().wait_for_all());
    EXPECT_EQ(heap.figures().free_bytes, 4 * MiB) << "allocation " << runs;
    expect_all_free(heap, 4 * MiB);
  }
  EXPECT_GT(runs, 2U);
}

/// Ranges take their memory from calloc(). Without it, blocks that a cache has freed last keep waiting for an event.
TEST_F(SuballocatorHostMemory, MayLackRangesWhenASearchWaitsForTheDevice)
{
  constexpr std::size_t block_bytes = 256 * KiB;
  constexpr std::size_t together    = 8;
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  for (std::size_t apart = 1; apart != 100; ++apart) {
    device_heap heap{64 * MiB};
    std::vector<void*> blocks(64 * MiB / block_bytes);
    for (auto& each : blocks) { each = heap.allocate(block_bytes, foreign); }
    std::sort(blocks.begin(), blocks.end());
    auto const free = [&](std::size_t at) {
      heap.deallocate(std::exchange(blocks[at], nullptr), block_bytes, foreign);
    };
    calloc_fails = true;
    for (std::size_t i = 0; i != apart; ++i) { free(2 * i); }
    for (std::size_t i = 0; i != together; ++i) { free(blocks.size() - 1 - i); }
    void* found{};
    try {
      found = heap.heap().allocate_reclaimed(3 * block_bytes, other);
    } catch (std::bad_alloc const&) {}
    calloc_fails = false;
    ASSERT_TRUE(heap.good()) << apart << " blocks freed";
    if (found != nullptr) { heap.deallocate(found, 3 * block_bytes, other); }
    for (std::size_t i = 0; i != blocks.size(); ++i) {
      if (blocks[i] != nullptr) { free(i); }
    }
    expect_all_free(heap, 64 * MiB);
  }
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(SuballocatorHostMemory, MayRunOutAtAnyPointOfAWithdrawal)
{
  constexpr std::size_t size = 2 * MiB;
  std::uint64_t runs         = 0;
  for (bool any = true; any; ++runs) {
    device_heap heap{size};
    std::vector<block> blocks;
    for (std::size_t i = 0; i < 100; ++i) {  // each cut makes one more piece, until the list is full
      auto const s = (i % 2 == 0 ? stream : other).view();
      blocks.push_back({heap.allocate(16 * KiB, s), 16 * KiB, s});
    }
    for (std::size_t i = 0; i < blocks.size(); i += 2) { heap.deallocate(blocks[i].ptr, 16 * KiB, blocks[i].stream); }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    auto wanted = heap.heap().free_runs();
    for (auto& each : wanted) { each = {each.begin + 4 * KiB, 4 * KiB}; }
    std::vector<rmm::detail::address_range> taken;
    fail_host_allocations(runs + 1, 1);
    try {
      taken = heap.heap().withdraw(wanted, rmm::detail::leaving::at_once, stream);
    } catch (std::bad_alloc const&) {}
    any = stop_failing() != 0;
    EXPECT_EQ(heap.figures().reserved_bytes, size - taken.size() * 4 * KiB) << "allocation " << runs;
    ASSERT_TRUE(heap.good()) << "allocation " << runs;
    for (std::size_t i = 1; i < blocks.size(); i += 2) { heap.deallocate(blocks[i].ptr, 16 * KiB, blocks[i].stream); }
    EXPECT_EQ(heap.figures().free_bytes, heap.figures().reserved_bytes) << "allocation " << runs;
    for (auto const& each : taken) { heap.heap().extend(each); }  // the memory is freed with the upstream block
    ASSERT_TRUE(heap.good()) << "allocation " << runs;
  }
  EXPECT_GT(runs, 5U);
}

TEST_F(SuballocatorHostMemory, IsNotUsedUpByThreadsThatComeAndGo)
{
  device_heap heap{16 * MiB};
  auto const one_thread = [&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 60; ++i) { blocks.push_back(heap.allocate(256, stream)); }
    for (void* const ptr : blocks) { heap.deallocate(ptr, 256, stream); }  // these frees stay unfenced
  };
  for (int i = 0; i < 50; ++i) { run_on_a_thread_that_ends(one_thread); }
  largest_request = 0;
  for (int i = 0; i < 500; ++i) { run_on_a_thread_that_ends(one_thread); }
  EXPECT_LT(largest_request, 200 * KiB);
  EXPECT_TRUE(heap.good());
}

TEST_F(SuballocatorHostMemory, IsNotUsedUpByBlocksThatOtherThreadsFree)
{
  device_heap heap{16 * MiB};
  worker consumer;
  std::vector<void*> blocks;
  auto const rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < 100; ++k) {
        blocks.push_back(heap.allocate(256 * (1 + static_cast<std::size_t>(k) % 5), stream));
      }
      consumer.run([&] {
        for (std::size_t k = 0; k < blocks.size(); ++k) { heap.deallocate(blocks[k], 256 * (1 + k % 5), stream); }
        blocks.clear();
      });
    }
  };
  rounds(50);
  largest_request = 0;
  rounds(500);
  EXPECT_LT(largest_request, 200 * KiB);
  EXPECT_TRUE(heap.good());
}

TEST_F(SuballocatorHostMemory, IsNotUsedUpByBlocksThatThreadsFreeBeforeTheyEnd)
{
  device_heap heap{256 * KiB};
  std::vector<void*> blocks(60);
  auto const rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      for (auto& ptr : blocks) { ptr = heap.allocate(256, stream); }
      run_on_a_thread_that_ends([&] {
        for (void* const ptr : blocks) { heap.deallocate(ptr, 256, stream); }  // these frees stay unfenced
      });
    }
  };
  rounds(50);
  largest_request = 0;
  rounds(500);
  EXPECT_LT(largest_request, 200 * KiB);
  EXPECT_TRUE(heap.good());
}

TEST_F(SuballocatorHostMemory, IsNotUsedUpByStreamsThatComeAndGo)
{
  device_heap heap{256 * KiB};
  auto const rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      cudaStream_t passing{};
      ASSERT_EQ(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), cudaSuccess);
      std::vector<void*> blocks;
      for (int k = 0; k < 20; ++k) { blocks.push_back(heap.allocate(256, rmm::cuda_stream_view{passing})); }
      for (void* const ptr : blocks) { heap.deallocate(ptr, 256, rmm::cuda_stream_view{passing}); }
      ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
    }
  };
  rounds(50);
  largest_request = 0;
  rounds(500);
  EXPECT_LT(largest_request, 200 * KiB);
  EXPECT_TRUE(heap.good());
}

TEST_F(SuballocatorHostMemory, MayRunOutAtAnyPointOfATrimWhichCountsWhatItFreed)
{
  std::uint64_t runs  = 0;
  std::uint64_t parts = 0;
  rmm::tag const cache{"cache"};
  for (bool any = true; any; ++runs) {
    rmm::mr::elastic_pool_memory_resource pool;
    pool.set_pausable(cache);
    pool.deallocate(pool.allocate(8 * MiB, stream), 8 * MiB, stream);
    {
      rmm::tag_scope const scope{cache};
      pool.deallocate(pool.allocate(8 * MiB, stream), 8 * MiB, stream);
    }
    auto const held = cudasim::usage(0).physical;
    fail_host_allocations(runs + 1, all);
    auto const given = pool.release_unused();
    any              = stop_failing() != 0;
    parts += any && given != 0 ? 1U : 0U;
    EXPECT_EQ(held - cudasim::usage(0).physical, given) << "allocation " << runs;
    EXPECT_EQ(pool.mapped_bytes(), held - given) << "allocation " << runs;
    static_cast<void>(pool.release_unused());
    EXPECT_EQ(cudasim::usage(0).physical, 0U) << "allocation " << runs;
  }
  EXPECT_GT(runs, 5U);
  EXPECT_GT(parts, 0U);
}

TEST_F(SuballocatorHostMemory, MayRunOutAtAnyPointOfAReport)
{
  rmm::mr::cuda_memory_resource cuda;
  std::uint64_t runs         = 0;
  std::uint64_t with_reports = 0;
  for (bool any = true; any; ++runs) {
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 64 * KiB, 64 * KiB};
    pool.track_tags();
    void* const ptr = pool.allocate(KiB, stream);
    fail_host_allocations(runs + 1, 1);
    try {
      static_cast<void>(pool.allocate(MiB, stream));
      ADD_FAILURE() << "expected an exception";
    } catch (rmm::out_of_memory const& e) {
      any = stop_failing() != 0;
      with_reports += e.report() != nullptr ? 1U : 0U;
      EXPECT_NE(std::string{e.what()}.find("Maximum pool size exceeded"), std::string::npos) << e.what();
    } catch (std::bad_alloc const&) {
      any = stop_failing() != 0;
    }
    pool.deallocate(ptr, KiB, stream);
    ASSERT_EQ(pool.figures().live_bytes, 0U);
  }
  EXPECT_GT(runs, 5U);
  EXPECT_GT(with_reports, 0U);
}

TEST_F(SuballocatorHostMemory, MayRunOutAtAnyPointOfAReservation)
{
  rmm::mr::cuda_memory_resource cuda;
  std::uint64_t runs = 0;
  for (bool any = true; any; ++runs) {
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
    rmm::mr::device_memory_resource* its{};
    std::vector<void*> kept;
    kept.reserve(8);
    {
      fail_host_allocations(runs + 1, 1);
      std::optional<rmm::mr::memory_reservation> task;
      try {
        task = pool.try_reserve(512 * KiB, stream);
        its  = &task->resource();
        for (int i = 0; i < 8; ++i) { kept.push_back(its->allocate(32 * KiB, i % 2 == 0 ? stream : other)); }
        task->shrink_to(300 * KiB);
      } catch (std::bad_alloc const&) {}
    }
    // Frees each block of the second half between neighbours in use, so in parts.
    for (std::size_t i = 0; i < kept.size(); ++i) { its->deallocate(kept[i * 3 % kept.size()], 32 * KiB, stream); }
    any = stop_failing() != 0;
    EXPECT_EQ(pool.figures().live_bytes, 0U) << "allocation " << runs;
    EXPECT_EQ(pool.figures().free_bytes, MiB) << "allocation " << runs;
  }
  EXPECT_GT(runs, 10U);
}

struct RandomHostMemory : Stepped {
  static void run(random_program::options how, std::size_t first_block, std::size_t most)
  {
    how.threads = 2;
    how.arm     = [](std::mt19937_64& random) {
      if (random() % 3 == 0) { fail_host_allocations(1 + random() % 3, 1 + random() % 6); }
    };
    how.disarm = [] { return stop_failing() != 0; };
    for_each_seed(50, [&](std::uint64_t seed) {
      begin(seed);
      std::vector<std::unique_ptr<memory_source>> sources;
      sources.push_back(std::make_unique<bare_heap>(seed % 2 == 0 ? first_block : 0, most));
      random_program program{seed, how, std::move(sources)};
      program.run();
    });
  }
};

TEST_F(RandomHostMemory, MayBeMissingNowAndThenInRandomPrograms)
{
  random_program::options how;
  how.most_live = 600;
  run(how, 512 * KiB, 3 * MiB);
}

TEST_F(RandomHostMemory, MayBeMissingNowAndThenInProgramsWithLargeBlocks)
{
  random_program::options how;
  how.most_live = 60;
  how.largest   = 6 * MiB;
  run(how, 8 * MiB, 24 * MiB);
}

TEST_F(RandomHostMemory, MayBeMissingNowAndThenInProgramsWhoseCachesKeepLargeBlocks)
{
  random_program::options how;
  how.frequent = 3 * MiB;
  how.whole    = 1000 * MiB;
  run(how, 1024 * MiB, 1024 * MiB);
}

TEST(HostAllocationsOfSuballocators, FailOnRequest)
{
  fail_host_allocations(2, 2);
  void* const first = ::operator new(1);
  bool thrown       = false;
  try {
    static_cast<void>(::operator new(1));
  } catch (std::bad_alloc const&) {
    thrown = true;
  }
  void* const second = std::calloc(1, 100);
  void* const third  = ::operator new(1);
  EXPECT_EQ(stop_failing(), 2U);
  EXPECT_TRUE(thrown);
  EXPECT_EQ(second, nullptr);
  std::free(second);
  ::operator delete(first);
  ::operator delete(third);
}

}  // namespace
