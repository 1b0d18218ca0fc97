// SPDX-License-Identifier: Apache-2.0
//
// Large blocks beside other caches: when a thread's cache keeps them for requests of the same size, when it serves all sizes, and how
// others get the memory.

#include "../../../support/stepped_heap.hpp"
#include "../../../support/worker.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace {

using rmm::test::run_on_a_thread_that_ends;
using rmm::test::worker;

constexpr std::size_t MiB       = std::size_t{1} << 20U;
constexpr std::size_t heap_size = 1024 * MiB;
constexpr std::size_t large     = 3 * MiB;  // above 1/1024 of the heap, below 1/256
constexpr std::size_t too_large = 5 * MiB;  // above 1/256
constexpr std::size_t nearly_all =
  heap_size - 2 * MiB;  // no run is as long without a kept block at the beginning of the heap

/// A heap with a cache for each of two streams, so that large blocks go past caches.
struct KeptBlocksSim : Stepped {
  KeptBlocksSim()
  {
    static_cast<void>(heap.allocate(1, stream));
    static_cast<void>(heap.allocate(1, other));
  }

  /// Asks for blocks of this size so often that the stream's cache keeps them.
  void use_often(rmm::cuda_stream_view on, std::size_t bytes = large)
  {
    for (int i = 0; i < 20; ++i) { heap.deallocate(heap.allocate(bytes, on), bytes, on); }
  }

  /// Leaves a block in the stream's cache that work of the stream still uses.
  void leave_kept_block(rmm::cuda_stream_view on)
  {
    use_often(on);
    void* const kept = heap.allocate(large, on);
    write(kept, large, on, "old owner");
    heap.deallocate(kept, large, on);
  }

  /// Returns the calls of CUDA that recording, asking for and waiting for events took.
  [[nodiscard]] static std::uint64_t event_calls()
  {
    return cudasim::calls("cudaEventRecord") + cudasim::calls("cudaEventQuery") + cudasim::calls("cudaStreamWaitEvent");
  }

  /// Returns how often CUDA was asked about a stream.
  [[nodiscard]] static std::uint64_t questions()
  {
    return cudasim::calls("cudaStreamIsCapturing") + cudasim::calls("cudaStreamGetId");
  }

  /// Returns how often the host waits for the device when a heap ends whose cache keeps a block that work of the stream still uses.
  [[nodiscard]] std::uint64_t waits_when_a_heap_ends(rmm::cuda_stream_view on) const
  {
    std::uint64_t waits{};
    {
      device_heap ending{heap_size};
      static_cast<void>(ending.allocate(1, other));
      for (int i = 0; i < 20; ++i) {
        void* const ptr = ending.allocate(large, on);
        write(ptr, large, on);
        ending.deallocate(ptr, large, on);
      }
      waits = cudasim::calls("cudaDeviceSynchronize");
    }
    return cudasim::calls("cudaDeviceSynchronize") - waits;
  }

  [[nodiscard]] std::uint64_t synchronizations() const { return heap.figures().device_synchronizations; }

  void TearDown() override
  {
    EXPECT_TRUE(heap.good());
    owned.reset();
    for (auto* const each : {&stream, &other}) { rmm::cuda_stream const ends{std::move(*each)}; }
    Simulated::TearDown();
  }

  std::optional<device_heap> owned{std::in_place, heap_size};
  device_heap& heap{*owned};
  rmm::cuda_stream stream;
  rmm::cuda_stream other;
};

/// A stream that the library did not make.
class foreign_stream {
 public:
  foreign_stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  foreign_stream(foreign_stream const&)            = delete;
  foreign_stream& operator=(foreign_stream const&) = delete;
  ~foreign_stream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  operator cudaStream_t() const { return stream_; }           // NOLINT
  operator rmm::cuda_stream_view() const { return stream_; }  // NOLINT

 private:
  cudaStream_t stream_{};
};

TEST_F(KeptBlocksSim, ServeRequestsOfTheirSizeWithoutAnEvent)
{
  use_often(stream);
  void* const first = heap.allocate(large, stream);
  heap.deallocate(first, large, stream);
  auto const calls = event_calls();
  for (int i = 0; i < 50; ++i) {
    void* const again = heap.allocate(large, stream);
    ASSERT_EQ(again, first);
    write(again, large, stream);
    heap.deallocate(again, large, stream);
  }
  EXPECT_EQ(event_calls(), calls);
}

TEST_F(KeptBlocksSim, LetASearchLookNowAndThenWhatIsFree)
{
  use_often(stream);
  auto const calls = event_calls();
  for (int i = 0; i < 64; ++i) { heap.deallocate(heap.allocate(large, stream), large, stream); }
  EXPECT_GT(event_calls(), calls);  // the search gives kept blocks to the store
  EXPECT_LE(event_calls(), calls + 4);
}

/// Blocks that no cache keeps, because they are too large. A stream's own frees serve it in its own order.
TEST_F(KeptBlocksSim, AStreamAsksFewEventsForBlocksOfOneSize)
{
  foreign_stream const foreign;
  use_often(foreign, too_large);
  auto const asked    = cudasim::calls("cudaEventQuery");
  auto const recorded = cudasim::calls("cudaEventRecord");
  for (int i = 0; i < 320; ++i) {
    void* const ptr = heap.allocate(too_large, foreign);
    write(ptr, too_large, foreign);
    heap.deallocate(ptr, too_large, foreign);
    cudasim::run_until_idle();
  }
  EXPECT_EQ(cudasim::calls("cudaEventRecord") - recorded, 320U);
  EXPECT_LT(cudasim::calls("cudaEventQuery") - asked, 60U);
  EXPECT_GT(cudasim::calls("cudaEventQuery") - asked, 15U);  // else events and idle memory would pile up
}

TEST_F(KeptBlocksSim, AStreamThatAsksFewEventsLeavesItsMemoryToOthers)
{
  foreign_stream const foreign;
  use_often(foreign, too_large);
  void* const ptr = heap.allocate(too_large, foreign);
  write(ptr, too_large, foreign);
  heap.deallocate(ptr, too_large, foreign);
  void* const all = heap.allocate(nearly_all, other);
  write(all, nearly_all, other);
  cudasim::run_until_idle();
  EXPECT_EQ(synchronizations(), 0U);
  heap.deallocate(all, nearly_all, other);
}

TEST_F(KeptBlocksSim, OneReachedEventDoesNotFreeLaterMemory)
{
  foreign_stream const foreign;
  std::vector<void*> blocks;
  for (int i = 0; i < 12; ++i) { blocks.push_back(heap.allocate(too_large, foreign)); }
  cudasim::run_until_idle();
  for (void* const each : blocks) {
    write(each, too_large, foreign, "old owner");
    heap.deallocate(each, too_large, foreign);
  }
  while (cudasim::pending(foreign) > 20) { ASSERT_TRUE(cudasim::step(foreign)); }  // of 12 writes and 12 events
  void* const all = heap.allocate(nearly_all, other);                              // the checker reports a missing wait
  write(all, nearly_all, other, "new owner");
  EXPECT_GT(cudasim::pending(foreign), 0U);
  cudasim::run_until_idle();
  heap.deallocate(all, nearly_all, other);
}

TEST_F(KeptBlocksSim, EventsDoNotPileUpWhileTheDeviceLagsBehind)
{
  foreign_stream const foreign;
  use_often(foreign, too_large);
  auto const events = [] { return cudasim::calls("cudaEventCreateWithFlags") - cudasim::calls("cudaEventDestroy"); };
  auto const use    = [&](int times) {
    for (int i = 0; i < times; ++i) {
      void* const ptr = heap.allocate(too_large, foreign);
      write(ptr, too_large, foreign);
      heap.deallocate(ptr, too_large, foreign);
      while (cudasim::pending(foreign) > 20) { ASSERT_TRUE(cudasim::step(foreign)); }
    }
  };
  use(500);
  auto const before = events();
  use(2000);
  EXPECT_LE(events(), before + 20);
  cudasim::run_until_idle();
}

TEST_F(KeptBlocksSim, AStreamAsksNoMoreEventsWhileTheDeviceStandsStill)
{
  foreign_stream const foreign;
  use_often(foreign, too_large);
  cudasim::run_until_idle();
  cudasim::hold(foreign);
  auto const asked = cudasim::calls("cudaEventQuery");
  for (int i = 0; i < 320; ++i) {
    void* const ptr = heap.allocate(too_large, foreign);
    write(ptr, too_large, foreign);
    heap.deallocate(ptr, too_large, foreign);
  }
  EXPECT_LT(cudasim::calls("cudaEventQuery") - asked, 60U);
  cudasim::let_go(foreign);
  cudasim::run_until_idle();
}

/// Blocks of streams that may end without notice. Nobody can fence them later, so they have an event.
TEST_F(KeptBlocksSim, OfAForeignStreamServeRequestsOfTheirSizeWithOneEvent)
{
  foreign_stream const foreign;
  use_often(foreign);
  void* const first   = heap.allocate(large, foreign);
  auto const calls    = event_calls();
  auto const records  = cudasim::calls("cudaEventRecord");
  auto const put_back = heap.figures().cached_bytes;
  for (int i = 0; i < 50; ++i) {
    write(first, large, foreign);
    heap.deallocate(first, large, foreign);
    EXPECT_EQ(heap.figures().cached_bytes, put_back + large);
    ASSERT_EQ(heap.allocate(large, foreign), first);
  }
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 50);
  EXPECT_EQ(event_calls(), calls + 50);
}

TEST_F(KeptBlocksSim, OfAForeignStreamReachOthersBehindTheirEvent)
{
  foreign_stream const foreign;
  leave_kept_block(foreign);
  auto const records = cudasim::calls("cudaEventRecord");
  auto const waits   = cudasim::calls("cudaStreamWaitEvent");
  void* const whole  = heap.try_allocate(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records);
  EXPECT_EQ(cudasim::calls("cudaStreamWaitEvent"), waits + 1);
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamServeARequestThatFitsBehindTheirEvent)
{
  foreign_stream const foreign;
  leave_kept_block(foreign);
  for (auto bytes = heap_size; bytes != 256; bytes /= 2) {  // all but the kept block
    while (heap.figures().largest_free_bytes > large && heap.try_allocate(bytes, other) != nullptr) {}
  }
  auto const from_others = heap.figures().from_other_caches;
  void* const ptr        = heap.try_allocate(large, other);
  ASSERT_NE(ptr, nullptr);
  write(ptr, large, other, "new owner");
  EXPECT_EQ(heap.figures().from_other_caches, from_others + 1);
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamReachOthersAfterItHasEnded)
{
  {
    foreign_stream const foreign;
    leave_kept_block(foreign);
  }
  void* const whole = heap.try_allocate(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamReachOthersAfterTheirThreadHasEnded)
{
  foreign_stream const foreign;
  run_on_a_thread_that_ends([&] { leave_kept_block(foreign); });
  void* const whole = heap.try_allocate(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamFenceSmallerFreesToo)
{
  foreign_stream const foreign;
  use_often(foreign);
  std::vector<void*> blocks(15);
  for (void*& block : blocks) { block = heap.allocate(256, foreign); }
  for (void* const block : blocks) { heap.deallocate(block, 256, foreign); }  // the next event: after 16 more
  void* const small = heap.allocate(MiB, foreign);
  void* const ptr   = heap.allocate(large, foreign);
  write(small, MiB, foreign, "old owner");
  heap.deallocate(small, MiB, foreign);
  heap.deallocate(ptr, large, foreign);
  auto const records = cudasim::calls("cudaEventRecord");
  void* const whole  = heap.try_allocate(heap_size - 512 * 1024, other);
  ASSERT_NE(whole, nullptr);
  write(whole, heap_size - 512 * 1024, other, "new owner");
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records);
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamAreNoneIfNoEventCanBeRecorded)
{
  foreign_stream const foreign;
  use_often(foreign);
  void* const ptr = heap.allocate(large, foreign);
  write(ptr, large, foreign, "old owner");
  auto const cached = heap.figures().cached_bytes;
  cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 100});
  heap.deallocate(ptr, large, foreign);
  cudasim::clear_faults();
  EXPECT_EQ(heap.figures().cached_bytes, cached);
  void* const whole = heap.heap().allocate_reclaimed(nearly_all, other);  // waits for the device instead
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(synchronizations(), 1U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamReachOthersAmongManyCaches)
{
  constexpr std::size_t bytes = MiB + MiB / 2;  // that each of many caches may keep
  std::vector<rmm::cuda_stream> streams(70);
  for (auto const& each : streams) { static_cast<void>(heap.allocate(1, each)); }
  foreign_stream const foreign;
  use_often(foreign, bytes);
  void* const kept = heap.allocate(bytes, foreign);
  write(kept, bytes, foreign, "old owner");
  heap.deallocate(kept, bytes, foreign);
  auto const largest = heap.figures().largest_free_bytes;
  void* const whole  = heap.try_allocate(largest, other);
  ASSERT_EQ(whole, kept);
  write(whole, largest, other, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
  streams.clear();
}

TEST_F(KeptBlocksSim, AreFencedInSnapshotsIfTheirStreamMayEndWithoutNotice)
{
  foreign_stream const foreign;
  leave_kept_block(foreign);
  leave_kept_block(stream);
  rmm::detail::heap_contents contents;
  static_cast<void>(heap.heap().figures(&contents));
  std::vector<bool> fenced;
  for (auto const& piece : contents.pieces) {
    if (piece.where == rmm::detail::free_piece::place::cache && piece.range.bytes == large) {
      fenced.push_back(piece.is_fenced);
    }
  }
  EXPECT_EQ(fenced, (std::vector<bool>{true, false}));
}

TEST_F(KeptBlocksSim, OfAForeignStreamNeedNoWaitForTheDeviceWhenTheHeapEnds)
{
  EXPECT_EQ(waits_when_a_heap_ends(foreign_stream{}), 0U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamAreNotAskedForIfTheirSizeIsRare)
{
  foreign_stream const foreign;
  use_often(foreign);
  auto const free_and_count = [&](std::size_t bytes) {
    void* const ptr  = heap.allocate(bytes, foreign);
    auto const asked = questions();
    heap.deallocate(ptr, bytes, foreign);
    return questions() - asked;
  };
  EXPECT_EQ(free_and_count(large), 2U);    // whether it captures, and its id
  EXPECT_EQ(free_and_count(2 * MiB), 2U);  // no more, where a store takes it
  EXPECT_EQ(free_and_count(too_large), 2U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamGoToAStoreWithTheNextLargeFree)
{
  foreign_stream const foreign;
  leave_kept_block(foreign);
  void* const ptr = heap.allocate(too_large, foreign);
  heap.deallocate(ptr, too_large, foreign);
  auto const waits  = cudasim::calls("cudaStreamWaitEvent");
  void* const whole = heap.try_allocate(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(cudasim::calls("cudaStreamWaitEvent"), waits + 1);
}

TEST_F(KeptBlocksSim, OfAForeignStreamReachANewStreamWithTheSameHandleOnlyBehindTheirEvent)
{
  std::optional<foreign_stream> passing{std::in_place};
  cudaStream_t const handle = *passing;
  leave_kept_block(*passing);
  passing.reset();
  passing.emplace();
  ASSERT_EQ(static_cast<cudaStream_t>(*passing), handle);
  void* const ptr = heap.allocate(large, *passing);
  write(ptr, large, *passing, "new owner");  // the ordering checker looks
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, OfAForeignStreamThatCapturesAreNone)
{
  foreign_stream const foreign;
  use_often(foreign);
  void* const ptr = heap.allocate(large, foreign);
  ASSERT_EQ(cudaStreamBeginCapture(foreign, cudaStreamCaptureModeRelaxed), cudaSuccess);
  heap.deallocate(ptr, large, foreign);  // not announced: the graph may use it whenever it runs
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(foreign, &graph),
            cudaErrorStreamCaptureInvalidated);  // CUDA was asked for the stream's id
  EXPECT_NE(heap.allocate(large, foreign), ptr);
}

TEST_F(KeptBlocksSim, HaveSizesThatAreOftenAskedFor)
{
  auto const is_kept = [&](std::size_t bytes) {
    void* const ptr    = heap.allocate(bytes, stream);
    auto const records = cudasim::calls("cudaEventRecord");
    heap.deallocate(ptr, bytes, stream);
    return cudasim::calls("cudaEventRecord") == records;
  };
  int requests = 1;
  while (!is_kept(large) && requests != 100) { ++requests; }
  EXPECT_EQ(requests, 16);
  for (int i = 0; i != 100; ++i) { EXPECT_FALSE(is_kept(large + (static_cast<std::size_t>(i) + 1) * 256)) << i; }
  EXPECT_FALSE(is_kept(large));  // the other sizes have taken its place
}

TEST_F(KeptBlocksSim, ServeTheirStreamWithAnotherSizeAfterOneEvent)
{
  use_often(stream, 2 * MiB - 256);
  std::vector<void*> blocks(2);
  for (void*& block : blocks) { block = heap.allocate(2 * MiB - 256, stream); }
  for (void* const block : blocks) { heap.deallocate(block, 2 * MiB - 256, stream); }  // neighbours
  auto const records = cudasim::calls("cudaEventRecord");
  EXPECT_EQ(heap.allocate(4 * MiB - 512, stream), blocks.front());
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 1);
}

TEST_F(KeptBlocksSim, ReachAnotherStreamBehindAnEvent)
{
  leave_kept_block(stream);
  void* const whole = heap.heap().allocate_reclaimed(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, ServeAnotherThreadOnTheirStreamWithoutAWait)
{
  worker thread;
  thread.run([&] { leave_kept_block(stream); });
  auto const waits  = cudasim::calls("cudaStreamWaitEvent");
  void* const whole = heap.try_allocate(nearly_all, stream);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, stream, "new owner");
  EXPECT_EQ(cudasim::calls("cudaStreamWaitEvent"), waits);
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, GetAnEventWhenTheirStreamEnds)
{
  {
    rmm::cuda_stream passing;
    leave_kept_block(passing);
  }
  void* const whole = heap.try_allocate(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, ServeTheirStreamAfterTheirThreadHasEndedWithoutAnEvent)
{
  run_on_a_thread_that_ends([&] {
    leave_kept_block(stream);
    cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 100});
  });
  cudasim::clear_faults();
  void* const whole = heap.try_allocate(nearly_all, stream);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, stream, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, ReachOthersBehindAnEventAfterTheirThreadHasEnded)
{
  run_on_a_thread_that_ends([&] { leave_kept_block(stream); });
  void* const whole = heap.try_allocate(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, ServeSmallRequestsOfTheirStreamIfNothingElseIsFree)
{
  use_often(stream);
  heap.deallocate(heap.allocate(large, stream), large, stream);
  for (auto bytes = heap_size; bytes != 256; bytes /= 2) {
    while (heap.try_allocate(bytes, other) != nullptr) {}
  }
  EXPECT_NE(heap.try_allocate(64 * 1024, stream), nullptr);
}

TEST_F(KeptBlocksSim, AreNotMadeOfFreesOnANewStreamWithTheSameHandle)
{
  std::optional<rmm::cuda_stream> passing{std::in_place};
  auto const handle = passing->value();
  use_often(*passing);
  void* const ptr = heap.allocate(large, *passing);
  passing.reset();
  passing.emplace();
  ASSERT_EQ(passing->value(), handle);
  auto const records = cudasim::calls("cudaEventRecord");
  heap.deallocate(ptr, large, *passing);
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 1);
}

TEST_F(KeptBlocksSim, ReachANewStreamWithTheSameHandleOnlyBehindAnEvent)
{
  std::optional<rmm::cuda_stream> passing{std::in_place};
  auto const handle = passing->value();
  leave_kept_block(*passing);
  passing.reset();
  passing.emplace();
  ASSERT_EQ(passing->value(), handle);
  void* const whole = heap.try_allocate(nearly_all, *passing);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, *passing, "new owner");  // the ordering checker looks
}

TEST_F(KeptBlocksSim, AreFewAndOfBoundedSize)
{
  for (auto const bytes : {large, 2 * MiB, 5 * MiB}) { use_often(stream, bytes); }
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (auto const bytes : {large, large, 2 * MiB, 5 * MiB}) {
    blocks.emplace_back(heap.allocate(bytes, stream), bytes);
  }
  for (std::size_t i = 0; i != blocks.size(); ++i) {
    auto const records = cudasim::calls("cudaEventRecord");
    heap.deallocate(blocks[i].first, blocks[i].second, stream);
    bool const is_kept =
      i == 0 || i == 2;  // the others would be more than 1/256 of the heap, and take the kept one along
    EXPECT_EQ(cudasim::calls("cudaEventRecord") == records, is_kept) << i;
  }
}

TEST_F(KeptBlocksSim, AreNoneInACacheThatFreesWhatOthersAllocate)
{
  use_often(other);
  static_cast<void>(heap.allocate(2 * MiB, other));  // the cache keeps nothing now
  void* const ptr    = heap.allocate(large, stream);
  auto const records = cudasim::calls("cudaEventRecord");
  heap.deallocate(ptr, large, other);
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 1);
}

TEST_F(KeptBlocksSim, AreNoneUnlessMuchMemoryIsFree)
{
  use_often(stream);
  void* const most = heap.allocate(heap_size * 3 / 4, other);
  static_cast<void>(heap.allocate(2 * MiB, other));  // looks how much is free
  void* const ptr = heap.allocate(large, stream);
  auto records    = cudasim::calls("cudaEventRecord");
  heap.deallocate(ptr, large, stream);
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 1);
  heap.deallocate(most, heap_size * 3 / 4, other);
  heap.deallocate(heap.allocate(large, stream), large, stream);
  records = cudasim::calls("cudaEventRecord");
  heap.deallocate(heap.allocate(large, stream), large, stream);
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records);
}

TEST_F(KeptBlocksSim, AreNoneOfAStreamThatCaptures)
{
  use_often(stream);
  void* const ptr = heap.allocate(large, stream);
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  heap.deallocate(ptr, large, stream);  // not announced: the graph may use it whenever it runs
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_NE(heap.allocate(large, stream), ptr);
}

TEST_F(KeptBlocksSim, ServeACaptureOfAnotherStreamAsItsLastResort)
{
  leave_kept_block(stream);
  rmm::graph_memory const memory;
  {
    rmm::capture_scope const scope{other, memory};
    ASSERT_EQ(cudaStreamBeginCapture(other.value(), cudaStreamCaptureModeRelaxed), cudaSuccess);
    void* const whole = heap.heap().allocate_reclaimed(nearly_all, other);
    EXPECT_NE(whole, nullptr);
    if (whole != nullptr) { heap.deallocate(whole, nearly_all, other); }
    cudaGraph_t graph{};
    ASSERT_EQ(cudaStreamEndCapture(other.value(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(KeptBlocksSim, ServeABlockedStreamThatFindsNothingElse)
{
  use_often(rmm::cuda_stream_legacy);
  std::vector<void*> holes;
  static_cast<void>(heap.try_allocate(3 * MiB / 2, other));
  for (void* hole{}; (hole = heap.try_allocate(2 * MiB, other)) != nullptr;) {
    holes.push_back(hole);
    static_cast<void>(heap.try_allocate(3 * MiB / 2, other));
  }
  for (void* const hole : holes) { heap.deallocate(hole, 2 * MiB, other); }
  heap.deallocate(heap.allocate(2 * MiB, other), 2 * MiB, other);  // finds that memory is plenty again
  ASSERT_EQ(heap.figures().largest_free_bytes, large);
  void* const kept = heap.allocate(large, rmm::cuda_stream_legacy);
  heap.deallocate(kept, large, rmm::cuda_stream_legacy);
  cudaStream_t capturing{};
  ASSERT_EQ(cudaStreamCreate(&capturing), cudaSuccess);
  for (int i = 0; i != 200; ++i) {  // now and then a search looks what is free
    cudaGraph_t graph{};
    ASSERT_EQ(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed), cudaSuccess);
    void* const ptr = heap.try_allocate(large, rmm::cuda_stream_legacy);
    ASSERT_EQ(cudaStreamEndCapture(capturing, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    ASSERT_EQ(ptr, kept) << i;
    heap.deallocate(ptr, large, rmm::cuda_stream_legacy);
  }
  ASSERT_EQ(cudaStreamDestroy(capturing), cudaSuccess);
}

TEST_F(KeptBlocksSim, CountAsFreeMemory)
{
  use_often(stream);
  auto const before = heap.figures();
  void* const ptr   = heap.allocate(large, stream);
  EXPECT_EQ(heap.figures().free_bytes, before.free_bytes - large);
  heap.deallocate(ptr, large, stream);
  auto const after = heap.figures();
  EXPECT_EQ(after.free_bytes, before.free_bytes);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_GE(after.cached_bytes, large);
}

TEST_F(KeptBlocksSim, StayFreeIfNoEventCanBeRecorded)
{
  use_often(stream);
  void* const ptr = heap.allocate(large, stream);
  write(ptr, large, stream);
  heap.deallocate(ptr, large, stream);
  cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 100});
  void* const whole = heap.heap().allocate_reclaimed(nearly_all, other);  // waits for the device instead
  EXPECT_NE(cudasim::faults_fired(), 0U);
  cudasim::clear_faults();
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");
  EXPECT_EQ(synchronizations(), 1U);
}

TEST_F(KeptBlocksSim, AreWaitedForWhenTheHeapEnds) { EXPECT_EQ(waits_when_a_heap_ends(stream), 1U); }

struct AmpleMemorySim : KeptBlocksSim {
  static constexpr std::size_t most_live = heap_size / 16 * 3;

  /// Replaces blocks of many sizes, above the size that usually goes past caches.
  void replace(rmm::cuda_stream_view on, int times)
  {
    for (int i = 0; i < times; ++i) {
      auto const bytes = MiB + 256 * (1 + static_cast<std::size_t>(i) * 7919 % 30000);
      void* const ptr  = heap.allocate(bytes, on);
      write(ptr, bytes, on);
      heap.deallocate(ptr, bytes, on);
    }
  }

  /// Returns the calls of CUDA for events while blocks are replaced.
  [[nodiscard]] std::uint64_t calls_for(rmm::cuda_stream_view on, int times)
  {
    auto const calls = event_calls();
    replace(on, times);
    return event_calls() - calls;
  }
};

TEST_F(AmpleMemorySim, LetsCachesServeLargeBlocksWithFewEvents)
{
  EXPECT_GE(calls_for(stream, 100), 100U);
  replace(stream, 2000);
  EXPECT_LE(calls_for(stream, 100), 50U);
}

TEST_F(AmpleMemorySim, IsFoundBesideKeptBlocks)
{
  for (int i = 0; i < 60; ++i) { use_often(stream); }
  EXPECT_LE(calls_for(stream, 100), 50U);
}

TEST_F(AmpleMemorySim, ServesForeignStreams)
{
  foreign_stream const foreign;
  replace(foreign, 2000);
  EXPECT_LE(calls_for(foreign, 100), 50U);
}

TEST_F(AmpleMemorySim, ServesLargeBlocksWithoutTheLock)
{
  foreign_stream const foreign;
  for (rmm::cuda_stream_view const each :
       {rmm::cuda_stream_view{stream}, rmm::cuda_stream_view{foreign}, rmm::cuda_stream_legacy}) {
    replace(each, 2000);
    heap.deallocate(heap.allocate(2 * MiB, each), 2 * MiB, each);
    auto const questions = cudasim::calls("cuStreamIsCapturing");
    void* const ptr      = heap.heap().try_allocate_nonblocking(2 * MiB, each, true);
    ASSERT_NE(ptr, nullptr);
    EXPECT_TRUE(heap.heap().try_deallocate_nonblocking(ptr, 2 * MiB, each));
    EXPECT_EQ(cudasim::calls("cuStreamIsCapturing") - questions, each == rmm::cuda_stream_legacy ? 0U : 2U);
    EXPECT_EQ(heap.heap().try_allocate_nonblocking(heap_size / 32, each, true), nullptr);
  }
}

TEST_F(AmpleMemorySim, LeavesStreamsThatCaptureToTheSlowPath)
{
  replace(stream, 2000);
  heap.deallocate(heap.allocate(2 * MiB, stream), 2 * MiB, stream);
  void* const ptr = heap.allocate(2 * MiB, stream);
  heap.deallocate(heap.allocate(3 * MiB, stream), 3 * MiB, stream);
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(heap.heap().try_allocate_nonblocking(3 * MiB, stream, true), nullptr);
  EXPECT_FALSE(heap.heap().try_deallocate_nonblocking(ptr, 2 * MiB, stream));
  heap.deallocate(ptr, 2 * MiB, stream);  // not announced: the graph may use it whenever it runs
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_NE(heap.allocate(2 * MiB, stream), ptr);
}

TEST_F(AmpleMemorySim, IsNoneIfMuchIsLiveOrWasLately)
{
  void* const live = heap.allocate(most_live, other);
  replace(stream, 2000);
  EXPECT_GE(calls_for(stream, 100), 100U);
  heap.deallocate(live, most_live, other);
  replace(other, 1);  // so that the cache tells
  replace(stream, 500);
  EXPECT_GE(calls_for(stream, 100), 100U);
  replace(stream, 1000);
  EXPECT_LE(calls_for(stream, 100), 50U);
}

TEST_F(AmpleMemorySim, EndsAsSoonAsMuchIsLive)
{
  replace(stream, 2000);
  EXPECT_LE(calls_for(stream, 100), 50U);
  void* const live = heap.allocate(most_live, other);
  EXPECT_LE(calls_for(stream, 100), 50U);
  static_cast<void>(heap.allocate(heap_size / 4 - most_live, other));
  static_cast<void>(heap.allocate(heap_size / 32, other));  // past the cache: the search counts what is live
  EXPECT_GE(calls_for(stream, 100), 100U);
  heap.deallocate(live, most_live, other);
}

TEST_F(AmpleMemorySim, DoesNotServeANewStreamWithTheSameHandle)
{
  std::optional<foreign_stream> passing{std::in_place};
  cudaStream_t const handle = *passing;
  replace(*passing, 2000);
  void* const old = heap.allocate(2 * MiB, *passing);
  write(old, 2 * MiB, *passing, "old owner");
  heap.deallocate(old, 2 * MiB, *passing);
  passing.reset();
  passing.emplace();
  ASSERT_EQ(static_cast<cudaStream_t>(*passing), handle);
  EXPECT_EQ(heap.heap().try_allocate_nonblocking(2 * MiB, rmm::cuda_stream_view{*passing}, true), nullptr);
  write(heap.allocate(2 * MiB, *passing), 2 * MiB, *passing, "new owner");  // the ordering checker looks
}

TEST_F(AmpleMemorySim, EndsForTheLatestBlockToo)
{
  replace(stream, 2000);
  heap.deallocate(heap.allocate(2 * MiB, stream), 2 * MiB, stream);
  static_cast<void>(heap.allocate(heap_size / 4, other));
  static_cast<void>(heap.allocate(heap_size / 32, other));  // past the cache: the search counts what is live
  EXPECT_EQ(heap.heap().try_allocate_nonblocking(2 * MiB, stream, true), nullptr);
}

TEST_F(AmpleMemorySim, LetsACacheThatHasTooMuchFlushWithTheNextLargeBlock)
{
  replace(stream, 2000);
  std::vector<void*> blocks(60);
  for (void*& block : blocks) { block = heap.allocate(2 * MiB, stream); }
  for (std::size_t i = 1; i < blocks.size(); i += 2) { heap.deallocate(blocks[i], 2 * MiB, stream); }
  for (int i = 0; i != 200; ++i) {  // until there is an event
    void* const small = heap.allocate(1024, stream);
    heap.deallocate(heap.allocate(2048, stream), 2048, stream);
    heap.deallocate(small, 1024, stream);
  }
  std::array<rmm::cuda_stream, 10> more;  // so that each cache may have less
  for (auto& each : more) { heap.deallocate(heap.allocate(1024, each), 1024, each); }
  auto const cached = heap.figures().cached_bytes;
  for (int i = 0; i != 3; ++i) { heap.deallocate(heap.allocate(2 * MiB, stream), 2 * MiB, stream); }
  EXPECT_LT(heap.figures().cached_bytes, cached / 2);
}

TEST_F(AmpleMemorySim, ServesAnotherStreamWithAllThatCachesHold)
{
  replace(stream, 2000);
  replace(other, 100);
  EXPECT_GT(heap.figures().cached_bytes, 8 * MiB);
  void* const whole = heap.try_allocate(nearly_all, other);
  ASSERT_NE(whole, nullptr);
  write(whole, nearly_all, other, "new owner");  // the ordering checker looks
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(AmpleMemorySim, CountsWhatOtherThreadsFree)
{
  std::vector<void*> blocks(100);
  for (void*& block : blocks) { block = heap.allocate(2 * MiB, stream); }
  run_on_a_thread_that_ends([&] {
    for (void* const block : blocks) { heap.deallocate(block, 2 * MiB, stream); }
  });
  replace(stream, 2000);
  EXPECT_LE(calls_for(stream, 100), 50U);
}

TEST_F(AmpleMemorySim, CountsBlocksOfThreadsThatHaveEndedOnce)
{
  std::vector<void*> blocks(100);
  for (int threads = 0; threads != 2; ++threads) {
    run_on_a_thread_that_ends([&] {
      for (void*& block : blocks) { block = heap.allocate(3 * MiB / 2, stream); }
    });
    for (void* const block : blocks) { heap.deallocate(block, 3 * MiB / 2, stream); }
  }
  replace(stream, 2000);
  EXPECT_LE(calls_for(stream, 100), 50U);
}

TEST_F(AmpleMemorySim, CountsWhatTheOnlyCacheHadAllocatedBefore)
{
  owned.emplace(heap_size);
  for (int i = 0; i != 300; ++i) { static_cast<void>(heap.allocate(2 * MiB, stream)); }
  worker another;
  std::uint64_t calls{};
  another.run([&] {
    replace(stream, 1500);
    replace(other, 1500);
    calls = calls_for(other, 100);
  });
  EXPECT_GE(calls, 100U);
}

TEST_F(AmpleMemorySim, IsNotLostWithStreamsThatSoonEnd)
{
  replace(stream, 2000);
  for (int i = 0; i != 300; ++i) {
    foreign_stream const foreign;
    for (int times = 0; times != 2; ++times) {
      void* const ptr = heap.allocate(6 * MiB, foreign);
      write(ptr, 6 * MiB, foreign);
      heap.deallocate(ptr, 6 * MiB, foreign);
    }
    ASSERT_EQ(cudaStreamSynchronize(foreign), cudaSuccess);
  }
  EXPECT_NE(heap.try_allocate(nearly_all, other), nullptr);
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(AmpleMemorySim, LeavesAloneWhatAnUnannouncedCaptureFrees)
{
  replace(stream, 2000);
  void* const ptr = heap.allocate(large, stream);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  heap.deallocate(ptr, large, stream);
  ASSERT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);
  for (int i = 0; i != 10; ++i) { EXPECT_NE(heap.allocate(large, stream), ptr); }
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

/// Frees of large blocks record their event before they take the heap's lock.
struct EventAheadSim : KeptBlocksSim {
  /// Replaces a block that no cache keeps, with work of the stream.
  void replace(rmm::cuda_stream_view on)
  {
    void* const ptr = heap.allocate(too_large, on);
    write(ptr, too_large, on, "old owner");
    heap.deallocate(ptr, too_large, on);
  }

  void expect_all_is_fenced()
  {
    void* const whole = heap.try_allocate(nearly_all, other);
    ASSERT_NE(whole, nullptr);
    write(whole, nearly_all, other, "new owner");  // the ordering checker looks
    EXPECT_EQ(synchronizations(), 0U);
  }
};

TEST_F(EventAheadSim, IsRecordedOnceForAFree)
{
  replace(stream);
  auto const records = cudasim::calls("cudaEventRecord");
  for (int i = 0; i < 10; ++i) { replace(stream); }
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 10);
  expect_all_is_fenced();
}

TEST_F(EventAheadSim, IsRecordedAgainIfThatFailedBeforeTheLock)
{
  replace(stream);
  cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 1});
  replace(stream);
  EXPECT_EQ(cudasim::faults_fired(), 1U);
  expect_all_is_fenced();
}

TEST_F(EventAheadSim, IsRecordedAfterThoseOfOtherThreadsOnTheStream)
{
  worker another;
  for (int i = 0; i < 10; ++i) {
    replace(stream);
    another.run([&] { replace(stream); });
  }
  expect_all_is_fenced();
}

TEST_F(EventAheadSim, IsNoneWhileTheStreamCaptures)
{
  replace(stream);
  void* const ptr    = heap.allocate(too_large, stream);
  auto const records = cudasim::calls("cudaEventRecord");
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  heap.deallocate(ptr, too_large, stream);
  ASSERT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

/// A heap with little free memory: caches gather large blocks, and record one event for several.
struct GatheredBlocksSim : KeptBlocksSim {
  static constexpr std::size_t size = 100 * 1024;  // goes past caches, and eight fit in 1/1024 of the heap
  static constexpr std::size_t most = 8;
  static constexpr std::size_t out  = heap_size / 16 * 14;
  static constexpr std::size_t all_of_rest =
    heap_size - out - 512 * 1024;  // no run is as long without what is gathered

  GatheredBlocksSim()
  {
    heap.take_out(out);
    heap.deallocate(heap.allocate(MiB, other), MiB, other);  // the search finds that memory is scarce
  }

  /// Frees so many blocks that work of the stream still uses. Returns how many events were recorded for that.
  std::uint64_t free_blocks(std::size_t count, rmm::cuda_stream_view on)
  {
    std::vector<void*> blocks(count);
    for (void*& block : blocks) {
      block = heap.allocate(size, on);
      write(block, size, on, "old owner");
    }
    auto const records = cudasim::calls("cudaEventRecord");
    for (void* const block : blocks) { heap.deallocate(block, size, on); }
    return cudasim::calls("cudaEventRecord") - records;
  }

  /// Frees enough blocks, one by one, that the stream does not count as one that may soon end.
  void age(rmm::cuda_stream_view on)
  {
    for (int i = 0; i != 80; ++i) { static_cast<void>(free_blocks(1, on)); }
    heap.deallocate(heap.allocate(5 * MiB, on), 5 * MiB, on);  // too large to gather: takes the others along
  }

  void expect_others_get_all(std::uint64_t waits_of_the_host)
  {
    void* const whole = heap.allocate(all_of_rest, other);
    ASSERT_NE(whole, nullptr);
    write(whole, all_of_rest, other, "new owner");  // the ordering checker looks
    EXPECT_EQ(synchronizations(), waits_of_the_host);
  }
};

TEST_F(GatheredBlocksSim, ShareAnEvent)
{
  EXPECT_EQ(free_blocks(most, stream), 0U);
  EXPECT_EQ(free_blocks(9 * 5, stream), 5U) << "the first of them serve the allocations";
  expect_others_get_all(0);
}

TEST_F(GatheredBlocksSim, HaveABoundedSize)
{
  auto const records = cudasim::calls("cudaEventRecord");
  std::vector<void*> blocks(2);
  for (void*& block : blocks) { block = heap.allocate(600 * 1024, stream); }
  for (void* const block : blocks) { heap.deallocate(block, 600 * 1024, stream); }
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 1);
}

TEST_F(GatheredBlocksSim, ServeRequestsOfTheirSizeWithoutAnEvent)
{
  static_cast<void>(free_blocks(most, stream));
  auto const calls = event_calls();
  void* const ptr  = heap.allocate(size, stream);
  write(ptr, size, stream, "the same stream");
  EXPECT_EQ(event_calls(), calls);
}

TEST_F(GatheredBlocksSim, ServeTheirStreamIfNothingElseIsFree)
{
  static_cast<void>(free_blocks(most, stream));
  void* const whole = heap.try_allocate(all_of_rest, stream);
  ASSERT_NE(whole, nullptr);
  write(whole, all_of_rest, stream, "new owner");
  EXPECT_EQ(synchronizations(), 0U);
}

TEST_F(GatheredBlocksSim, OfAKnownStreamReachOthersBehindAnEvent)
{
  static_cast<void>(free_blocks(most, stream));
  expect_others_get_all(0);
}

TEST_F(GatheredBlocksSim, OfAForeignStreamReachOthersAfterTheHostHasWaited)
{
  foreign_stream const foreign;
  age(foreign);
  EXPECT_EQ(free_blocks(most, foreign), 0U);
  expect_others_get_all(1);
}

TEST_F(GatheredBlocksSim, AreNoneForAWhileAfterTheHostHadToWait)
{
  {
    foreign_stream const foreign;
    age(foreign);
    static_cast<void>(free_blocks(most, foreign));
    void* const whole = heap.allocate(all_of_rest, other);
    heap.deallocate(whole, all_of_rest, other);
    ASSERT_EQ(synchronizations(), 1U);
    EXPECT_EQ(free_blocks(most, foreign), most);
    ASSERT_EQ(cudaStreamSynchronize(foreign), cudaSuccess);
  }
  for (int i = 0; i != 4096; ++i) { heap.deallocate(heap.allocate(size, stream), size, stream); }
  EXPECT_EQ(free_blocks(most, stream), 0U);
}

TEST_F(GatheredBlocksSim, OfAForeignStreamAreFencedByItsLargeFrees)
{
  foreign_stream const foreign;
  age(foreign);
  EXPECT_EQ(free_blocks(most + 1, foreign), 1U);
  expect_others_get_all(0);
}

TEST_F(GatheredBlocksSim, OfAForeignStreamAreFencedWithSmallFrees)
{
  foreign_stream const foreign;
  age(foreign);
  std::vector<void*> blocks(300);
  for (void*& block : blocks) { block = heap.allocate(256, foreign); }
  EXPECT_EQ(free_blocks(most, foreign), 0U);
  for (void* const block : blocks) { heap.deallocate(block, 256, foreign); }
  void* const ptr =
    heap.try_allocate(all_of_rest - MiB, other);  // what is left of the cache's own range keeps some apart
  ASSERT_NE(ptr, nullptr);
  write(ptr, all_of_rest - MiB, other, "new owner");  // the ordering checker looks
}

TEST_F(GatheredBlocksSim, AreNoneOfAStreamThatMaySoonEnd)
{
  foreign_stream const foreign;
  EXPECT_EQ(free_blocks(most, foreign), most);
  expect_others_get_all(0);
}

TEST_F(GatheredBlocksSim, AreNoneOfAStreamThatCaptures)
{
  void* const ptr = heap.allocate(size, stream);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  heap.deallocate(ptr, size, stream);
  ASSERT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);
  for (int i = 0; i != 10; ++i) { EXPECT_NE(heap.allocate(size, stream), ptr); }
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(GatheredBlocksSim, AreNoneInACacheThatFreesWhatOthersAllocate)
{
  static_cast<void>(free_blocks(1, stream));  // so that the cache has what it needs for large blocks
  worker another;
  std::vector<void*> blocks(2 * most);
  another.run([&] {
    for (void*& block : blocks) { block = heap.allocate(size, stream); }
  });
  auto const records = cudasim::calls("cudaEventRecord");
  for (void* const block : blocks) { heap.deallocate(block, size, stream); }
  EXPECT_EQ(cudasim::calls("cudaEventRecord"), records + 2 * most);
}

TEST_F(GatheredBlocksSim, AreNoneIfHardlyAnythingIsFree)
{
  heap.take_out(heap_size / 16);
  heap.deallocate(heap.allocate(MiB, other), MiB, other);
  EXPECT_EQ(free_blocks(most, stream), most);
}

TEST_F(GatheredBlocksSim, GetAnEventWhenTheirStreamEnds)
{
  {
    rmm::cuda_stream const passing;
    EXPECT_EQ(free_blocks(most, passing), 0U);
  }
  expect_others_get_all(0);
}

TEST_F(GatheredBlocksSim, OfAForeignStreamAreFencedByItsNextSearchAfterTheirThreadHasEnded)
{
  foreign_stream const foreign;
  run_on_a_thread_that_ends([&] {
    age(foreign);
    EXPECT_EQ(free_blocks(most, foreign), 0U);
  });
  EXPECT_EQ(free_blocks(1, foreign), 1U);
  expect_others_get_all(0);
}

TEST_F(GatheredBlocksSim, ReachANewStreamWithTheSameHandleAfterTheHostHasWaited)
{
  std::optional<foreign_stream> passing{std::in_place};
  cudaStream_t const handle = *passing;
  age(*passing);
  EXPECT_EQ(free_blocks(most, *passing), 0U);
  passing.reset();
  passing.emplace();
  ASSERT_EQ(static_cast<cudaStream_t>(*passing), handle);
  EXPECT_EQ(free_blocks(most + 2, *passing), most + 2);  // the ordering checker looks
  EXPECT_EQ(synchronizations(), 0U);
  expect_others_get_all(1);
}

TEST_F(GatheredBlocksSim, AreNotMadeOfFreesOnANewStreamWithTheSameHandle)
{
  std::optional<foreign_stream> passing{std::in_place};
  cudaStream_t const handle = *passing;
  age(*passing);
  std::vector<void*> blocks(most);
  for (void*& block : blocks) { block = heap.allocate(size, *passing); }
  ASSERT_EQ(cudaStreamSynchronize(*passing), cudaSuccess);
  passing.reset();
  passing.emplace();
  ASSERT_EQ(static_cast<cudaStream_t>(*passing), handle);
  for (void* const block : blocks) {
    write(block, size, *passing, "old owner");
    heap.deallocate(block, size, *passing);
  }
  expect_others_get_all(0);
}

TEST_F(GatheredBlocksSim, CountAsFreeMemory)
{
  auto const before = heap.figures();
  static_cast<void>(free_blocks(most, stream));
  auto const after = heap.figures();
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.free_bytes, before.free_bytes);
  EXPECT_EQ(after.cached_bytes, before.cached_bytes + most * size);
}

struct KeptBlocksOnTwoDevicesSim : Stepped {
  KeptBlocksOnTwoDevicesSim() { begin(0, 2); }
};

TEST_F(KeptBlocksOnTwoDevicesSim, AreWaitedForOnTheDeviceOfTheirStream)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  std::optional<rmm::cuda_stream> far{std::in_place};
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    rmm::cuda_stream const near;
    device_heap heap{heap_size};
    static_cast<void>(heap.allocate(1, near));
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    for (int i = 0; i < 20; ++i) { heap.deallocate(heap.allocate(large, *far), large, *far); }
    far->synchronize();
    heap.heap().settle();
    void* const kept = heap.allocate(large, *far);
    write(kept, large, *far, "old owner");
    heap.deallocate(kept, large, *far);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    cudasim::inject({"cudaEventRecord", 1, cudaErrorUnknown, 100});
    void* const whole = heap.allocate(heap_size - MiB, near);
    cudasim::clear_faults();
    ASSERT_NE(whole, nullptr);
    write(whole, heap_size - MiB, near, "new owner");  // the ordering checker looks
    EXPECT_EQ(heap.figures().device_synchronizations, 1U);
    EXPECT_EQ(heap.figures().upstream_blocks, 1U);
  }
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  far.reset();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(KeptBlocksOnTwoDevicesSim, LargeBlocksOfAmpleMemoryAreServedWhateverDeviceIsCurrent)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  std::optional<foreign_stream> far{std::in_place};
  rmm::cuda_stream_view const view{*far};
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    rmm::cuda_stream const near;
    device_heap heap{heap_size};
    static_cast<void>(heap.allocate(1, near));
    for (std::size_t i = 0; i < 2000; ++i) {
      auto const bytes = MiB + 256 * (1 + i * 7919 % 30000);
      heap.deallocate(heap.allocate(bytes, view), bytes, view);
    }
    heap.deallocate(heap.allocate(2 * MiB, view), 2 * MiB, view);
    void* const ptr = heap.heap().try_allocate_nonblocking(2 * MiB, view, true);
    ASSERT_NE(ptr, nullptr);
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    write(ptr, 2 * MiB, view, "old owner");
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_TRUE(heap.heap().try_deallocate_nonblocking(ptr, 2 * MiB, view));
    void* const whole = heap.heap().allocate_reclaimed(nearly_all, near);
    ASSERT_NE(whole, nullptr);
    write(whole, nearly_all, near, "new owner");  // the ordering checker looks
  }
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  far.reset();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

/// Frees a block of a stream of device 1 while device 0 is current. A stream of device 0 takes the memory then, under the ordering
/// checker. Returns how many bytes the cache kept.
std::size_t kept_if_freed_with_another_device_current(std::size_t bytes)
{
  std::size_t kept{};
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  std::optional<foreign_stream> far{std::in_place};
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    rmm::cuda_stream const near;
    device_heap heap{heap_size};
    static_cast<void>(heap.allocate(1, near));
    for (int i = 0; i < 20; ++i) { heap.deallocate(heap.allocate(bytes, *far), bytes, *far); }
    void* const ptr   = heap.allocate(bytes, *far);
    auto const cached = heap.figures().cached_bytes;
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    write(ptr, bytes, *far, "old owner");
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    heap.deallocate(ptr, bytes, *far);
    kept                   = heap.figures().cached_bytes - cached;
    auto const whole_bytes = heap.figures().largest_free_bytes;
    void* const whole      = heap.try_allocate(whole_bytes, near);
    EXPECT_EQ(whole, ptr);
    write(whole, whole_bytes, near, "new owner");
    EXPECT_EQ(heap.figures().device_synchronizations, 0U);
  }
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  far.reset();
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  return kept;
}

TEST_F(KeptBlocksOnTwoDevicesSim, OfAForeignStreamMayBeFreedWithAnotherDeviceCurrent)
{
  EXPECT_EQ(kept_if_freed_with_another_device_current(large), large);
}

TEST_F(KeptBlocksOnTwoDevicesSim, BlocksThatGoToAStoreMayBeFreedWithAnotherDeviceCurrent)
{
  EXPECT_EQ(kept_if_freed_with_another_device_current(too_large), 0U);
}

TEST_F(KeptBlocksOnTwoDevicesSim, OfAForeignStreamAreWaitedForAmongManyCaches)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  std::optional<foreign_stream> far{std::in_place};
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    constexpr std::size_t bytes = MiB + MiB / 2;  // that each of many caches may keep
    std::vector<rmm::cuda_stream> streams(70);
    auto const& near                = streams.front();
    rmm::cuda_stream_view const own = rmm::cuda_stream_per_thread;  // its memory waits for device 0 only
    device_heap heap{heap_size};
    for (auto const& each : streams) { static_cast<void>(heap.allocate(1, each)); }
    std::vector<void*> blocks(16);
    for (void*& block : blocks) { block = heap.allocate(256, own); }
    std::sort(blocks.begin(), blocks.end());
    std::swap(blocks[8], blocks.back());                                             // it has free neighbours
    for (std::size_t i = 0; i != 15; ++i) { heap.deallocate(blocks[i], 256, own); }  // the next event: after 16 more
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    for (int i = 0; i < 20; ++i) { heap.deallocate(heap.allocate(bytes, *far), bytes, *far); }
    cudasim::run_until_idle();
    heap.heap().settle();
    void* const kept = heap.allocate(bytes, *far);
    write(kept, bytes, *far, "old owner");
    heap.deallocate(kept, bytes, *far);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    heap.deallocate(blocks.back(), 256, own);
    auto const whole_bytes = heap.figures().largest_free_bytes;
    void* const whole      = heap.heap().allocate_reclaimed(whole_bytes, near);
    ASSERT_NE(whole, nullptr);
    write(whole, whole_bytes, near, "new owner");  // the ordering checker looks
    EXPECT_EQ(heap.figures().device_synchronizations, 1U);
  }
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  far.reset();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

/// Threads that live for a few requests, two at a time.
struct ShortThreadsSim : Stepped {
  static constexpr std::size_t block = MiB / 16;

  /// Allocates and frees blocks on a stream in a thread that has no cache yet.
  void use(rmm::cuda_stream_view on, std::size_t blocks)
  {
    std::vector<void*> all(blocks);
    for (void*& each : all) {
      each = heap.allocate(block, on);
      write(each, block, on);
    }
    for (void* const each : all) { heap.deallocate(each, block, on); }
  }

  /// Lets two threads have caches at the same time. Then they end.
  void use_in_two_threads(rmm::cuda_stream_view on, rmm::cuda_stream_view and_on)
  {
    worker first;
    worker second;
    first.run([&] { use(on, 20); });
    second.run([&] { use(and_on, 20); });
    cudasim::run_until_idle();
  }
  void use_in_two_threads() { use_in_two_threads(*foreign, *foreign_too); }

  [[nodiscard]] std::size_t cached() { return heap.figures().cached_bytes; }

  void TearDown() override
  {
    EXPECT_TRUE(heap.good());
    owned.reset();
    foreign.reset();
    foreign_too.reset();
    Simulated::TearDown();
  }

  std::optional<device_heap> owned{std::in_place, heap_size};
  device_heap& heap{*owned};
  std::optional<foreign_stream> foreign{std::in_place};
  std::optional<foreign_stream> foreign_too{std::in_place};
};

TEST_F(ShortThreadsSim, TakeAllMemoryOnlyIfNoneWasBesideThemLately)
{
  run_on_a_thread_that_ends([&] {
    use(*foreign, 1);
    EXPECT_GT(cached(), heap_size / 2);
  });
  use_in_two_threads();
  run_on_a_thread_that_ends([&] {
    use(*foreign, 1);
    EXPECT_LT(cached(), heap_size / 64);
    for (int i = 0; i < 100; ++i) { static_cast<void>(heap.allocate(MiB, *foreign)); }
    EXPECT_GT(cached(), heap_size / 2) << "the only cache should have all after a while";
  });
}

/// Else its ranges and those that lie in stores would never coalesce with each other.
TEST_F(ShortThreadsSim, DoNotKeepAThreadThatStaysFromTakingAllMemory)
{
  use_in_two_threads();
  auto const replace_in_turn = [&](int times) {
    for (int i = 0; i < times; ++i) {
      void* const ptr = heap.allocate(MiB, rmm::cuda_stream_legacy);
      run_on_a_thread_that_ends([&] { heap.deallocate(ptr, MiB, rmm::cuda_stream_legacy); });
    }
  };
  replace_in_turn(10);
  EXPECT_LT(cached(), heap_size / 64);
  replace_in_turn(100);
  EXPECT_GT(cached(), heap_size / 2);
}

TEST_F(ShortThreadsSim, MakeNoEvents)
{
  for (int i = 0; i < 5; ++i) { use_in_two_threads(); }
  auto const events = [] { return cudasim::calls("cudaEventCreateWithFlags") + cudasim::calls("cudaEventDestroy"); };
  auto const before = events();
  for (int i = 0; i < 100; ++i) { use_in_two_threads(); }
  EXPECT_EQ(events(), before);
}

TEST_F(ShortThreadsSim, ShareAnEventForWhatTheyLeaveUnfenced)
{
  use_in_two_threads();
  std::vector<std::uint64_t> events;
  for (int i = 0; i < 100; ++i) {
    auto const before = cudasim::calls("cudaEventRecord");
    use_in_two_threads();
    events.push_back(cudasim::calls("cudaEventRecord") - before);
  }
  auto const [least, most] = std::minmax_element(events.begin(), events.end());
  EXPECT_GE(*most, *least + 1) << "what they leave was never fenced";
  EXPECT_GE(std::count(events.begin(), events.end(), *least), 80);
}

TEST_F(ShortThreadsSim, LeaveTheirMemoryToTheNextThatNeedsItAll)
{
  use_in_two_threads(*foreign, *foreign);
  run_on_a_thread_that_ends([&] { use(*foreign, 3); });  // two of them without an event
  void* all = nullptr;
  run_on_a_thread_that_ends([&] {
    all = heap.try_allocate(heap_size, *foreign);
    if (all != nullptr) { write(all, heap_size, *foreign); }  // the ordering checker looks
  });
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(heap.figures().device_synchronizations, 0U);
  cudasim::run_until_idle();
  heap.deallocate(all, heap_size, *foreign);
}

}  // namespace
