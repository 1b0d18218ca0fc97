// SPDX-License-Identifier: Apache-2.0
//
// Pools during captures of CUDA graphs. Memory of a graph is not shared, pools break no capture, and captures without a scope are
// found.

#include "../support/graph.hpp"
#include "../support/stepped_heap.hpp"
#include "../support/worker.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::capture_scope;
using rmm::graph_memory;
using rmm::test::capture;
using rmm::test::graph;
using rmm::test::order;
using rmm::test::run_on_a_thread_that_ends;

using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

constexpr auto non_blocking = rmm::cuda_stream::flags::non_blocking;

struct block {
  void* ptr{};
  std::size_t bytes{};

  [[nodiscard]] bool overlaps(block const& other) const
  {
    return static_cast<char*>(ptr) < static_cast<char*>(other.ptr) + other.bytes &&
           static_cast<char*>(other.ptr) < static_cast<char*>(ptr) + bytes;
  }
};

struct CaptureScopeSim : Stepped {
  rmm::mr::cuda_memory_resource cuda;
  rmm::cuda_stream stream{non_blocking};
  rmm::cuda_stream other{non_blocking};

  void TearDown() override
  {
    for (auto* const each : {&stream, &other}) { rmm::cuda_stream const ends{std::move(*each)}; }
    Simulated::TearDown();
  }

  /// Allocates all free memory of the pool in blocks of one size.
  static std::vector<block> allocate_all(pool& mr, rmm::cuda_stream_view on, std::size_t bytes = 64 * KiB)
  {
    std::vector<block> all;
    for (;;) {
      try {
        all.push_back({mr.allocate(bytes, on), bytes});
      } catch (rmm::out_of_memory const&) {
        return all;
      }
    }
  }

  static void deallocate_all(pool& mr, std::vector<block> const& all, rmm::cuda_stream_view on)
  {
    for (auto const& each : all) { mr.deallocate(each.ptr, each.bytes, on); }
  }

  static bool any_overlaps(std::vector<block> const& all, block const& one)
  {
    return std::any_of(all.begin(), all.end(), [&](block const& each) { return each.overlaps(one); });
  }

  /// A graph that allocates, writes and frees one block of memory.
  struct small_graph {
    graph executable;
    block used;
  };
  small_graph capture_one(pool& mr, graph_memory const& memory, std::size_t bytes = 64 * KiB)
  {
    small_graph made;
    made.executable = capture(stream, [&] {
      capture_scope const scope{stream, memory};
      made.used = {mr.allocate(bytes, stream), bytes};
      write(made.used.ptr, bytes, stream, "graph");
      mr.deallocate(made.used.ptr, bytes, stream);
    });
    return made;
  }
};

// --- what a graph uses

TEST_F(CaptureScopeSim, MemoryOfACaptureIsNotSharedAsLongAsAHandleExists)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  auto const made = capture_one(mr, memory);
  auto const all  = allocate_all(mr, other);
  EXPECT_FALSE(all.empty());
  EXPECT_FALSE(any_overlaps(all, made.used));
  deallocate_all(mr, all, other);
}

TEST_F(CaptureScopeSim, ACaptureThatNeedsLittleTakesA64thOfThePool)
{
  pool mr{&cuda, 16 * MiB, 16 * MiB};
  graph_memory const memory;
  static_cast<void>(capture_one(mr, memory, 4 * KiB));
  void* const rest = mr.allocate(16 * MiB - 256 * KiB, other);
  EXPECT_THROW(static_cast<void>(mr.allocate(4 * KiB, other)), rmm::out_of_memory);
  mr.deallocate(rest, 16 * MiB - 256 * KiB, other);
}

TEST_F(CaptureScopeSim, AGraphRunsBesideOthersThatUseThePool)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  auto const made = capture_one(mr, memory);
  for (int i = 0; i < 100; ++i) {  // the checker reports a race if the memory is the same
    made.executable.launch(stream);
    for (auto const& on : {stream.view(), other.view()}) {
      void* const ptr = mr.allocate(64 * KiB, on);
      write(ptr, 64 * KiB, on);
      mr.deallocate(ptr, 64 * KiB, on);
    }
  }
}

TEST_F(CaptureScopeSim, WithoutTheScopeTheSameProgramIsARace)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  mr.set_check_capture(false);
  mr.deallocate(
    mr.allocate(4 * KiB, stream), 4 * KiB, stream);  // now the thread's own cache serves it, without a check
  auto const unannounced = capture(stream, [&] {
    void* const ptr = mr.allocate(4 * KiB, stream);
    write(ptr, 4 * KiB, stream, "graph");
    mr.deallocate(ptr, 4 * KiB, stream);
  });
  unannounced.launch(other);
  void* const ptr = mr.allocate(4 * KiB, stream);
  write(ptr, 4 * KiB, stream);
  mr.deallocate(ptr, 4 * KiB, stream);
  EXPECT_FALSE(cudasim::violations().empty());
  cudasim::clear_violations();
}

TEST_F(CaptureScopeSim, ABlockFreedInACaptureIsUsedAgainInItOnItsStream)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, memory};
    void* const first = mr.allocate(64 * KiB, stream);
    mr.deallocate(first, 64 * KiB, stream);
    void* const second = mr.allocate(64 * KiB, stream);
    EXPECT_EQ(second, first);
    mr.deallocate(second, 64 * KiB, stream);
  }));
}

TEST_F(CaptureScopeSim, ABlockFreedInACaptureIsNotUsedOnAnotherStreamOfIt)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    order(stream, other);
    void* const first = mr.allocate(64 * KiB, stream);
    write(first, 64 * KiB, stream);
    mr.deallocate(first, 64 * KiB, stream);
    void* const second = mr.allocate(64 * KiB, other);
    EXPECT_NE(second, first);
    write(second, 64 * KiB, other);
    mr.deallocate(second, 64 * KiB, other);
    order(other, stream);
  });
  made.launch(stream);
}

TEST_F(CaptureScopeSim, ABlockFreedInACaptureIsNotReusedOnAnotherThreadsPerThreadStream)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  rmm::cuda_stream_view const mine = rmm::cuda_stream_per_thread;
  auto const made                  = capture(stream, cudaStreamCaptureModeRelaxed, [&] {
    capture_scope const scope{stream, memory};
    std::thread{[&] {
      order(stream, mine);
      void* const first = mr.allocate(64 * KiB, mine);
      mr.deallocate(first, 64 * KiB, mine);
      std::thread{[&] {
        order(stream, mine);
        void* const second = mr.allocate(64 * KiB, mine);
        EXPECT_NE(second, first);
        mr.deallocate(second, 64 * KiB, mine);
        order(mine, stream);
      }}.join();
      order(mine, stream);
    }}.join();
  });
  made.launch(stream);
}

TEST_F(CaptureScopeSim, ABlockFreedInACaptureIsNotReusedOnAStreamWithARecycledHandle)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  auto const made = capture(stream, cudaStreamCaptureModeRelaxed, [&] {
    capture_scope const scope{stream, memory};
    std::optional<rmm::cuda_stream> first{std::in_place, non_blocking};
    auto const handle = first->value();
    order(stream, *first);
    void* const ptr = mr.allocate(64 * KiB, *first);
    write(ptr, 64 * KiB, *first, "first");
    mr.deallocate(ptr, 64 * KiB, *first);
    cudaEvent_t end{};
    ASSERT_EQ(cudaEventCreateWithFlags(&end, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(end, first->value()), cudaSuccess);
    first.reset();
    rmm::cuda_stream const second{non_blocking};
    ASSERT_EQ(second.value(), handle) << "the test needs a handle that comes back";
    order(stream, second);  // orders it after work before that of the first stream
    void* const other_ptr = mr.allocate(64 * KiB, second);
    EXPECT_NE(other_ptr, ptr);
    write(other_ptr, 64 * KiB, second, "second");
    mr.deallocate(other_ptr, 64 * KiB, second);
    order(second, stream);
    ASSERT_EQ(cudaStreamWaitEvent(stream.value(), end, 0), cudaSuccess);
    ASSERT_EQ(cudaEventDestroy(end), cudaSuccess);
  });
  for (int i = 0; i < 10; ++i) { made.launch(stream); }
}

TEST_F(CaptureScopeSim, AStreamThatJoinsTheCaptureIsServedFromItsMemory)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  block used;
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    order(stream, other);
    used = {mr.allocate(64 * KiB, other), 64 * KiB};
    mr.deallocate(used.ptr, used.bytes, other);
    order(other, stream);
  });
  auto const all  = allocate_all(mr, stream);
  EXPECT_FALSE(any_overlaps(all, used));
  deallocate_all(mr, all, stream);
}

TEST_F(CaptureScopeSim, AStreamOutsideOfTheCaptureIsServedNormally)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, memory};
    void* const ptr = mr.allocate(64 * KiB, other);
    EXPECT_EQ(mr.figures().live_bytes, 64 * KiB);
    EXPECT_EQ(mr.figures().graph_bytes, 0U);
    mr.deallocate(ptr, 64 * KiB, other);
    EXPECT_EQ(mr.figures().graph_bytes, 0U);
  }));
}

TEST_F(CaptureScopeSim, MemoryAllocatedBeforeTheCaptureThatFreesItStaysWithTheGraph)
{
  pool mr{&cuda, MiB, MiB};
  std::optional<graph_memory> memory{std::in_place};
  block const input{mr.allocate(64 * KiB, stream), 64 * KiB};
  auto made = capture(stream, [&] {
    capture_scope const scope{stream, *memory};
    write(input.ptr, input.bytes, stream);
    mr.deallocate(input.ptr, input.bytes, stream);
  });
  EXPECT_EQ(mr.figures().graph_bytes, 64 * KiB);
  auto all = allocate_all(mr, other);
  EXPECT_FALSE(any_overlaps(all, input));
  deallocate_all(mr, all, other);

  made = graph{};
  memory.reset();
  all = allocate_all(mr, other);
  EXPECT_TRUE(any_overlaps(all, input));
  deallocate_all(mr, all, other);
}

TEST_F(CaptureScopeSim, BlocksThatOutliveACaptureAreFreedLikeOtherBlocks)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory const memory;
  block output;
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    output = {mr.allocate(64 * KiB, stream), 64 * KiB};
    write(output.ptr, output.bytes, stream);
  });
  made.launch(stream);
  write(output.ptr, output.bytes, stream, "reader");
  mr.deallocate(output.ptr, output.bytes, stream);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  auto const all = allocate_all(mr, stream);  // the graph may still run
  EXPECT_FALSE(any_overlaps(all, output));
  deallocate_all(mr, all, stream);
}

TEST_F(CaptureScopeSim, MemoryFreedAfterACaptureServesTheNextOneWhenItIsIdle)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory const memory;
  void* output{};
  auto const first = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    output = mr.allocate(64 * KiB, stream);
  });
  write(output, 64 * KiB, other, "reader");
  mr.deallocate(output, 64 * KiB, other);
  auto const take_one = [&] {
    void* taken{};
    static_cast<void>(capture(stream, [&] {
      capture_scope const scope{stream, memory};
      taken = mr.allocate(64 * KiB, stream);
      mr.deallocate(taken, 64 * KiB, stream);
    }));
    return taken;
  };
  EXPECT_NE(take_one(), output);  // the reader has not run yet
  other.synchronize();
  std::vector<void*> taken;
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, memory};
    for (int i = 0; i < 2; ++i) { taken.push_back(mr.allocate(64 * KiB, stream)); }
    for (void* const each : taken) { mr.deallocate(each, 64 * KiB, stream); }
  }));
  EXPECT_NE(std::find(taken.begin(), taken.end(), output), taken.end());
}

TEST_F(CaptureScopeSim, GraphsThatShareMemoryUseTheSame)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  auto const first  = capture_one(mr, memory);
  auto const second = capture_one(mr, memory);
  EXPECT_EQ(first.used.ptr, second.used.ptr);
}

TEST_F(CaptureScopeSim, GraphsThatShareNoMemoryDoNot)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const one;
  graph_memory const two;
  auto const first  = capture_one(mr, one);
  auto const second = capture_one(mr, two);
  EXPECT_FALSE(first.used.overlaps(second.used));
}

TEST_F(CaptureScopeSim, ConcurrentCapturesWithOneMemoryTakeNothingFromEachOther)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  static_cast<void>(capture(stream, cudaStreamCaptureModeRelaxed, [&] {
    capture_scope const scope{stream, memory};
    block const first{mr.allocate(64 * KiB, stream), 64 * KiB};
    mr.deallocate(first.ptr, first.bytes, stream);
    static_cast<void>(capture(other, cudaStreamCaptureModeRelaxed, [&] {
      capture_scope const inner{other, memory};
      block const second{mr.allocate(64 * KiB, other), 64 * KiB};
      EXPECT_FALSE(second.overlaps(first));
      mr.deallocate(second.ptr, second.bytes, other);
    }));
    EXPECT_EQ(mr.allocate(64 * KiB, stream), first.ptr);
    mr.deallocate(first.ptr, first.bytes, stream);
  }));
}

TEST_F(CaptureScopeSim, OneScopeServesSeveralCaptures)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  capture_scope const scope{stream};  // before the first begins
  std::vector<block> used;
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(capture(stream, [&] {
      used.push_back({mr.allocate(64 * KiB, stream), 64 * KiB});
      mr.deallocate(used.back().ptr, used.back().bytes, stream);
    }));
  }
  EXPECT_EQ(used[0].ptr, used[1].ptr);
  EXPECT_EQ(used[0].ptr, used[2].ptr);
  EXPECT_GE(mr.figures().graph_bytes, 64 * KiB);
}

TEST_F(CaptureScopeSim, TheStreamIsServedNormallyWhileItDoesNotCapture)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  capture_scope const scope{stream};
  mr.deallocate(mr.allocate(64 * KiB, stream), 64 * KiB, stream);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureScopeSim, ACaptureInAnotherThreadIsServed)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  static_cast<void>(capture(stream, cudaStreamCaptureModeRelaxed, [&] {
    capture_scope const scope{stream, memory};
    run_on_a_thread_that_ends([&] { mr.deallocate(mr.allocate(64 * KiB, stream), 64 * KiB, stream); });
  }));
  EXPECT_GE(mr.figures().graph_bytes, 64 * KiB);
}

TEST_F(CaptureScopeSim, TheDefaultStreamOfAThreadIsServed)
{
  pool mr{&cuda, 4 * MiB, 4 * MiB};
  graph_memory const memory;
  static_cast<void>(capture(rmm::cuda_stream_per_thread, [&] {
    capture_scope const scope{rmm::cuda_stream_per_thread, memory};
    mr.deallocate(mr.allocate(64 * KiB, rmm::cuda_stream_per_thread), 64 * KiB, rmm::cuda_stream_per_thread);
    run_on_a_thread_that_ends([&] {  // the same handle is another stream there
      mr.deallocate(mr.allocate(KiB, rmm::cuda_stream_per_thread), KiB, rmm::cuda_stream_per_thread);
    });
  }));
  EXPECT_GE(mr.figures().graph_bytes, 64 * KiB);
}

// --- when the memory comes back

TEST_F(CaptureScopeSim, ReleasedMemoryIsUsedAgainInTheOrderOfTheStream)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory memory;
  auto made = capture_one(mr, memory, MiB);
  made.executable.launch(stream);
  memory.release(stream);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
  auto const synchronizations = cudasim::calls("cudaDeviceSynchronize");
  void* const ptr             = mr.allocate(MiB, other);
  write(ptr, MiB, other);
  EXPECT_EQ(ptr, made.used.ptr);
  EXPECT_EQ(cudasim::calls("cudaDeviceSynchronize"), synchronizations);
  mr.deallocate(ptr, MiB, other);
}

TEST_F(CaptureScopeSim, ReleasedMemoryIsUsedAgainAfterWorkOfOtherStreamsToo)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory memory;
  void* output{};
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    output = mr.allocate(MiB, stream);
  });
  write(output, MiB, other, "reader");
  mr.deallocate(output, MiB, other);
  memory.release(stream);
  void* const ptr = mr.allocate(MiB, stream);
  EXPECT_EQ(ptr, output);
  write(ptr, MiB, stream);
  mr.deallocate(ptr, MiB, stream);
}

TEST_F(CaptureScopeSim, ReleasedMemoryIsReusedAfterWorkWhoseEventFailed)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory memory;
  void* output{};
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    output = mr.allocate(MiB, stream);
  });
  write(output, MiB, other, "reader");
  cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 1});
  mr.deallocate(output, MiB, other);
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  memory.release(stream);
  void* const ptr = mr.allocate(MiB, stream);
  EXPECT_EQ(ptr, output);
  write(ptr, MiB, stream);
  mr.deallocate(ptr, MiB, stream);
}

// The second graph uses and frees a block of the first graph's memory.
struct TwoGraphs : CaptureScopeSim, ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(SecondIsReleasedOnItsStream, TwoGraphs, ::testing::Bool());

TEST_P(TwoGraphs, MemoryOfTheFirstIsUsedAgainAfterTheSecondHasRun)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory first;
  std::optional<graph_memory> second{std::in_place};
  void* shared{};
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, first};
    shared = mr.allocate(MiB, stream);
  }));
  auto const user = capture(other, [&] {
    capture_scope const scope{other, *second};
    write(shared, MiB, other, "second graph");
    mr.deallocate(shared, MiB, other);
  });
  user.launch(other);
  if (GetParam()) { second->release(other); }
  second.reset();
  first.release(stream);
  void* const ptr = mr.allocate(MiB, stream);
  EXPECT_EQ(ptr, shared);
  write(ptr, MiB, stream);
  mr.deallocate(ptr, MiB, stream);
}

TEST_F(CaptureScopeSim, ABlockAllocatedByOneGraphAndFreedByAnotherLivesAsLongAsBoth)
{
  pool mr{&cuda, 16 * MiB, 16 * MiB};  // its chunk is larger than the block
  graph_memory first;
  graph_memory second;
  block shared;
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, first};
    shared = {mr.allocate(64 * KiB, stream), 64 * KiB};
  }));
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, second};
    mr.deallocate(shared.ptr, shared.bytes, stream);
  }));
  first.release(stream);
  auto all = allocate_all(mr, other);
  EXPECT_FALSE(any_overlaps(all, shared));
  deallocate_all(mr, all, other);
  second.release(stream);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
  all = allocate_all(mr, other);
  EXPECT_TRUE(any_overlaps(all, shared));
  deallocate_all(mr, all, other);
}

TEST_F(CaptureScopeSim, MemoryWithoutHandlesIsReusedAfterTheDeviceWasSynchronised)
{
  pool mr{&cuda, MiB, MiB};
  auto memory = std::make_unique<graph_memory>();
  auto made   = capture_one(mr, *memory, MiB);
  made.executable.launch(stream);
  memory.reset();
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
  auto const synchronizations = cudasim::calls("cudaDeviceSynchronize");
  void* const ptr             = mr.allocate(MiB, other);
  write(ptr, MiB, other);
  EXPECT_EQ(ptr, made.used.ptr);
  EXPECT_EQ(cudasim::calls("cudaDeviceSynchronize"), synchronizations + 1);
  mr.deallocate(ptr, MiB, other);
}

TEST_F(CaptureScopeSim, ReleasingOneOfTwoHandlesReleasesNothing)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory memory;
  graph_memory const copy = memory;
  auto const made         = capture_one(mr, memory);
  memory.release(stream);
  EXPECT_EQ(memory.id(), 0U);
  auto const all = allocate_all(mr, other);
  EXPECT_FALSE(any_overlaps(all, made.used));
  deallocate_all(mr, all, other);
}

TEST_F(CaptureScopeSim, TheScopeKeepsTheMemory)
{
  pool mr{&cuda, MiB, MiB};
  auto scope      = std::make_unique<capture_scope>(stream);
  auto const made = capture(stream, [&] { mr.deallocate(mr.allocate(64 * KiB, stream), 64 * KiB, stream); });
  EXPECT_GT(mr.figures().graph_bytes, 0U);
  scope.reset();
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
}

TEST_F(CaptureScopeSim, ABlockOutlivesTheMemoryItCameFrom)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory memory;
  void* output{};
  auto made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    output = mr.allocate(64 * KiB, stream);
  });
  made      = graph{};
  memory.release(stream);
  EXPECT_EQ(mr.figures().live_bytes, 64 * KiB);
  write(output, 64 * KiB, stream);
  mr.deallocate(output, 64 * KiB, stream);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_EQ(mr.figures().graph_bytes, 0U);
  void* const whole = mr.allocate(MiB, stream);
  EXPECT_NE(whole, nullptr);
  write(whole, MiB, stream);
  mr.deallocate(whole, MiB, stream);
}

TEST_F(CaptureScopeSim, APoolMayGoBeforeTheMemory)
{
  graph_memory const memory;
  {
    pool mr{&cuda, MiB, MiB};
    static_cast<void>(capture_one(mr, memory));
  }
  pool again{&cuda, MiB, MiB};
  static_cast<void>(capture_one(again, memory));
}

TEST_F(CaptureScopeSim, MemoryComesFromAllPoolsThatACaptureUses)
{
  pool first{&cuda, MiB, MiB};
  pool second{&cuda, MiB, MiB};
  graph_memory memory;
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, memory};
    void* const a = first.allocate(64 * KiB, stream);
    void* const b = second.allocate(64 * KiB, stream);
    first.deallocate(a, 64 * KiB, stream);
    second.deallocate(b, 64 * KiB, stream);
  }));
  EXPECT_GT(first.figures().graph_bytes, 0U);
  EXPECT_GT(second.figures().graph_bytes, 0U);
  memory.release(stream);
  EXPECT_EQ(first.figures().graph_bytes, 0U);
  EXPECT_EQ(second.figures().graph_bytes, 0U);
}

// --- where it comes from

TEST_F(CaptureScopeSim, APoolGrowsInACaptureOfAnyMode)
{
  for (auto const mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    pool mr{&cuda, 0};
    graph_memory const memory;
    auto const made = capture(stream, mode, [&] {
      capture_scope const scope{stream, memory};
      void* const ptr = mr.allocate(64 * KiB, stream);
      write(ptr, 64 * KiB, stream);
      mr.deallocate(ptr, 64 * KiB, stream);
    });
    made.launch(other);
    other.synchronize();
  }
}

TEST_F(CaptureScopeSim, GrowthOverTheDriversPoolAddsNothingToTheGraph)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&async, 0};
  graph_memory const memory;
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    void* const ptr = mr.allocate(64 * KiB, stream);
    write(ptr, 64 * KiB, stream);
    mr.deallocate(ptr, 64 * KiB, stream);
  });
  EXPECT_EQ(made.nodes(), 1U);
  made.launch(other);
  other.synchronize();
}

TEST_F(CaptureScopeSim, MemoryInUseByEarlierWorkIsNotGivenToAGraph)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory const memory;
  void* const before = mr.allocate(MiB, stream);
  write(before, MiB, stream, "before");
  mr.deallocate(before, MiB, stream);
  void* in_graph{};
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    in_graph = mr.allocate(512 * KiB, stream);  // waits on the host
    write(in_graph, 512 * KiB, stream, "graph");
    mr.deallocate(in_graph, 512 * KiB, stream);
  });
  made.launch(other);  // no order exists between this stream and the earlier work
}

TEST_F(CaptureScopeSim, ACaptureGrowsBeforeTheHostWaits)
{
  pool mr{&cuda, MiB};
  graph_memory const memory;
  void* const before = mr.allocate(MiB, stream);
  write(before, MiB, stream);
  mr.deallocate(before, MiB, stream);
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, memory};
    auto const waits = cudasim::calls("cudaEventSynchronize");
    mr.deallocate(mr.allocate(512 * KiB, stream), 512 * KiB, stream);
    EXPECT_EQ(cudasim::calls("cudaEventSynchronize"), waits);
  }));
}

TEST_F(CaptureScopeSim, ACaptureThatRunsOutOfMemoryThrowsAndGoesOn)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory const memory;
  static_cast<void>(capture(stream, [&] {
    capture_scope const scope{stream, memory};
    EXPECT_THROW(static_cast<void>(mr.allocate(2 * MiB, stream)), rmm::out_of_memory);
    mr.deallocate(mr.allocate(MiB, stream), MiB, stream);
  }));
}

// --- other pools

TEST_F(CaptureScopeSim, AnElasticPoolMapsMemoryInACaptureOfAnyMode)
{
  for (auto const mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    rmm::mr::elastic_pool_memory_resource mr;
    ASSERT_TRUE(mr.has_virtual_memory());
    graph_memory memory;
    auto made = capture(stream, mode, [&] {
      capture_scope const scope{stream, memory};
      for (auto const bytes : {64 * KiB, 5 * MiB}) {
        void* const ptr = mr.allocate(bytes, stream);
        write(ptr, bytes, stream);
        mr.deallocate(ptr, bytes, stream);
      }
    });
    made.launch(other);
    made = graph{};
    memory.release(other);
    EXPECT_EQ(mr.figures().graph_bytes, 0U);
  }
}

TEST_F(CaptureScopeSim, AnElasticPoolMapsMoreRatherThanWaitForWorkInACapture)
{
  bool ran{};  // declared before the pool, whose destructor runs the work
  rmm::mr::elastic_pool_memory_resource mr;
  void* const before = mr.allocate(8 * MiB, other);
  ASSERT_EQ(cudasim::launch(other.value(), {}, {{before, 8 * MiB}}, [&] { ran = true; }), cudaSuccess);
  mr.deallocate(before, 8 * MiB, other);
  graph_memory memory;
  auto made = capture(stream, cudaStreamCaptureModeThreadLocal, [&] {
    capture_scope const scope{stream, memory};
    void* const ptr = mr.allocate(6 * MiB, stream);
    EXPECT_FALSE(ran);
    mr.deallocate(ptr, 6 * MiB, stream);
  });
  EXPECT_EQ(mr.pool_size(), 14 * MiB);
  made = graph{};
  memory.release(other);
}

TEST_F(CaptureScopeSim, AnElasticPoolDoesNotTrimWhatAGraphMayUse)
{
  rmm::mr::elastic_pool_memory_resource mr;
  graph_memory memory;
  auto made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    void* const ptr = mr.allocate(5 * MiB, stream);
    write(ptr, 5 * MiB, stream);
    mr.deallocate(ptr, 5 * MiB, stream);
  });
  static_cast<void>(mr.trim_to(0));
  EXPECT_GE(mr.mapped_bytes(), 5 * MiB);
  made.launch(stream);  // the checker reports memory that is not mapped
  made   = graph{};
  memory = graph_memory{};
  static_cast<void>(mr.trim_to(0));
  EXPECT_EQ(mr.mapped_bytes(), 0U);
}

TEST_F(CaptureScopeSim, ATrimDoesNotBreakACapture)
{
  rmm::mr::elastic_pool_memory_resource mr;
  rmm::cuda_stream const blocking;
  mr.deallocate(mr.allocate(64 * KiB, stream), 64 * KiB, stream);
  mr.deallocate(mr.allocate(5 * MiB, other), 5 * MiB, other);
  static_cast<void>(capture(blocking, [&] { static_cast<void>(mr.trim_to(0)); }));
  static_cast<void>(capture(rmm::cuda_stream_per_thread, [&] { static_cast<void>(mr.trim_to(0)); }));
}

TEST_F(CaptureScopeSim, AFrontCacheThatGrowsInACaptureAddsNothingToTheGraph)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&async};
  graph_memory const memory;
  auto const made = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    for (auto const bytes : {64 * KiB, 50 * MiB}) {
      void* const ptr = mr.allocate(bytes, stream);
      write(ptr, bytes, stream);
      mr.deallocate(ptr, bytes, stream);
    }
  });
  EXPECT_EQ(made.nodes(), 2U);
  static_cast<void>(mr.trim_to(0));
  made.launch(other);
  other.synchronize();
}

// --- captures without a scope

TEST_F(CaptureScopeSim, AnAllocationThatFindsAnUnannouncedCaptureThrowsAndNamesTheScope)
{
  pool mr{&cuda, MiB, MiB};
  mr.set_check_capture(false);
  static_cast<void>(capture(stream, [&] {
    try {
      static_cast<void>(mr.allocate(64 * KiB, stream));
      ADD_FAILURE() << "nothing was thrown";
    } catch (rmm::logic_error const& e) {
      EXPECT_NE(std::string{e.what()}.find("capture_scope"), std::string::npos) << e.what();
    }
  }));
}

TEST_F(CaptureScopeSim, AScopeForOneStreamDoesNotAnnounceAnother)
{
  pool mr{&cuda, MiB, MiB};
  capture_scope const scope{stream};
  static_cast<void>(
    capture(other, [&] { EXPECT_THROW(static_cast<void>(mr.allocate(KiB, other)), rmm::logic_error); }));
}

TEST_F(CaptureScopeSim, AScopeForTheDefaultStreamOfAThreadDoesNotAnnounceOtherThreads)
{
  pool mr{&cuda, MiB, MiB};
  auto const mode = cudaStreamCaptureModeThreadLocal;
  static_cast<void>(capture(rmm::cuda_stream_per_thread, mode, [&] {
    capture_scope const scope{rmm::cuda_stream_per_thread};
    run_on_a_thread_that_ends([&] {
      static_cast<void>(capture(rmm::cuda_stream_per_thread, mode, [&] {
        EXPECT_THROW(static_cast<void>(mr.allocate(KiB, rmm::cuda_stream_per_thread)), rmm::logic_error);
      }));
    });
  }));
}

TEST_F(CaptureScopeSim, AGrowthThatFindsAnUnannouncedCaptureThrows)
{
  pool mr{&cuda, 0};
  mr.set_check_capture(false);
  auto const mallocs = cudasim::calls("cudaMalloc");
  static_cast<void>(
    capture(stream, [&] { EXPECT_THROW(static_cast<void>(mr.allocate(KiB, stream)), rmm::logic_error); }));
  EXPECT_EQ(cudasim::calls("cudaMalloc"), mallocs);
}

TEST_F(CaptureScopeSim, WithCheckCaptureEachAllocationFindsIt)
{
  pool mr{&cuda, MiB, MiB};
  mr.set_check_capture(true);
  EXPECT_TRUE(mr.check_capture());
  mr.deallocate(mr.allocate(KiB, stream), KiB, stream);  // the thread's own cache serves this
  static_cast<void>(
    capture(stream, [&] { EXPECT_THROW(static_cast<void>(mr.allocate(KiB, stream)), rmm::logic_error); }));
  mr.deallocate(mr.allocate(KiB, stream), KiB, stream);
}

struct log_counter {
  static void take(rmm::detail::log_level, char const* message) noexcept
  {
    if (std::string{message}.find("capture_scope") != std::string::npos) { ++messages; }
  }
  inline static std::atomic<int> messages{0};

  log_counter()
  {
    messages = 0;
    before   = rmm::detail::log_hook.exchange(take);
  }
  ~log_counter() { rmm::detail::log_hook = before; }
  rmm::detail::log_function before;
};

TEST_F(CaptureScopeSim, WithCheckCaptureAFreeInAnUnannouncedCaptureIsLoggedOnceAndNotUsedAgain)
{
  pool mr{&cuda, MiB, MiB};
  mr.set_check_capture(true);
  block const first{mr.allocate(KiB, stream), KiB};
  block const second{mr.allocate(KiB, stream), KiB};
  log_counter const log;
  static_cast<void>(capture(stream, [&] {
    mr.deallocate(first.ptr, first.bytes, stream);
    mr.deallocate(second.ptr, second.bytes, stream);
  }));
  EXPECT_EQ(log_counter::messages, 1);
  EXPECT_EQ(mr.figures().live_bytes, 2 * KiB);
  auto const all = allocate_all(mr, stream, KiB);
  EXPECT_FALSE(any_overlaps(all, first));
  EXPECT_FALSE(any_overlaps(all, second));
  deallocate_all(mr, all, stream);
}

TEST_F(CaptureScopeSim, FreesInAnUnannouncedCaptureDoNotBreakIt)
{
  pool mr{&cuda, 64 * MiB, 64 * MiB};
  mr.set_check_capture(false);
  std::vector<void*> large;
  std::vector<void*> small;
  for (int i = 0; i < 100; ++i) {
    large.push_back(mr.allocate(100 * KiB, stream));
    small.push_back(mr.allocate(KiB, stream));
  }
  log_counter const log;
  auto const made = capture(stream, [&] {
    for (void* const each : large) { mr.deallocate(each, 100 * KiB, stream); }
    for (void* const each : small) { mr.deallocate(each, KiB, stream); }
  });
  EXPECT_EQ(made.nodes(), 0U);
  EXPECT_EQ(log_counter::messages, 1);
  auto const all = allocate_all(mr, other, 100 * KiB);  // must not wait for an event of the capture
  deallocate_all(mr, all, other);
}

TEST_F(CaptureScopeSim, AFreeOfALargeBlockInAnUnannouncedCaptureIsLoggedAndNotUsedAgain)
{
  pool mr{&cuda, 64 * MiB, 64 * MiB};
  mr.set_check_capture(false);
  mr.deallocate(mr.allocate(KiB, other), KiB, other);
  block const wide{mr.allocate(8 * MiB, stream), 8 * MiB};
  log_counter const log;
  auto const made = capture(stream, [&] { mr.deallocate(wide.ptr, wide.bytes, stream); });
  EXPECT_EQ(log_counter::messages, 1);
  auto const all = allocate_all(mr, other, MiB);
  EXPECT_FALSE(any_overlaps(all, wide));
  deallocate_all(mr, all, other);
}

TEST_F(CaptureScopeSim, ABrokenCaptureIsNotServedUnlessItsOwnStreamAsks)
{
  pool mr{&cuda, MiB, MiB};
  graph_memory const memory;
  EXPECT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  {
    capture_scope const scope{stream, memory};
    order(stream, other);
    EXPECT_NE(cudaStreamSynchronize(stream.value()), cudaSuccess);
    mr.deallocate(mr.allocate(KiB, stream), KiB, stream);
    EXPECT_THROW(static_cast<void>(mr.allocate(KiB, other)), rmm::logic_error);
  }
  cudaGraph_t none{};
  EXPECT_EQ(cudaStreamEndCapture(stream.value(), &none), cudaErrorStreamCaptureInvalidated);
  static_cast<void>(cudaGetLastError());
}

TEST_F(CaptureScopeSim, AMovedFromMemoryIsRefused)
{
  graph_memory memory;
  graph_memory const taken{std::move(memory)};
  EXPECT_THROW(capture_scope(stream, memory), rmm::logic_error);
  EXPECT_NE(taken, memory);
}

// --- captures of others

/// Makes a pool do everything: grow, search all places for memory, poll events, and end.
void use_everything(rmm::mr::cuda_memory_resource& cuda, rmm::cuda_stream_view a, rmm::cuda_stream_view b)
{
  pool mr{&cuda, 256 * KiB, 12 * MiB};
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<block, rmm::cuda_stream_view>> all;
    for (auto const bytes : {100 * KiB, KiB, 512 * KiB, MiB, 3 * KiB}) {
      for (auto const on : {a, b}) {
        all.push_back({{mr.allocate(bytes, on), bytes}, on});
        write(all.back().first.ptr, bytes, on);
      }
    }
    for (auto const& [each, on] : all) { mr.deallocate(each.ptr, each.bytes, on); }
    for (auto const on : {b, a}) {
      void* const whole = mr.allocate(2 * MiB, on);
      write(whole, 2 * MiB, on);
      mr.deallocate(whole, 2 * MiB, on);
    }
  }
}

TEST_F(CaptureScopeSim, NothingThatPoolsDoBreaksAGlobalCaptureOfAnotherStream)
{
  rmm::cuda_stream const third{non_blocking};
  cudaStream_t foreign{};  // the library does not know when it begins and ends
  ASSERT_EQ(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking), cudaSuccess);
  auto const made = capture(rmm::cuda_stream_view{foreign}, [&] {
    run_on_a_thread_that_ends([&] { use_everything(cuda, other, third); });
    use_everything(cuda, other, third);
  });
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(CaptureScopeSim, UseOfTheLegacyStreamDoesNotBreakACaptureOfABlockingStream)
{
  rmm::cuda_stream const blocking;
  pool mr{&cuda, 256 * KiB, 16 * MiB};
  void* const wide  = mr.allocate(2 * MiB, rmm::cuda_stream_legacy);
  void* const large = mr.allocate(200 * KiB, other);
  mr.deallocate(large, 200 * KiB, other);
  auto const made = capture(blocking, [&] {
    std::vector<void*> all;
    for (int i = 0; i < 100; ++i) { all.push_back(mr.allocate(KiB, rmm::cuda_stream_legacy)); }
    for (void* const each : all) { mr.deallocate(each, KiB, rmm::cuda_stream_legacy); }
    mr.deallocate(wide, 2 * MiB, rmm::cuda_stream_legacy);
    void* const grown = mr.allocate(4 * MiB, rmm::cuda_stream_legacy);
    mr.deallocate(grown, 4 * MiB, rmm::cuda_stream_legacy);
  });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  void* const again = mr.allocate(4 * MiB, other);  // the memory freed meanwhile has a fence now
  write(again, 4 * MiB, other);
  mr.deallocate(again, 4 * MiB, other);
}

TEST_F(CaptureScopeSim, TheLegacyStreamIsNotAskedWhetherItCaptures)
{
  pool mr{&cuda, MiB};
  mr.set_check_capture(true);
  auto const use = [&](rmm::cuda_stream_view on) { mr.deallocate(mr.allocate(KiB, on), KiB, on); };
  use(rmm::cuda_stream_legacy);
  use(other);
  auto const asked = cudasim::calls("cudaStreamIsCapturing");
  use(rmm::cuda_stream_legacy);
  EXPECT_EQ(cudasim::calls("cudaStreamIsCapturing"), asked);
  use(other);
  auto const again = cudasim::calls("cudaStreamIsCapturing") - asked;
  EXPECT_GE(again, 2U);
  EXPECT_LE(again,
            3U);  // one more if the two streams share a slot of the thread's table
}

TEST_F(CaptureScopeSim, MemoryThatTheLegacyStreamFreesDuringACaptureStaysWithIt)
{
  rmm::cuda_stream const blocking;
  pool mr{&cuda, 8 * MiB, 8 * MiB};
  mr.deallocate(mr.allocate(KiB, other), KiB, other);
  void* const wide = mr.allocate(4 * MiB, rmm::cuda_stream_legacy);
  write(wide, 4 * MiB, rmm::cuda_stream_legacy);
  static_cast<void>(capture(blocking, [&] {
    mr.deallocate(wide, 4 * MiB, rmm::cuda_stream_legacy);
    EXPECT_THROW(static_cast<void>(mr.allocate(6 * MiB, other)), rmm::out_of_memory);
  }));
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  void* const whole = mr.allocate(6 * MiB, other);
  write(whole, 6 * MiB, other);
  mr.deallocate(whole, 6 * MiB, other);
}

TEST_F(CaptureScopeSim, TheLegacyStreamWaitsForNoStreamWhileABlockingStreamCaptures)
{
  rmm::cuda_stream const blocking;
  for (auto const bytes : {64 * KiB, 200 * KiB, 2 * MiB}) {  // held in caches, recent blocks, and a store
    pool mr{&cuda, 8 * MiB, 8 * MiB};
    mr.deallocate(mr.allocate(KiB, rmm::cuda_stream_legacy), KiB, rmm::cuda_stream_legacy);
    auto const all = allocate_all(mr, other, bytes);
    for (auto const& each : all) { write(each.ptr, each.bytes, other); }
    deallocate_all(mr, all, other);
    auto const waits = cudasim::calls("cudaStreamWaitEvent");
    auto const made  = capture(blocking, [&] {
      EXPECT_THROW(static_cast<void>(mr.allocate(7 * MiB, rmm::cuda_stream_legacy)), rmm::out_of_memory);
      EXPECT_THROW(static_cast<void>(mr.allocate(bytes, rmm::cuda_stream_legacy)), rmm::out_of_memory);
    });
    EXPECT_EQ(cudasim::calls("cudaStreamWaitEvent"), waits);
    mr.deallocate(mr.allocate(7 * MiB, rmm::cuda_stream_legacy), 7 * MiB, rmm::cuda_stream_legacy);
  }
}

TEST_F(CaptureScopeSim, TheDeviceIsNotSynchronisedWhileAKnownStreamCaptures)
{
  pool mr{&cuda, MiB, MiB};
  cudaStream_t passing{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), cudaSuccess);
  for (int i = 0; i != 2; ++i) {  // the first free gets an event, the second does not
    void* const left = mr.allocate(4 * KiB, rmm::cuda_stream_view{passing});
    mr.deallocate(left, 4 * KiB, rmm::cuda_stream_view{passing});
  }
  ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
  auto const made =
    capture(stream, [&] { EXPECT_THROW(static_cast<void>(mr.allocate(MiB, other)), rmm::out_of_memory); });
  void* const whole = mr.allocate(MiB, other);
  mr.deallocate(whole, MiB, other);
}

TEST_F(CaptureScopeSim, TheDeviceIsNotSynchronisedWhileACaptureIsAnnounced)
{
  pool mr{&cuda, MiB, MiB};
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking), cudaSuccess);
  run_on_a_thread_that_ends([&] {   // leaves memory that others can use only after a synchronisation
    for (int i = 0; i != 2; ++i) {  // the first free gets an event, the second does not
      mr.deallocate(mr.allocate(4 * KiB, rmm::cuda_stream_view{foreign}), 4 * KiB, rmm::cuda_stream_view{foreign});
    }
  });
  auto const made = capture(rmm::cuda_stream_view{foreign}, [&] {
    capture_scope const scope{rmm::cuda_stream_view{foreign}};
    EXPECT_THROW(static_cast<void>(mr.allocate(MiB, other)), rmm::out_of_memory);
  });
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(CaptureScopeSim, AStreamThatEndsInItsCaptureIsNotFenced)
{
  pool mr{&cuda, MiB, MiB};
  mr.set_check_capture(false);
  {
    rmm::cuda_stream const ends{non_blocking};
    mr.deallocate(mr.allocate(KiB, ends), KiB, ends);
    EXPECT_EQ(cudaStreamBeginCapture(ends.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  void* const whole = mr.allocate(MiB, other);  // must not wait for an event of the capture
  write(whole, MiB, other);
  mr.deallocate(whole, MiB, other);
}

TEST_F(CaptureScopeSim, MemoryOfAStreamThatEndedInACaptureIsNotFencedOnTheNextStreamWithItsHandle)
{
  pool mr{&cuda, MiB, MiB};
  mr.set_check_capture(false);
  cudaStream_t handle{};
  {
    rmm::cuda_stream const ends{non_blocking};
    handle            = ends.value();
    void* const block = mr.allocate(KiB, ends);
    write(block, KiB, ends);
    mr.deallocate(block, KiB, ends);
    EXPECT_EQ(cudaStreamBeginCapture(ends.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  rmm::cuda_stream const next{non_blocking};
  ASSERT_EQ(next.value(), handle);
  void* const whole = mr.allocate(MiB, other);
  write(whole, MiB, other);
  mr.deallocate(whole, MiB, other);
}

TEST_F(CaptureScopeSim, MemoryIsReservedInACapture)
{
  pool mr{&cuda, 16 * MiB, 16 * MiB};
  graph_memory memory;
  std::optional<rmm::mr::memory_reservation> reserved;
  void* ptr{};
  {
    graph const captured = capture(stream, [&] {
      capture_scope const scope{stream, memory};
      reserved.emplace(mr.reserve(4 * MiB, stream));
      ptr = reserved->resource().allocate_async(MiB, stream);
    });
    EXPECT_NE(ptr, nullptr);
    reserved->resource().deallocate_async(ptr, MiB, stream);
  }
  memory.release(stream);
  stream.synchronize();
  EXPECT_EQ(reserved->figures().free_bytes, 4 * MiB);
  reserved.reset();
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(CaptureScopeSim, MemoryOfTheGraphIsNotReserved)
{
  pool mr{&cuda, 16 * MiB, 16 * MiB};
  graph_memory const memory;
  std::optional<rmm::mr::memory_reservation> reserved;
  graph const captured = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    void* const used = mr.allocate(64 * KiB, stream);
    write(used, 64 * KiB, stream, "graph");
    mr.deallocate(used, 64 * KiB, stream);
    reserved.emplace(mr.reserve(64 * KiB, stream));
  });
  captured.launch(stream);
  void* const ptr =
    reserved->resource().allocate(64 * KiB, other);  // the checker reports a race if the graph has this memory
  write(ptr, 64 * KiB, other);
  reserved->resource().deallocate(ptr, 64 * KiB, other);
}

TEST_F(CaptureScopeSim, MemoryThatALegacyStreamBlockedByACaptureUsesIsNotReserved)
{
  rmm::cuda_stream const blocking;
  pool mr{&cuda, 8 * MiB, 8 * MiB};
  void* const used = mr.allocate(4 * MiB, rmm::cuda_stream_legacy);
  write(used, 4 * MiB, rmm::cuda_stream_legacy);
  mr.deallocate(used, 4 * MiB, rmm::cuda_stream_legacy);
  static_cast<void>(capture(blocking, [&] {
    auto const reserved = mr.reserve(4 * MiB, rmm::cuda_stream_legacy);
    void* const ptr     = reserved.resource().allocate(4 * MiB, other);
    write(ptr, 4 * MiB, other);
    reserved.resource().deallocate(ptr, 4 * MiB, other);
    auto const rest =
      mr.try_reserve(3 * MiB, rmm::cuda_stream_legacy);  // the legacy stream's event is from before the capture
    ASSERT_TRUE(rest.has_value());
    void* const last = rest->resource().allocate(3 * MiB, other);
    write(last, 3 * MiB, other);
    rest->resource().deallocate(last, 3 * MiB, other);
  }));
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(CaptureScopeSim, AReservationInAnUnannouncedCaptureIsMadeOfMemoryThatNoGraphUses)
{
  pool mr{&cuda, 8 * MiB, 8 * MiB};
  std::optional<rmm::mr::memory_reservation> reserved;
  auto const made = capture(stream, [&] {
    EXPECT_THROW(static_cast<void>(mr.allocate(2 * MiB, stream)), rmm::logic_error);
    reserved.emplace(mr.reserve(2 * MiB, stream));
    EXPECT_THROW(static_cast<void>(reserved->resource().allocate(MiB, stream)), rmm::logic_error);
    auto const ends = mr.reserve(MiB, stream);
  });
  EXPECT_EQ(mr.figures().live_bytes, 2 * MiB);
  void* const ptr = reserved->resource().allocate(2 * MiB, other);
  reserved->resource().deallocate(ptr, 2 * MiB, other);
  reserved.reset();
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(CaptureScopeSim, AReservationAsksForCapturesAsItsPoolDoes)
{
  for (bool const asks : {false, true}) {
    pool mr{&cuda, MiB};
    mr.set_check_capture(asks);
    auto const reserved = mr.reserve(512 * KiB, stream);
    auto& mine          = reserved.resource();
    mine.deallocate(mine.allocate(4 * KiB, stream), 4 * KiB, stream);
    auto const made = capture(stream, [&] {
      if (asks) {
        EXPECT_THROW(static_cast<void>(mine.allocate(4 * KiB, stream)), rmm::logic_error);
      } else {
        mine.deallocate(mine.allocate(4 * KiB, stream), 4 * KiB, stream);
      }
    });
  }
}

TEST_F(CaptureScopeSim, APoolThatIsDestroyedDuringACaptureWaitsForWhatWasFreed)
{
  struct : rmm::mr::device_memory_resource {
    rmm::mr::cuda_memory_resource cuda;
    cudaStream_t used{};
    std::size_t pending{};

    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view on) override { return cuda.allocate(bytes, on); }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view on) noexcept override
    {
      pending += cudasim::pending(used);
      cuda.deallocate(ptr, bytes, on);
    }
  } upstream;
  upstream.used = other.value();
  std::optional<rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>> mr{std::in_place, &upstream, MiB, MiB};
  for (int i = 0; i != 2; ++i) {  // the first free gets an event, the second does not
    void* const left = mr->allocate(4 * KiB, other);
    write(left, 4 * KiB, other);
    mr->deallocate(left, 4 * KiB, other);
  }
  EXPECT_NE(cudasim::pending(other.value()), 0U);
  auto const made = capture(stream, [&] { mr.reset(); });
  EXPECT_EQ(upstream.pending, 0U);
}

TEST_F(CaptureScopeSim, ABlockAddedInACaptureMayServeNoAllocation)
{
  rmm::detail::stream_ordered_heap heap;
  graph_memory const memory;
  auto* const block    = cuda.allocate(4 * MiB, stream);
  graph const captured = capture(stream, [&] {
    capture_scope const scope{stream, memory};
    EXPECT_EQ(heap.add_block_and_allocate(block, 4 * MiB, 0, stream), nullptr);
    EXPECT_TRUE(heap.check_invariants());
  });
  EXPECT_EQ(heap.figures().free_bytes, 4 * MiB);
  EXPECT_EQ(heap.figures().graph_bytes, 0U);
  EXPECT_EQ(heap.try_allocate(4 * MiB, stream), block);
  heap.release_blocks([&](void* ptr, std::size_t bytes) { cuda.deallocate(ptr, bytes, stream); });
}

TEST_F(CaptureScopeSim, ReleasedMemoryNeedsOneEventHoweverManyChunksItHas)
{
  device_heap heap{64 * MiB};
  graph_memory memory;
  {
    std::vector<void*> blocks;
    graph const captured = capture(stream, [&] {
      capture_scope const scope{stream, memory};
      for (int i = 0; i < 16; ++i) { blocks.push_back(heap.allocate(2 * MiB, stream)); }
    });
    for (auto* const each : blocks) { heap.deallocate(each, 2 * MiB, stream); }
  }
  auto const before = cudasim::calls("cudaEventRecord");
  memory.release(stream);
  EXPECT_LE(cudasim::calls("cudaEventRecord"), before + 1);
  EXPECT_EQ(heap.figures().graph_bytes, 0U);
  void* const most = heap.allocate(60 * MiB, stream);
  EXPECT_NE(most, nullptr);
  EXPECT_TRUE(heap.good());
  heap.deallocate(most, 60 * MiB, stream);
  EXPECT_TRUE(heap.good());  // no block is live, so none has a claim
}

TEST_F(CaptureScopeSim, NoUpstreamMemoryJoinsAGraphIfCaptureQueriesFail)
{
  rmm::mr::cuda_async_memory_resource upstream;
  for (std::string const function : {"cudaStreamIsCapturing", "cudaStreamGetCaptureInfo"}) {
    auto const failures = cudasim::for_each_fault(
      [&] {
        rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&upstream};
        graph_memory memory;
        auto const empty = capture(stream, cudaStreamCaptureModeRelaxed, [&] {
          capture_scope const scope{stream, memory};
          try {
            mr.deallocate(mr.allocate(1000, stream), 1000, stream);
          } catch (std::bad_alloc const&) {}
        });
        EXPECT_EQ(empty.nodes(), 0U);
      },
      [&](auto n) { EXPECT_FALSE(HasFailure()) << function << " " << n; },
      cudaErrorUnknown,
      function);
    EXPECT_GE(failures, 2U) << function;
  }
}

}  // namespace
