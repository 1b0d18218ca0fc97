// SPDX-License-Identifier: Apache-2.0
//
// Each place where the heap looks for memory serves one request. Also: the ends of threads, streams and heaps, and that the heap
// refuses nothing that fits.

#include "../../../support/sanitizers.hpp"
#include "../../../support/stepped_heap.hpp"
#include "../../../support/worker.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::test::run_on_a_thread_that_ends;
using rmm::test::tells_costs;
using rmm::test::worker;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

struct StreamOrderedHeapSim : Stepped {
  rmm::cuda_stream stream;
  rmm::cuda_stream other;

  void TearDown() override
  {
    for (auto* const each : {&stream, &other}) { rmm::cuda_stream const ends{std::move(*each)}; }
    Simulated::TearDown();
  }
};

/// Counts of the places where allocations found memory, other than the thread's own cache and the stream's own store.
struct source {
  std::uint64_t other_stores;
  std::uint64_t other_caches;
  std::uint64_t put_together;
  std::uint64_t device_synchronizations;
  std::uint64_t waits;  // waits of streams for events

  friend bool operator==(source const& a, source const& b)
  {
    return a.other_stores == b.other_stores && a.other_caches == b.other_caches && a.put_together == b.put_together &&
           a.device_synchronizations == b.device_synchronizations && a.waits == b.waits;
  }
  friend std::ostream& operator<<(std::ostream& out, source const& self)
  {
    return out << "other stores " << self.other_stores << ", other caches " << self.other_caches << ", put together "
               << self.put_together << ", device synchronisations " << self.device_synchronizations << ", waits "
               << self.waits;
  }
};

/// The change of a heap's counts since this object was made.
class since {
 public:
  explicit since(device_heap const& heap) : heap_{heap} {}

  [[nodiscard]] source sources() const
  {
    auto const now = heap_.figures();
    return {now.from_other_streams - begin_.from_other_streams,
            now.from_other_caches - begin_.from_other_caches,
            now.put_together - begin_.put_together,
            now.device_synchronizations - begin_.device_synchronizations,
            cudasim::calls("cudaStreamWaitEvent") - waits_};
  }

 private:
  device_heap const& heap_;
  rmm::heap_figures begin_{heap_.figures()};
  std::uint64_t waits_{cudasim::calls("cudaStreamWaitEvent")};
};

constexpr source own_memory{0, 0, 0, 0, 0};

// --- where memory is found

TEST_F(StreamOrderedHeapSim, ServesASmallBlockFromItsStackWithoutARuntimeCall)
{
  device_heap heap{MiB};
  void* const first = heap.allocate(1000, stream);
  heap.deallocate(first, 1000, stream);
  auto const calls = cudasim::calls();
  for (int i = 0; i < 1000; ++i) {
    void* const again = heap.allocate(1000, stream);
    EXPECT_EQ(again, first);
    heap.deallocate(again, 1000, stream);
  }
  EXPECT_EQ(cudasim::calls(), calls);
}

TEST_F(StreamOrderedHeapSim, ServesALargerBlockFromRecentOnesWithoutARuntimeCall)
{
  device_heap heap{16 * MiB};
  void* const first = heap.allocate(100 * KiB, stream);
  heap.deallocate(first, 100 * KiB, stream);
  auto const calls = cudasim::calls();
  for (int i = 0; i < 1000; ++i) {
    void* const again = heap.allocate(100 * KiB, stream);
    EXPECT_EQ(again, first);
    heap.deallocate(again, 100 * KiB, stream);
  }
  EXPECT_EQ(cudasim::calls(), calls);
}

TEST_F(StreamOrderedHeapSim, CutsALargerBlockFromRangesWithoutARuntimeCall)
{
  device_heap heap{1024 * MiB};  // a cache takes a share of the heap at a time
  void* const first = heap.allocate(100 * KiB, stream);
  auto const calls  = cudasim::calls();
  void* const next  = heap.allocate(100 * KiB, stream);
  EXPECT_EQ(cudasim::calls(), calls);
  EXPECT_EQ(static_cast<char*>(next), static_cast<char*>(first) + 100 * KiB);
}

TEST_F(StreamOrderedHeapSim, CoalescesRecentBlocksWhenTheStreamNeedsMore)
{
  device_heap heap{MiB};
  void* const a = heap.allocate(512 * KiB, stream);
  void* const b = heap.allocate(512 * KiB, stream);
  heap.deallocate(b, 512 * KiB, stream);
  heap.deallocate(a, 512 * KiB, stream);
  since const then{heap};
  EXPECT_EQ(heap.try_allocate(MiB, stream), a);
  EXPECT_EQ(then.sources(), own_memory);
}

TEST_F(StreamOrderedHeapSim, EmptiesStacksWhenTheStreamNeedsMore)
{
  device_heap heap{64 * KiB};
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) { blocks.push_back(heap.allocate(KiB, stream)); }
  for (void* const block : blocks) { heap.deallocate(block, KiB, stream); }
  since const then{heap};
  EXPECT_NE(heap.try_allocate(64 * KiB, stream), nullptr);
  EXPECT_EQ(then.sources(), own_memory);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ServesLargeRequestsFromTheLastFrees)
{
  device_heap heap{16 * MiB};
  // Two caches limit each other's size, so large blocks go past them. The first one has no unfenced memory.
  heap.deallocate(heap.allocate(256, stream), 256, stream);
  heap.deallocate(heap.allocate(2 * MiB, other), 2 * MiB, other);
  rmm::cuda_stream_view{other}.synchronize();
  std::vector<void*> small(10);
  for (auto& each : small) { each = heap.allocate(256, stream); }
  for (auto* const each : small) { heap.deallocate(each, 256, stream); }
  since const then{heap};
  void* const whole = heap.try_allocate(16 * MiB, stream);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(then.sources().device_synchronizations, 0U);
  heap.deallocate(whole, 16 * MiB, stream);
}

TEST_F(StreamOrderedHeapSim, ServesAStreamFromItsOwnStoreWithoutAWait)
{
  device_heap heap{MiB};
  run_on_a_thread_that_ends([&] {  // leaves its memory to the stream's store
    void* const ptr = heap.allocate(MiB, stream);
    write(ptr, MiB, stream);
    heap.deallocate(ptr, MiB, stream);
  });
  ASSERT_EQ(heap.figures().cached_bytes, 0U);
  since const then{heap};
  void* const again = heap.try_allocate(MiB, stream);
  ASSERT_NE(again, nullptr);
  write(again, MiB, stream);
  EXPECT_EQ(then.sources(), own_memory);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ServesAStreamFromUnfencedMemoryOfEndedThreads)
{
  device_heap heap{64 * KiB};
  std::vector<void*> blocks(32);
  run_on_a_thread_that_ends([&] {
    for (auto& block : blocks) {
      block = heap.allocate(2 * KiB, stream);
      write(block, 2 * KiB, stream);
    }
  });
  for (void* const block : blocks) {
    run_on_a_thread_that_ends([&] { heap.deallocate(block, 2 * KiB, stream); });  // up to the limit, it stays unfenced
  }
  since const then{heap};
  void* const ptr = heap.try_allocate(64 * KiB, stream);
  ASSERT_NE(ptr, nullptr);
  write(ptr, 64 * KiB, stream);
  EXPECT_EQ(then.sources(), own_memory);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ServesEveryStreamFromReachedMemoryWithoutAWait)
{
  device_heap heap{MiB};
  run_on_a_thread_that_ends([&] {
    void* const ptr = heap.allocate(512 * KiB, stream);
    write(ptr, 512 * KiB, stream);
    heap.deallocate(ptr, 512 * KiB, stream);  // above the limit of unfenced bytes, so fenced
  });
  stream.synchronize();
  since const then{heap};
  void* const ptr = heap.try_allocate(MiB, other);
  ASSERT_NE(ptr, nullptr);
  write(ptr, MiB, other);
  EXPECT_EQ(then.sources(), own_memory);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ServesFromAnotherStreamsStoreAfterAWait)
{
  device_heap heap{MiB};
  run_on_a_thread_that_ends([&] {
    void* const ptr = heap.allocate(MiB, stream);
    write(ptr, MiB, stream);
    heap.deallocate(ptr, MiB, stream);
  });
  since const then{heap};
  void* const ptr = heap.try_allocate(MiB, other);
  ASSERT_NE(ptr, nullptr);
  write(ptr, MiB, other);
  EXPECT_EQ(then.sources(), (source{1, 0, 0, 0, 1}));
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ServesFromAnotherThreadsCacheOfTheStreamWithoutAWait)
{
  device_heap heap{MiB};
  worker thread;
  thread.run([&] {
    void* const ptr = heap.allocate(MiB, stream);
    write(ptr, MiB, stream);
    heap.deallocate(ptr, MiB, stream);
  });
  since const then{heap};
  void* const ptr = heap.try_allocate(MiB, stream);
  ASSERT_NE(ptr, nullptr);
  write(ptr, MiB, stream);
  EXPECT_EQ(then.sources(), (source{0, 1, 0, 0, 0}));
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ServesFromUnfencedMemoryOfAnotherThreadOnTheStream)
{
  device_heap heap{MiB};
  worker thread;
  void* small{};
  thread.run([&] {
    small = heap.allocate(4 * KiB, stream);
    static_cast<void>(heap.allocate(MiB - 4 * KiB, stream));
    write(small, 4 * KiB, stream);
    heap.deallocate(small, 4 * KiB, stream);  // below the limit, so unfenced
  });
  since const then{heap};
  void* const ptr = heap.try_allocate(4 * KiB, stream);
  ASSERT_EQ(ptr, small);
  write(ptr, 4 * KiB, stream);
  EXPECT_EQ(then.sources().device_synchronizations, 0U);
  EXPECT_EQ(then.sources().waits, 0U);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ServesFromAnotherStreamsCacheAfterAWait)
{
  device_heap heap{MiB};
  void* const mine = heap.allocate(MiB, stream);
  write(mine, MiB, stream);
  heap.deallocate(mine, MiB, stream);
  since const then{heap};
  void* const ptr = heap.try_allocate(MiB, other);
  ASSERT_EQ(ptr, mine);
  write(ptr, MiB, other);
  EXPECT_EQ(then.sources(), (source{0, 1, 0, 0, 1}));
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, TakesOnlyTheRequestFromAnotherStreamsCache)
{
  device_heap heap{MiB};
  void* const mine = heap.allocate(MiB, stream);
  write(mine, MiB, stream);
  heap.deallocate(mine, MiB, stream);
  void* const taken = heap.try_allocate(4 * KiB, other);
  ASSERT_NE(taken, nullptr);
  write(taken, 4 * KiB, other);
  since const then{heap};
  void* const rest = heap.try_allocate(MiB - 4 * KiB, stream);  // still belongs to the first stream
  ASSERT_NE(rest, nullptr);
  write(rest, MiB - 4 * KiB, stream);
  EXPECT_EQ(then.sources(), own_memory);
}

TEST_F(StreamOrderedHeapSim, CoalescesNeighboursOfManyOwners)
{
  device_heap heap{MiB};
  std::vector<std::unique_ptr<worker>> threads;
  std::vector<rmm::cuda_stream> streams(4);
  std::vector<void*> blocks;
  for (auto const& s : streams) {
    blocks.push_back(heap.allocate(256 * KiB, s));
    write(blocks.back(), 256 * KiB, s);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    threads.push_back(std::make_unique<worker>());
    threads.back()->run([&] { heap.deallocate(blocks[i], 256 * KiB, streams[i]); });
  }
  threads.pop_back();  // moves one of the four neighbours to a store
  since const then{heap};
  void* const whole = heap.try_allocate(MiB, other);
  ASSERT_NE(whole, nullptr);
  write(whole, MiB, other);
  EXPECT_EQ(then.sources(), (source{0, 0, 1, 0, 4}));
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, WaitsOnlyForTheNeighboursThatItTakes)
{
  device_heap heap{MiB};
  std::vector<rmm::cuda_stream> streams(4);
  std::vector<void*> blocks;
  for (auto const& s : streams) { blocks.push_back(heap.allocate(256 * KiB, s)); }
  for (std::size_t i = 0; i < 4; ++i) { heap.deallocate(blocks[i], 256 * KiB, streams[i]); }
  since const then{heap};
  ASSERT_NE(heap.try_allocate(512 * KiB, other), nullptr);
  EXPECT_EQ(then.sources(), (source{0, 0, 1, 0, 2}));
}

TEST_F(StreamOrderedHeapSim, CoalescesTheSmallestRunThatFits)
{
  device_heap heap{2 * MiB};
  std::vector<rmm::cuda_stream> streams(8);
  std::vector<void*> blocks;
  for (auto const& s : streams) { blocks.push_back(heap.allocate(256 * KiB, s)); }
  for (std::size_t const i : {0U, 1U, 2U, 4U, 5U}) { heap.deallocate(blocks[i], 256 * KiB, streams[i]); }
  since const then{heap};
  EXPECT_EQ(heap.try_allocate(512 * KiB, other), blocks[4]);
  EXPECT_EQ(then.sources(), (source{0, 0, 1, 0, 2}));
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, LosesNothingIfTheWaitForACacheFails)
{
  device_heap heap{MiB};
  void* const mine = heap.allocate(MiB, stream);
  write(mine, MiB, stream);
  heap.deallocate(mine, MiB, stream);
  cudasim::inject({"cudaStreamWaitEvent", 1, cudaErrorUnknown, 2});  // for the cache, and for coalesced memory
  EXPECT_EQ(heap.try_allocate(MiB, other), nullptr);
  cudasim::clear_faults();
  EXPECT_TRUE(heap.good());
  ASSERT_EQ(heap.try_allocate(MiB, other), mine);
  write(mine, MiB, other);
}

TEST_F(StreamOrderedHeapSim, KeepsEventsIfTheWaitForAStoreFails)
{
  constexpr std::size_t wide = 2 * MiB;  // too large for the caches
  device_heap heap{16 * MiB};
  static_cast<void>(heap.allocate(256, stream));
  static_cast<void>(heap.allocate(256, other));
  void* const first = heap.allocate(wide + MiB, other);
  static_cast<void>(heap.allocate(wide, stream));
  void* const second = heap.allocate(wide, other);
  while (heap.try_allocate(wide, stream) != nullptr) {}
  for (auto const& [ptr, bytes] : {std::pair{first, wide + MiB}, std::pair{second, wide}}) {
    write(ptr, bytes, other, "old owner");
    heap.deallocate(ptr, bytes, other);
  }
  cudasim::inject({"cudaStreamWaitEvent", 1, cudaErrorUnknown, 1});
  ASSERT_EQ(heap.try_allocate(wide, stream), second);
  write(second, wide, stream, "new owner");
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, WaitsForTheDeviceOnlyIfThatServesTheRequest)
{
  device_heap heap{MiB};
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  static_cast<void>(heap.allocate(MiB - 8 * KiB, stream));
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) { blocks.push_back(heap.allocate(KiB, foreign)); }
  for (void* const block : blocks) { heap.deallocate(block, KiB, foreign); }  // events after the 1st, 3rd and 7th
  since const then{heap};
  EXPECT_EQ(heap.heap().allocate_reclaimed(9 * KiB, other), nullptr);
  EXPECT_EQ(then.sources().device_synchronizations, 0U);
  EXPECT_NE(heap.heap().allocate_reclaimed(8 * KiB, other), nullptr);
  EXPECT_EQ(then.sources().device_synchronizations, 1U);
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, DoesNotWaitForTheDeviceIfFreeMemoryIsScattered)
{
  device_heap heap{MiB};
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  std::vector<void*> blocks(4);
  for (void*& block : blocks) { block = heap.allocate(256 * KiB, foreign); }
  heap.deallocate(blocks[0], 256 * KiB, stream);
  heap.deallocate(blocks[2], 256 * KiB, foreign);
  since const then{heap};
  EXPECT_EQ(heap.heap().allocate_reclaimed(512 * KiB, other), nullptr);
  EXPECT_EQ(then.sources().device_synchronizations, 0U);
  heap.deallocate(blocks[1], 256 * KiB, foreign);
  EXPECT_NE(heap.heap().allocate_reclaimed(512 * KiB, other), nullptr);
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, FencesEachFreeAfterAWaitForTheDevice)
{
  device_heap heap{MiB};
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  static_cast<void>(heap.allocate(MiB - 8 * KiB, stream));
  std::vector<void*> blocks(8);
  for (void*& block : blocks) { block = heap.allocate(KiB, foreign); }
  for (void* const block : blocks) { heap.deallocate(block, KiB, foreign); }  // events after the 1st, 3rd and 7th
  void* const all = heap.heap().allocate_reclaimed(8 * KiB, other);
  EXPECT_EQ(heap.figures().device_synchronizations, 1U);
  heap.deallocate(all, 8 * KiB, foreign);
  EXPECT_NE(heap.heap().allocate_reclaimed(8 * KiB, other), nullptr);
  EXPECT_EQ(heap.figures().device_synchronizations, 1U);
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, RecordsEventsOnKnownStreamsBeforeWaitingForTheDevice)
{
  device_heap heap{MiB};
  static_cast<void>(heap.allocate(MiB - 8 * KiB, stream));
  void* const first  = heap.allocate(4 * KiB, stream);
  void* const second = heap.allocate(4 * KiB, rmm::cuda_stream_legacy);
  write(first, 4 * KiB, stream);
  write(second, 4 * KiB, rmm::cuda_stream_legacy);
  heap.deallocate(first, 4 * KiB, stream);  // both stay unfenced
  heap.deallocate(second, 4 * KiB, rmm::cuda_stream_legacy);
  since const then{heap};
  void* const both = heap.heap().allocate_reclaimed(8 * KiB, other);
  ASSERT_NE(both, nullptr);
  write(both, 8 * KiB, other);
  EXPECT_EQ(then.sources().device_synchronizations, 0U);
  EXPECT_LE(then.sources().waits, 2U);
  EXPECT_TRUE(heap.good());
}

/// Recording an event costs a CUDA call, as growth does, so it must serve the request.
TEST_F(StreamOrderedHeapSim, RecordsEventsBeforeGrowthIfThatServesTheRequest)
{
  constexpr auto before_growth = rmm::detail::stream_ordered_heap::reclaiming::before_growth;
  device_heap heap{MiB};
  static_cast<void>(heap.allocate(MiB - 8 * KiB, stream));
  void* const first  = heap.allocate(4 * KiB, stream);
  void* const second = heap.allocate(4 * KiB, rmm::cuda_stream_legacy);
  heap.deallocate(first, 4 * KiB, stream);  // both stay unfenced
  heap.deallocate(second, 4 * KiB, rmm::cuda_stream_legacy);
  EXPECT_EQ(heap.try_allocate(8 * KiB + 256, other), nullptr);
  cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(heap.heap().allocate_reclaimed(8 * KiB + 256, other, before_growth), nullptr);
  EXPECT_EQ(cudasim::faults_fired(), 0U);
  cudasim::clear_faults();
  EXPECT_EQ(heap.try_allocate(8 * KiB, other), nullptr);
  EXPECT_NE(heap.heap().allocate_reclaimed(8 * KiB, other, before_growth), nullptr);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, NeverWaitsForTheDeviceInANewHeap)
{
  device_heap heap{MiB};
  void* const found =
    heap.heap().allocate_reclaimed(4 * KiB, stream, rmm::detail::stream_ordered_heap::reclaiming::before_growth);
  EXPECT_NE(found, nullptr);  // no search has said that there is no memory
  heap.deallocate(found, 4 * KiB, stream);
  EXPECT_EQ(heap.heap().allocate_reclaimed(2 * MiB, stream), nullptr);
  EXPECT_EQ(heap.figures().device_synchronizations, 0U);
}

/// The last search must not trust the earlier ones: another thread may have freed memory or recorded an event since.
TEST_F(StreamOrderedHeapSim, LastSearchFindsFreeMemoryWithoutAWait)
{
  device_heap heap{MiB};
  void* const found = heap.heap().allocate_reclaimed(4 * KiB, stream);
  EXPECT_NE(found, nullptr);
  EXPECT_EQ(heap.figures().device_synchronizations, 0U);
  heap.deallocate(found, 4 * KiB, stream);
}

TEST_F(StreamOrderedHeapSim, AsksNoOtherStreamIfItKnowsThatNothingFits)
{
  device_heap heap{MiB};
  std::vector<rmm::cuda_stream> const known(20);
  std::vector<void*> blocks(32);
  for (auto& each : blocks) { each = heap.allocate(32 * KiB, stream); }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t i = 0; i != 32; i += 2) { heap.deallocate(blocks[i], 32 * KiB, i % 4 == 0 ? stream : other); }
  auto const asked = [] {
    return cudasim::calls("cudaStreamGetCaptureInfo") + cudasim::calls("cudaStreamIsCapturing");
  };
  EXPECT_EQ(heap.heap().allocate_reclaimed(64 * KiB, other), nullptr);  // notes that no run is large enough
  auto const before = asked();
  EXPECT_EQ(heap.heap().allocate_reclaimed(64 * KiB, other), nullptr);
  EXPECT_LT(asked() - before, known.size());
  for (std::size_t i = 1; i != 33; i += 2) { heap.deallocate(blocks[i], 32 * KiB, stream); }
}

/// Allocates the last 32 KiB of a heap, and frees 256 bytes on each of so many streams that their caches are many.
std::vector<rmm::cuda_stream> make_many_caches(device_heap& heap, rmm::cuda_stream_view owner)
{
  std::vector<rmm::cuda_stream> streams(65);
  std::vector<void*> rest;
  while (void* const each = heap.try_allocate(256, owner)) { rest.push_back(each); }
  std::sort(rest.begin(), rest.end());
  for (std::size_t i = 0; i != streams.size() && 2 * i < rest.size(); ++i) {
    heap.deallocate(rest[2 * i], 256, streams[i]);
  }
  EXPECT_GE(heap.figures().caches, streams.size());
  return streams;
}

/// What a search has found holds until somebody frees, whatever thread that is.
TEST_F(StreamOrderedHeapSim, RemembersThatNoRunIsLargeEnough)
{
  device_heap heap{MiB};
  static_cast<void>(heap.allocate(MiB - 64 * KiB, stream));
  std::vector<void*> blocks(16);
  for (auto& each : blocks) { each = heap.allocate(2 * KiB, stream); }
  std::sort(blocks.begin(), blocks.end());
  auto const more = make_many_caches(heap, stream);
  heap.deallocate(blocks[2], 2 * KiB, stream);
  heap.deallocate(blocks[7], 2 * KiB, other);
  auto const recorded = cudasim::calls("cudaEventRecord");
  for (auto const on : {stream.view(), other.view(), stream.view()}) { EXPECT_EQ(heap.allocate(4 * KiB, on), nullptr); }
  EXPECT_LE(cudasim::calls("cudaEventRecord"), recorded + 1);  // for the first caller's own frees

  worker another;
  another.run([&] { heap.deallocate(blocks[8], 2 * KiB, stream); });
  EXPECT_EQ(heap.allocate(4 * KiB, other), blocks[7]);
  EXPECT_EQ(heap.allocate(4 * KiB, other), nullptr);
  heap.deallocate(blocks[3], 2 * KiB, other);  // to a cache that is closed
  EXPECT_EQ(heap.allocate(4 * KiB, stream), blocks[2]);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ForgetsWhatASearchFoundWhenMemoryIsAdded)
{
  device_heap heap{MiB, 4 * MiB};
  void* const all = heap.allocate(MiB, stream);
  EXPECT_EQ(heap.try_allocate(256, stream), nullptr);
  void* const grown = heap.allocate(256, stream);
  EXPECT_NE(grown, nullptr);
  EXPECT_NE(heap.try_allocate(256, other), nullptr);
  heap.deallocate(all, MiB, stream);
  EXPECT_NE(heap.try_allocate(512 * KiB, other), nullptr);
  EXPECT_TRUE(heap.good());
}

/// Blocks of other caches move only if a run with them is taken.
TEST_F(StreamOrderedHeapSim, LeavesTheStacksOfOtherCachesAloneIfNothingFits)
{
  device_heap heap{MiB};
  static_cast<void>(heap.allocate(MiB - 64 * KiB, stream));
  std::vector<void*> blocks;
  for (int i = 0; i != 32; ++i) { blocks.push_back(heap.allocate(KiB, other)); }
  auto const more = make_many_caches(heap, stream);
  for (auto const i : {4U, 20U, 24U, 12U}) { heap.deallocate(blocks[i], KiB, other); }
  EXPECT_EQ(heap.allocate(2 * KiB, stream), nullptr);
  EXPECT_EQ(heap.allocate(KiB, other), blocks[12]);  // freed last
  EXPECT_EQ(heap.allocate(KiB, other), blocks[24]);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, WaitsForTheDeviceIfTheStreamCannotWait)
{
  device_heap heap{MiB};
  void* const mine = heap.allocate(MiB, stream);
  write(mine, MiB, stream);
  heap.deallocate(mine, MiB, stream);                                  // fenced
  cudasim::inject({"cudaStreamWaitEvent", 1, cudaErrorUnknown, 100});  // more often than the heap tries
  ASSERT_EQ(heap.allocate(MiB, other), mine);
  cudasim::clear_faults();
  write(mine, MiB, other);
  EXPECT_EQ(heap.figures().device_synchronizations, 1U);
}

TEST_F(StreamOrderedHeapSim, WaitsForAnUpstreamBlockWithoutAnEvent)
{
  void* block{};
  ASSERT_EQ(cudaMalloc(&block, MiB), cudaSuccess);
  write(block, MiB, stream, "former owner");  // upstream frees and reuses memory in stream order
  {
    rmm::detail::stream_ordered_heap heap;
    cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 1});
    static_cast<void>(heap.add_block_and_allocate(block, MiB, 4 * KiB, stream));
    EXPECT_EQ(cudasim::faults_fired(), 1U);
    void* const ptr = heap.try_allocate(64 * KiB, other);
    ASSERT_NE(ptr, nullptr);
    write(ptr, 64 * KiB, other, "owner");
  }
  EXPECT_EQ(cudaFree(block), cudaSuccess);
}

/// Freeing this many small blocks records an event. They have two sizes, so that each fits its stack.
constexpr std::size_t as_many_as_are_marked = rmm::detail::stream_cache::most_unfenced_frees;
[[nodiscard]] constexpr std::size_t size_of(std::size_t block) { return 256 * (1 + block % 2); }

TEST_F(StreamOrderedHeapSim, CoalescesStacksOfOtherStreams)
{
  constexpr std::size_t bytes = as_many_as_are_marked * 384;
  device_heap heap{4 * MiB};
  ASSERT_NE(heap.allocate(4 * MiB - bytes, stream), nullptr);
  std::vector<void*> blocks;
  for (std::size_t i = 0; i != as_many_as_are_marked; ++i) { blocks.push_back(heap.allocate(size_of(i), stream)); }
  for (std::size_t i = 0; i != as_many_as_are_marked; ++i) {
    write(blocks[i], size_of(i), stream);
    heap.deallocate(blocks[i], size_of(i), stream);  // the last free fences all of them
  }
  since const then{heap};
  void* const whole = heap.try_allocate(bytes, other);
  ASSERT_NE(whole, nullptr);
  write(whole, bytes, other);
  EXPECT_EQ(then.sources(), (source{0, 0, 1, 0, 1}));
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, GivesUnfencedMemoryToAnotherStreamOnlyAfterAnEvent)
{
  device_heap heap{MiB};
  void* const rest = heap.allocate(MiB - 4 * KiB, stream);
  void* const mine = heap.allocate(4 * KiB, stream);
  write(mine, 4 * KiB, stream);
  heap.deallocate(mine, 4 * KiB, stream);
  since const then{heap};
  EXPECT_EQ(heap.try_allocate(4 * KiB, other), nullptr);
  void* const ptr = heap.heap().allocate_reclaimed(4 * KiB, other);
  ASSERT_EQ(ptr, mine);
  write(ptr, 4 * KiB, other);
  EXPECT_EQ(then.sources(), (source{0, 0, 1, 0, 1}));
  EXPECT_TRUE(heap.good());
  heap.deallocate(rest, MiB - 4 * KiB, stream);
}

TEST_F(StreamOrderedHeapSim, WaitsOnceForABlockOfABusyStream)
{
  constexpr std::size_t large = 2 * MiB;  // too large for the caches, so each gets an event
  device_heap heap{1024 * MiB};
  ASSERT_NE(heap.allocate(256, other), nullptr);
  std::vector<void*> blocks;
  while (void* const ptr = heap.try_allocate(large, stream)) { blocks.push_back(ptr); }
  ASSERT_GT(blocks.size(), 400U);
  std::vector<void*> freed;
  for (std::size_t i = 0; i < blocks.size(); i += 2) {  // no two freed blocks touch
    write(blocks[i], large, stream);
    heap.deallocate(blocks[i], large, stream);
  }
  for (int i = 0; i < 10; ++i) {
    since const then{heap};
    void* const ptr = heap.try_allocate(large, other);
    ASSERT_NE(ptr, nullptr);
    write(ptr, large, other);
    EXPECT_LE(then.sources().waits, 1U);
    EXPECT_EQ(then.sources().device_synchronizations, 0U);
  }
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, RefusesTooLargeRequestsWithoutWaitingForTheDevice)
{
  device_heap heap{MiB};
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  void* const rest = heap.allocate(MiB - 64 * KiB, stream);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) { blocks.push_back(heap.allocate(4 * KiB, foreign)); }
  for (std::size_t i = 0; i < blocks.size(); i += 2) {  // some have no event, and no two touch
    write(blocks[i], 4 * KiB, rmm::cuda_stream_view{foreign});
    heap.deallocate(blocks[i], 4 * KiB, rmm::cuda_stream_view{foreign});
  }
  auto const synchronizations = cudasim::calls("cudaDeviceSynchronize");
  for (int i = 0; i < 1000; ++i) { EXPECT_EQ(heap.allocate(8 * KiB, other), nullptr); }
  EXPECT_EQ(cudasim::calls("cudaDeviceSynchronize"), synchronizations);
  for (std::size_t i = 1; i < blocks.size(); i += 2) { heap.deallocate(blocks[i], 4 * KiB, foreign); }
  heap.deallocate(rest, MiB - 64 * KiB, stream);
  EXPECT_TRUE(heap.good());
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, KeepsMemoryPendingIfTheWaitFails)
{
  device_heap heap{MiB};
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  static_cast<void>(heap.allocate(MiB - 8 * KiB, stream));
  void* const first  = heap.allocate(4 * KiB, foreign);
  void* const second = heap.allocate(4 * KiB, foreign);
  heap.deallocate(first, 4 * KiB, foreign);
  write(second, 4 * KiB, rmm::cuda_stream_view{foreign}, "old owner");
  heap.deallocate(second, 4 * KiB, foreign);  // has no event
  cudasim::inject({"cudaDeviceSynchronize", 1, cudaErrorUnknown, 1});
  EXPECT_EQ(heap.allocate(8 * KiB, other), nullptr);
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  void* const whole = heap.allocate(8 * KiB, other);  // this call waits
  ASSERT_NE(whole, nullptr);
  write(whole, 8 * KiB, other, "new owner");
  EXPECT_TRUE(heap.good());
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, ReusesTheCachesOfAThreadWithManyStreams)
{
  device_heap heap{64 * MiB};
  std::vector<rmm::cuda_stream> streams(300);
  for (auto const& s : streams) { heap.deallocate(heap.allocate(KiB, s), KiB, s); }
  auto const calls = cudasim::calls("cudaEventCreateWithFlags");
  for (int round = 0; round < 3; ++round) {
    for (auto const& s : streams) { heap.deallocate(heap.allocate(KiB, s), KiB, s); }
  }
  EXPECT_EQ(cudasim::calls("cudaEventCreateWithFlags"), calls) << "no cache was made again";
  EXPECT_EQ(heap.figures().caches, 300U);
}

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
TEST_F(StreamOrderedHeapSim, NeedsLittleHostMemoryForASmallCache)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "Sanitizers have an allocator of their own"; }
  device_heap heap{64 * MiB};
  std::vector<rmm::cuda_stream> streams(502);
  auto const use = [&](rmm::cuda_stream_view s) { heap.deallocate(heap.allocate(KiB, s), KiB, s); };
  use(streams[0]);
  use(streams[1]);
  auto const before = mallinfo2().uordblks;
  for (auto const& s : streams) { use(s); }
  auto const each = (mallinfo2().uordblks - before) / 500;
  EXPECT_LE(each, 8 * KiB) << "with what the simulator takes for an event";
}
#endif

struct HeapForTwoDevices : Stepped {
  HeapForTwoDevices() { begin(0, 2); }
};

TEST_F(HeapForTwoDevices, WaitsForTheDeviceOfTheStreamThatFreed)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  cudaStream_t far{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&far, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  rmm::cuda_stream const near;
  device_heap heap{0, MiB};
  void* const rest = heap.allocate(MiB - 5 * KiB, near);
  void* const ptr  = heap.allocate(4 * KiB, near);
  ASSERT_NE(ptr, nullptr);

  // The first free of a foreign stream gets an event immediately, the second does not.
  heap.deallocate(heap.allocate(KiB, far), KiB, far);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  write(ptr, 4 * KiB, far, "old owner");
  heap.deallocate(ptr, 4 * KiB, far);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(heap.allocate(4 * KiB, near), ptr);
  write(ptr, 4 * KiB, near, "new owner");
  EXPECT_EQ(heap.figures().device_synchronizations, 1U);
  heap.deallocate(ptr, 4 * KiB, near);
  heap.deallocate(rest, MiB - 5 * KiB, near);
  EXPECT_EQ(cudaStreamDestroy(far), cudaSuccess);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, FlushesCoalescedMemoryToTheStoreOfItsStream)
{
  constexpr std::size_t blocks = 10;  // the 5th and the last free record an event
  device_heap heap{512 * MiB};
  ASSERT_NE(heap.allocate(4 * KiB, other), nullptr);  // makes a second cache
  std::vector<void*> mine;
  for (std::size_t i = 0; i < blocks; ++i) { mine.push_back(heap.allocate(MiB, stream)); }
  auto const rest = heap.figures().largest_free_bytes;
  ASSERT_NE(heap.allocate(rest, other), nullptr);
  for (void* const each : mine) { heap.deallocate(each, MiB, stream); }
  since const then{heap};
  EXPECT_NE(heap.try_allocate(4 * MiB, other), nullptr);
  EXPECT_EQ(then.sources().other_stores, 1U);
  EXPECT_EQ(then.sources().other_caches, 0U);
}

TEST_F(StreamOrderedHeapSim, TreatsBothLegacyHandlesAsOneStream)
{
#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
  device_heap heap{MiB};
  void* const a = heap.allocate(MiB - 4 * KiB, rmm::cuda_stream_legacy);
  void* const b = heap.allocate(4 * KiB, rmm::cuda_stream_default);
  heap.deallocate(a, MiB - 4 * KiB, rmm::cuda_stream_legacy);
  heap.deallocate(b, 4 * KiB, rmm::cuda_stream_default);
  EXPECT_NE(heap.try_allocate(MiB, rmm::cuda_stream_legacy), nullptr);
  EXPECT_EQ(heap.figures().device_synchronizations, 0U);
#else
  GTEST_SKIP() << "the default stream is the thread's";
#endif
}

TEST_F(StreamOrderedHeapSim, RefusesTooLargeRequestsAndLosesNothing)
{
  device_heap heap{MiB};
  void* const ptr = heap.allocate(256, stream);
  EXPECT_EQ(heap.allocate(MiB, other), nullptr);
  heap.deallocate(ptr, 256, stream);
  EXPECT_NE(heap.allocate(MiB, other), nullptr);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, NeverCoalescesTouchingUpstreamBlocks)
{
  void* both{};
  ASSERT_EQ(cudaMalloc(&both, 2 * MiB), cudaSuccess);
  auto* const second = static_cast<char*>(both) + MiB;
  {
    rmm::detail::stream_ordered_heap heap;
    void* const a = heap.add_block_and_allocate(both, MiB, MiB, stream);
    void* const b = heap.add_block_and_allocate(second, MiB, MiB, stream);
    heap.deallocate(a, MiB, stream);
    heap.deallocate(b, MiB, other);
    EXPECT_EQ(heap.figures().largest_free_bytes, MiB);
    EXPECT_EQ(heap.try_allocate(2 * MiB, stream), nullptr);
    EXPECT_EQ(heap.allocate_reclaimed(2 * MiB, stream), nullptr);
    EXPECT_TRUE(heap.check_invariants());
  }
  EXPECT_EQ(cudaFree(both), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, CoalescesAcrossTheSeamOfAWithdrawnBlock)
{
  void* both{};
  ASSERT_EQ(cudaMalloc(&both, 2 * MiB), cudaSuccess);
  {
    rmm::detail::stream_ordered_heap heap;
    rmm::detail::address_range const first{reinterpret_cast<std::uintptr_t>(both), MiB};
    void* const a = heap.add_block_and_allocate(both, MiB, MiB, stream);
    void* const b = heap.add_block_and_allocate(static_cast<char*>(both) + MiB, MiB, MiB, stream);
    heap.deallocate(a, MiB, stream);
    heap.deallocate(b, MiB, stream);
    stream.synchronize();
    ASSERT_EQ(heap.withdraw({first}, rmm::detail::leaving::at_once, stream).size(), 1U);
    heap.extend(first);
    EXPECT_EQ(heap.try_allocate(2 * MiB, stream), both);
    EXPECT_TRUE(heap.check_invariants());
  }
  EXPECT_EQ(cudaFree(both), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, WithdrawsOnlyWholeBlocksAsBlocks)
{
  using ranges = std::vector<rmm::detail::address_range>;
  void* both{};
  ASSERT_EQ(cudaMalloc(&both, 2 * MiB), cudaSuccess);
  {
    rmm::detail::stream_ordered_heap heap;
    auto const begin  = reinterpret_cast<std::uintptr_t>(both);
    void* const whole = heap.add_block_and_allocate(both, 2 * MiB, 2 * MiB, stream);
    heap.deallocate(whole, 2 * MiB, stream);
    stream.synchronize();
    auto const withdraw = [&](ranges const& wanted) {
      return heap.withdraw(wanted, rmm::detail::leaving::after_a_wait, stream, true);
    };
    EXPECT_TRUE(withdraw({{begin, MiB}}).empty());  // these blocks were added earlier
    EXPECT_TRUE(withdraw({{begin + MiB, MiB}}).empty());
    EXPECT_EQ(heap.block_bytes(), 2 * MiB);
    ASSERT_EQ(withdraw({{begin, 2 * MiB}}).size(), 1U);
    EXPECT_EQ(heap.block_bytes(), 0U);
    EXPECT_TRUE(heap.check_invariants());
  }
  EXPECT_EQ(cudaFree(both), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, WithdrawsARangeFromTheMiddleOfABlock)
{
  constexpr std::size_t blocks = 40;
  void* all{};
  ASSERT_EQ(cudaMalloc(&all, blocks * MiB), cudaSuccess);
  {
    rmm::detail::stream_ordered_heap heap;
    for (std::size_t i = 0; i < blocks; ++i) {
      void* const block = static_cast<char*>(all) + i * MiB;
      static_cast<void>(heap.add_block_and_allocate(block, MiB, 0, stream));
      stream.synchronize();
      heap.settle();
      if (i == 0) { continue; }  // makes 2, 4, 6, ... ranges before one is cut in two
      rmm::detail::address_range const middle{reinterpret_cast<std::uintptr_t>(block) + 64 * KiB, 64 * KiB};
      ASSERT_EQ(heap.withdraw({middle}, rmm::detail::leaving::at_once, stream).size(), 1U);
      EXPECT_TRUE(heap.check_invariants());
      EXPECT_EQ(heap.free_runs().size(), 1 + 2 * i);
    }
  }
  EXPECT_EQ(cudaFree(all), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, WithdrawsMemoryInUseOnlyInOrderOrAfterAWait)
{
  using rmm::detail::leaving;
  void* all{};
  ASSERT_EQ(cudaMalloc(&all, 8 * MiB), cudaSuccess);
  {
    rmm::detail::stream_ordered_heap heap;
    void* const first = heap.add_block_and_allocate(all, 8 * MiB, 2 * MiB, stream);
    stream.synchronize();
    heap.settle();
    static_cast<void>(heap.try_allocate(256, other));  // with two caches, large blocks go to the stores
    void* const second = heap.try_allocate(2 * MiB, stream);
    for (void* const block : {first, second}) {
      write(block, 2 * MiB, stream);
      heap.deallocate(block, 2 * MiB, stream);
    }
    auto const withdraw = [&](void* block, leaving when, rmm::cuda_stream_view waiting) {
      return heap.withdraw({{reinterpret_cast<std::uintptr_t>(block), 2 * MiB}}, when, waiting).size();
    };
    EXPECT_EQ(withdraw(first, leaving::at_once, stream), 0U);
    EXPECT_EQ(withdraw(first, leaving::in_order, other), 0U);
    EXPECT_EQ(withdraw(first, leaving::in_order, stream), 1U);
    EXPECT_EQ(withdraw(second, leaving::after_a_wait, other), 1U);
    write(second, 2 * MiB, other);
    EXPECT_TRUE(heap.check_invariants());
  }
  EXPECT_EQ(cudaFree(all), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, WithdrawsSeveralRangesOfOnePiece)
{
  void* all{};
  ASSERT_EQ(cudaMalloc(&all, 8 * MiB), cudaSuccess);
  {
    rmm::detail::stream_ordered_heap heap;
    static_cast<void>(heap.add_block_and_allocate(all, 8 * MiB, 0, stream));
    stream.synchronize();
    auto const begin = reinterpret_cast<std::uintptr_t>(all);
    std::vector<rmm::detail::address_range> const wanted{
      {begin + MiB, MiB}, {begin + 3 * MiB, MiB}, {begin + 4 * MiB, 2 * MiB}};
    EXPECT_EQ(heap.withdraw(wanted, rmm::detail::leaving::at_once, stream).size(), 3U);
    EXPECT_EQ(heap.block_bytes(), 4 * MiB);
    EXPECT_EQ(heap.free_runs().size(), 3U);
    EXPECT_TRUE(heap.check_invariants());
  }
  EXPECT_EQ(cudaFree(all), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, LeavesCachesAloneIfNoRunCanBeLargeEnough)
{
  device_heap pool{MiB};
  void* const kept = pool.allocate(256, stream);
  pool.deallocate(pool.allocate(512, stream), 512, stream);
  pool.heap().fence_live_streams();
  EXPECT_TRUE(pool.heap().free_runs({MiB, nullptr, true}).empty());
  void* const again = pool.heap().try_allocate_local(512, stream);  // takes from the stacks only
  EXPECT_NE(again, nullptr);
  pool.deallocate(again, 512, stream);
  pool.deallocate(kept, 256, stream);
}

TEST_F(StreamOrderedHeapSim, LowersTheUnfencedLimitWhenTheHeapShrinks)
{
  void* both{};
  ASSERT_EQ(cudaMalloc(&both, 65 * MiB), cudaSuccess);
  {
    rmm::detail::stream_ordered_heap heap;
    rmm::detail::address_range const larger{reinterpret_cast<std::uintptr_t>(both), 64 * MiB};
    static_cast<void>(heap.add_block_and_allocate(both, larger.bytes, 0, stream));
    static_cast<void>(heap.add_block_and_allocate(static_cast<char*>(both) + larger.bytes, MiB, 0, stream));
    ASSERT_NE(heap.try_allocate(256, stream), nullptr);  // makes the cache before the heap shrinks
    stream.synchronize();
    ASSERT_EQ(heap.withdraw({larger}, rmm::detail::leaving::at_once, stream).size(), 1U);
    std::vector<void*> mine;
    for (int i = 0; i < 4; ++i) { mine.push_back(heap.try_allocate(16 * KiB, stream)); }
    auto const events = cudasim::calls("cudaEventRecord");
    for (void* const each : mine) { heap.deallocate(each, 16 * KiB, stream); }
    EXPECT_GT(cudasim::calls("cudaEventRecord"), events);
  }
  EXPECT_EQ(cudaFree(both), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, LeavesA32ndOfTheHeapUnfencedForASingleStream)
{
  device_heap heap{MiB};
  std::vector<void*> mine;
  for (int i = 0; i < 4; ++i) { mine.push_back(heap.allocate(8 * KiB, stream)); }
  void* const more  = heap.allocate(256, stream);
  auto const events = cudasim::calls("cudaEventRecord");
  for (void* const each : mine) { heap.deallocate(each, 8 * KiB, stream); }
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), events);
  heap.deallocate(more, 256, stream);
  EXPECT_GT(cudasim::calls("cudaEventRecord"), events);
}

TEST_F(StreamOrderedHeapSim, RefillsACacheWithMoreThanTheRequest)
{
  constexpr std::size_t refill = 64 * KiB;  // the refill size of this heap
  device_heap heap{1024 * refill};
  heap.deallocate(heap.allocate(256, stream), 256, stream);
  heap.deallocate(heap.allocate(256, other), 256, other);
  rmm::cuda_stream const half;
  rmm::cuda_stream const more;
  auto const before   = heap.figures().cached_bytes;
  void* const smaller = heap.allocate(refill / 2, half);
  EXPECT_EQ(heap.figures().cached_bytes, before + refill / 2);
  void* const larger = heap.allocate(refill / 2 + 256, more);
  EXPECT_EQ(heap.figures().cached_bytes, before + refill / 2);
  heap.deallocate(smaller, refill / 2, half);
  heap.deallocate(larger, refill / 2 + 256, more);
}

/// A ring of blocks that one stream allocates and another frees, as in a pipeline. The first stream had the only cache before, which held
/// the whole heap.
struct StreamOrderedHeapPipelineSim : StreamOrderedHeapSim {
  void let_blocks_go_round(device_heap& heap)
  {
    std::array<void*, 16> ring{};
    for (std::size_t i = 0; i != 4 * ring.size(); ++i) {
      auto& place = ring[i % ring.size()];
      if (place != nullptr) { heap.deallocate(place, block, other); }
      place = heap.allocate(block, stream);
    }
    for (void* const each : ring) { heap.deallocate(each, block, other); }
    EXPECT_TRUE(heap.good());
  }

  static constexpr std::size_t size  = 256 * MiB;
  static constexpr std::size_t block = 2 * MiB;  // goes past caches, of which there are two
};

TEST_F(StreamOrderedHeapPipelineSim, AStreamThatOnlyAllocatesGivesUpWhatItsCacheHeldAlone)
{
  device_heap heap{size};
  heap.deallocate(heap.allocate(block, stream), block, stream);
  EXPECT_EQ(heap.figures().cached_bytes, size);
  let_blocks_go_round(heap);
  EXPECT_LE(heap.figures().cached_bytes, size / 4);
}

TEST_F(StreamOrderedHeapPipelineSim, ACacheThatCannotBeFencedKeepsWhatItHeldAloneAndWaitsForNothing)
{
  device_heap heap{size};
  heap.deallocate(heap.allocate(block, stream), block, stream);
  auto const waits = [] {
    return cudasim::calls("cudaDeviceSynchronize") + cudasim::calls("cudaStreamSynchronize") +
           cudasim::calls("cudaEventSynchronize");
  };
  auto const before = waits();
  cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 100'000});
  let_blocks_go_round(heap);
  EXPECT_GT(cudasim::faults_fired(), 0U);
  EXPECT_EQ(waits(), before);
  EXPECT_GT(heap.figures().cached_bytes, size / 4);
  cudasim::clear_faults();
}

// --- what ends

TEST_F(StreamOrderedHeapSim, WaitsForEveryStreamThatFreedAPartOfARun)
{
  // One stream, two threads. The first thread's memory is fenced before the second thread frees its neighbour, but reaches the
  // store later. So the younger epoch has the older event.
  constexpr std::size_t rest = 8 * MiB - as_many_as_are_marked * 384;
  device_heap heap{8 * MiB};
  void* const large = heap.allocate(rest, stream);
  std::vector<void*> small;
  for (std::size_t i = 0; i != as_many_as_are_marked; ++i) { small.push_back(heap.allocate(size_of(i), stream)); }
  auto first  = std::make_unique<worker>();
  auto second = std::make_unique<worker>();
  first->run([&] {
    for (std::size_t i = 0; i != as_many_as_are_marked; ++i) {
      write(small[i], size_of(i), stream, "early");
      heap.deallocate(small[i], size_of(i), stream);
    }
  });
  write(large, rest, stream, "late");
  second->run([&] { heap.deallocate(large, rest, stream); });
  second.reset();
  first.reset();
  void* const whole = heap.try_allocate(8 * MiB, other);
  ASSERT_NE(whole, nullptr);
  write(whole, 8 * MiB, other, "new owner");
  EXPECT_EQ(heap.figures().from_other_streams + heap.figures().put_together, 1U);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, FencesFreesOfAnEndingStream)
{
  device_heap heap{MiB};
  worker thread;
  {
    rmm::cuda_stream passing;
    void* const rest = heap.allocate(MiB - 4 * KiB, passing);
    void* const ptr  = heap.allocate(4 * KiB, passing);
    write(ptr, 4 * KiB, passing);
    heap.deallocate(rest, MiB - 4 * KiB, passing);
    thread.run([&] { heap.deallocate(ptr, 4 * KiB, passing); });
  }
  void* const whole = heap.try_allocate(MiB, other);
  ASSERT_NE(whole, nullptr);
  write(whole, MiB, other);
  EXPECT_EQ(heap.figures().device_synchronizations, 0U);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, FencesFreesOfEndedThreadsWhenTheStreamEnds)
{
  device_heap heap{MiB};
  {
    rmm::cuda_stream passing;
    void* const rest = heap.allocate(MiB - 4 * KiB, passing);
    void* const ptr  = heap.allocate(4 * KiB, passing);
    write(ptr, 4 * KiB, passing);
    heap.deallocate(rest, MiB - 4 * KiB, passing);
    run_on_a_thread_that_ends([&] { heap.deallocate(ptr, 4 * KiB, passing); });
  }
  void* const whole = heap.try_allocate(MiB, other);
  ASSERT_NE(whole, nullptr);
  write(whole, MiB, other);
  EXPECT_EQ(heap.figures().device_synchronizations, 0U);
}

TEST_F(StreamOrderedHeapSim, NewStreamInheritsNothingFromItsHandle)
{
  device_heap heap{MiB};
  cudaStream_t passing{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), cudaSuccess);
  void* const old = heap.allocate(MiB, rmm::cuda_stream_view{passing});
  write(old, MiB, rmm::cuda_stream_view{passing}, "old owner");
  heap.deallocate(old, MiB, rmm::cuda_stream_view{passing});
  ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
  cudaStream_t again{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&again, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(again, passing);
  void* const ptr = heap.allocate(MiB, rmm::cuda_stream_view{again});
  ASSERT_EQ(ptr, old);
  write(ptr, MiB, rmm::cuda_stream_view{again}, "new owner");
  heap.deallocate(ptr, MiB, rmm::cuda_stream_view{again});
  EXPECT_TRUE(heap.good());
  ASSERT_EQ(cudaStreamDestroy(again), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, NewKnownStreamInheritsNothingFromItsHandle)
{
  device_heap heap{64 * KiB};
  std::optional<rmm::cuda_stream> passing{std::in_place, rmm::cuda_stream::flags::non_blocking};
  auto const handle = passing->value();
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(heap.allocate(KiB, *passing));
    write(blocks.back(), KiB, *passing, "old owner");
  }
  for (void* const block : blocks) { heap.deallocate(block, KiB, *passing); }
  passing.reset();
  passing.emplace(rmm::cuda_stream::flags::non_blocking);
  ASSERT_EQ(passing->value(), handle);
  for (int i = 0; i < 64; ++i) {
    void* const ptr = heap.allocate(KiB, *passing);
    ASSERT_NE(ptr, nullptr);
    write(ptr, KiB, *passing, "new owner");
  }
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, TellsFreesOnARecycledHandleFromOldOnes)
{
  device_heap heap{MiB};
  void* const kept = heap.allocate(512 * KiB, other);
  cudaStream_t passing{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), cudaSuccess);
  rmm::cuda_stream_view const view{passing};
  void* const a = heap.allocate(KiB, view);
  write(a, KiB, view, "old owner");
  heap.deallocate(a, KiB, view);
  ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(passing, view.value());
  // The new stream frees memory that another stream allocated.
  other.synchronize();
  write(kept, 512 * KiB, view, "late use");
  heap.deallocate(kept, 512 * KiB, view);
  void* const ptr = heap.allocate(MiB, stream);
  ASSERT_NE(ptr, nullptr);
  write(ptr, MiB, stream, "new owner");
  EXPECT_TRUE(heap.good());
  ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, DropsTheCacheOfARecycledHandleWhenAFenceIsDue)
{
  constexpr std::size_t many = 2 * rmm::detail::stream_cache::most_unfenced_frees;
  device_heap heap{MiB};
  cudaStream_t passing{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), cudaSuccess);
  rmm::cuda_stream_view const view{passing};
  heap.deallocate(heap.allocate(KiB, view), KiB, view);
  std::vector<void*> blocks;
  for (std::size_t i = 0; i != many; ++i) { blocks.push_back(heap.allocate(256 * (1 + i % 8), other)); }
  ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(passing, view.value());
  auto const before = cudasim::calls("cudaStreamGetId");
  for (std::size_t i = 0; i != many; ++i) { heap.deallocate(blocks[i], 256 * (1 + i % 8), view); }
  EXPECT_LE(cudasim::calls("cudaStreamGetId") - before, many / 4);  // fewer than one per free
  EXPECT_TRUE(heap.good());
  ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
}

TEST_F(StreamOrderedHeapSim, ThreadsMayEndAfterTheHeap)
{
  worker thread;
  {
    device_heap heap{MiB};
    thread.run([&] {
      void* const ptr = heap.allocate(KiB, stream);
      write(ptr, KiB, stream);
      heap.deallocate(ptr, KiB, stream);
    });
  }
  device_heap next{MiB};  // may have the address of the first heap
  thread.run([&] {
    void* const ptr = next.allocate(KiB, stream);
    write(ptr, KiB, stream);
    next.deallocate(ptr, KiB, stream);
  });
  EXPECT_TRUE(next.good());
}

TEST_F(StreamOrderedHeapSim, ThreadsMayFreeWhileTheyEnd)
{
  device_heap heap{MiB};
  struct owner {
    device_heap* heap{};
    void* ptr{};
    rmm::cuda_stream_view stream;
    ~owner()
    {
      if (ptr != nullptr) { heap->deallocate(ptr, 600 * KiB, stream); }
    }
  };
  run_on_a_thread_that_ends([&] {
    thread_local owner last;  // constructed before the thread's caches, so destroyed after them
    last.heap   = &heap;
    last.stream = stream;
    last.ptr    = heap.allocate(600 * KiB, stream);
    write(last.ptr, 600 * KiB, stream);
  });
  void* const ptr = heap.allocate(MiB, other);
  ASSERT_NE(ptr, nullptr);
  write(ptr, MiB, other);
  EXPECT_TRUE(heap.good());
}

TEST_F(StreamOrderedHeapSim, ThreadsMayAllocateWhileTheyEnd)
{
  device_heap heap{MiB};
  void* ptr{};
  struct late {
    device_heap* heap{};
    void** ptr{};
    rmm::cuda_stream_view stream;
    ~late()
    {
      if (heap != nullptr) { *ptr = heap->allocate(MiB, stream); }
    }
  };
  void* mine{};
  run_on_a_thread_that_ends([&] {
    thread_local late last;
    last = {};
    mine = heap.allocate(MiB, stream);
    write(mine, MiB, stream);
    heap.deallocate(mine, MiB, stream);
    last.stream = other;
    last.ptr    = &ptr;
    last.heap   = &heap;
  });
  ASSERT_EQ(ptr, mine);
  write(ptr, MiB, other);
  EXPECT_TRUE(heap.good());
  heap.deallocate(ptr, MiB, other);
  EXPECT_TRUE(heap.good());
}

/// Uses a heap in its destructor. A static object is destroyed after the main thread's thread-local objects.
struct used_at_exit {
  device_heap* heap{};
  void* ptr{};
  rmm::cuda_stream_view stream;

  ~used_at_exit()
  {
    write(ptr, 600 * KiB, stream);
    heap->deallocate(ptr, 600 * KiB, stream);
    void* const whole = heap->allocate(MiB, rmm::cuda_stream_legacy);
    bool const good   = whole != nullptr && heap->good() && cudasim::violations().empty();
    if (whole != nullptr) { heap->deallocate(whole, MiB, rmm::cuda_stream_legacy); }
    delete heap;
    std::_Exit(good && cudasim::leak_report().find("cudaMalloc") == std::string::npos ? 0 : 1);
  }
};

TEST_F(StreamOrderedHeapSim, MayBeUsedWhileTheProcessEnds)
{
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
    {
      static used_at_exit last;
      last.heap   = new device_heap{MiB};
      last.stream = stream;
      last.ptr    = last.heap->allocate(600 * KiB, stream);
      last.heap->deallocate(last.heap->allocate(KiB, stream), KiB, stream);
      std::exit(2);
    },
    ::testing::ExitedWithCode(0),
    "");
}

TEST_F(StreamOrderedHeapSim, BoundsTheCachesOfOneThread)
{
  device_heap heap{16 * MiB};  // room for one block on each stream
  std::vector<rmm::cuda_stream> streams(5000);
  for (auto const& s : streams) {
    void* const ptr = heap.allocate(KiB, s);
    ASSERT_NE(ptr, nullptr);
    write(ptr, KiB, s);
    heap.deallocate(ptr, KiB, s);
  }
  EXPECT_LE(heap.figures().caches, 4096U);
  EXPECT_TRUE(heap.good());
  EXPECT_NE(heap.allocate(16 * MiB, other), nullptr);
}

TEST_F(StreamOrderedHeapSim, DropsCachesOfEndedStreams)
{
  device_heap heap{MiB};
  for (int i = 0; i < 100; ++i) {
    rmm::cuda_stream passing;
    void* const ptr = heap.allocate(KiB, passing);
    write(ptr, KiB, passing);
    heap.deallocate(ptr, KiB, passing);
  }
  EXPECT_LE(heap.figures().caches, 2U);
}

TEST_F(StreamOrderedHeapSim, DropsAllEndedCachesWhenTheNextIsMade)
{
  device_heap heap{MiB};
  {
    std::vector<rmm::cuda_stream> const streams(8);
    for (auto const& s : streams) { heap.deallocate(heap.allocate(KiB, s), KiB, s); }
    EXPECT_EQ(heap.figures().caches, 8U);
  }
  heap.deallocate(heap.allocate(KiB, other), KiB, other);
  EXPECT_EQ(heap.figures().caches, 1U);
}

/// Where small blocks of a third stream lie if a fragment fits them, and 6 or 44 of 64 MiB are in use.
TEST_F(StreamOrderedHeapSim, RefillsFromAFittingFragmentUnlessMuchMemoryIsFree)
{
  for (auto const used : {2 * MiB, 40 * MiB}) {
    device_heap heap{64 * MiB};
    auto const make_idle = [&] {
      stream.synchronize();
      heap.heap().settle();
    };
    // With two caches, none can take everything. The first cache's memory is given back as one large block.
    constexpr auto most = 64 * MiB - 128 * KiB;
    void* const all     = heap.allocate(most, stream);
    static_cast<void>(heap.allocate(256, other));
    heap.deallocate(all, most, stream);
    make_idle();
    void* const low = heap.allocate(2 * MiB + 32 * KiB, stream);
    static_cast<void>(heap.allocate(2 * MiB, stream));  // keeps the memory behind it in use
    heap.deallocate(low, 2 * MiB + 32 * KiB, stream);
    make_idle();
    ASSERT_EQ(heap.allocate(2 * MiB, stream), low);
    static_cast<void>(heap.allocate(used, stream));
    rmm::cuda_stream third;
    void* const fragment = static_cast<char*>(low) + 2 * MiB;
    EXPECT_EQ(heap.allocate(32 * KiB, third) == fragment, used == 40 * MiB) << used;
    EXPECT_TRUE(heap.good());
  }
}

TEST_F(StreamOrderedHeapSim, FiguresStopOtherThreadsBriefly)
{
  if (!tells_costs) { GTEST_SKIP() << "the time of this build is not that of the program"; }
  constexpr std::size_t blocks = 200'000;
  device_heap heap{(2 * blocks + 1) * 256};
  std::vector<void*> all(2 * blocks);
  for (auto& each : all) { each = heap.allocate(256, stream); }
  for (std::size_t i = 0; i != all.size(); i += 2) { heap.deallocate(all[i], 256, stream); }
  auto fastest = std::chrono::nanoseconds::max();
  for (int i = 0; i != 10; ++i) {
    timespec begin{};
    timespec end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    auto const now = heap.figures();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    EXPECT_EQ(now.free_bytes, (blocks + 1) * 256);
    EXPECT_GE(now.largest_free_bytes, 256U);
    fastest = std::min(
      fastest, std::chrono::seconds{end.tv_sec - begin.tv_sec} + std::chrono::nanoseconds{end.tv_nsec - begin.tv_nsec});
  }
  EXPECT_LT(fastest, std::chrono::milliseconds{1});
  for (std::size_t i = 1; i < all.size(); i += 2) { heap.deallocate(all[i], 256, stream); }
}

TEST_F(StreamOrderedHeapSim, FiguresCountTheLatestFreeAsTheLargest)
{
  constexpr std::size_t blocks = 20'000;
  device_heap heap{2 * blocks * 256 + 512 * KiB};
  std::vector<void*> all(2 * blocks);
  auto* const large = heap.allocate(512 * KiB, stream);
  for (auto& each : all) { each = heap.allocate(256, stream); }
  for (std::size_t i = 0; i != all.size(); i += 2) { heap.deallocate(all[i], 256, stream); }
  EXPECT_EQ(heap.figures().largest_free_bytes, 256U);
  heap.deallocate(large, 512 * KiB, stream);
  EXPECT_GE(heap.figures().largest_free_bytes, 512 * KiB);
  for (std::size_t i = 1; i < all.size(); i += 2) { heap.deallocate(all[i], 256, stream); }
}

TEST_F(StreamOrderedHeapSim, FiguresAddUp)
{
  device_heap heap{MiB};
  void* const a = heap.allocate(100 * KiB, stream);
  void* const b = heap.allocate(1000, stream);
  auto now      = heap.figures();
  EXPECT_EQ(now.live_bytes, 101 * KiB);
  EXPECT_EQ(now.free_bytes, MiB - 101 * KiB);
  EXPECT_EQ(now.upstream_blocks, 1U);
  EXPECT_EQ(now.caches, 1U);
  heap.deallocate(a, 100 * KiB, stream);
  heap.deallocate(b, 1000, stream);
  now = heap.figures();
  EXPECT_EQ(now.live_bytes, 0U);
  EXPECT_EQ(now.free_bytes, MiB);
  EXPECT_EQ(now.largest_free_bytes, MiB);
  EXPECT_GE(now.cached_bytes, 101 * KiB);
}

// --- exactness

TEST_F(StreamOrderedHeapSim, ReusesFourSmallBlocksAsOneOf1KiB)
{
  device_heap heap{KiB};
  std::set<void*> blocks;
  for (int i = 0; i < 4; ++i) { blocks.insert(heap.allocate(256, stream)); }
  EXPECT_EQ(blocks.size(), 4U);
  EXPECT_EQ(blocks.count(nullptr), 0U);
  EXPECT_EQ(heap.allocate(1, stream), nullptr);
  for (void* const block : blocks) { heap.deallocate(block, 256, stream); }
  EXPECT_NE(heap.try_allocate(KiB, stream), nullptr);
}

TEST_F(StreamOrderedHeapSim, ServesOneRequestOfTheWholeHeapAfterAnyFrees)
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random{seed};
    constexpr std::size_t size = 256 * KiB;
    device_heap heap{size};
    std::vector<std::pair<void*, std::size_t>> live;
    for (int step = 0; step < 400; ++step) {
      if (random() % 2 == 0) {
        std::size_t const bytes = random() % 4 == 0 ? 1 + random() % (100 * KiB) : 256 * (1 + random() % 8);
        if (void* const ptr = heap.try_allocate(bytes, stream)) { live.emplace_back(ptr, bytes); }
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        heap.deallocate(live.back().first, live.back().second, stream);
        live.pop_back();
      }
    }
    while (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      heap.deallocate(live.back().first, live.back().second, stream);
      live.pop_back();
    }
    void* const whole = heap.try_allocate(size, stream);
    ASSERT_NE(whole, nullptr) << "seed " << seed;
    heap.deallocate(whole, size, stream);
    ASSERT_EQ(heap.figures().device_synchronizations, 0U) << "seed " << seed;
  }
}

}  // namespace
