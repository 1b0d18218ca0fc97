// SPDX-License-Identifier: Apache-2.0
//
// Nonblocking calls of pools. They serve from the thread's own cache, and refuse calls that must be recorded. They call CUDA only
// to identify the stream and, if the pool checks captures, to ask whether it captures.

#include "../../../support/simulated.hpp"
#include "../../../support/worker.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/detail/stream/stream_cache.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace {

using rmm::detail::identified_stream;
using rmm::mr::cuda_memory_resource;
using rmm::mr::device_memory_resource;
using rmm::mr::detail::immediate_resource;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

/// A pool whose cache for one stream has a block of `size` bytes.
struct warm_pool {
  explicit warm_pool(std::size_t bytes = 1000) : size{bytes}
  {
    pool.set_check_capture(false);
    warm_up(stream);
  }

  void warm_up(rmm::cuda_stream_view on) { pool.deallocate(pool.allocate(size, on), size, on); }

  /// Returns whether the pool serves an allocation and a free without waiting.
  [[nodiscard]] bool serves(rmm::cuda_stream_view on)
  {
    auto const calls = cudasim::calls();
    auto* const ptr  = pool.try_allocate_nonblocking(size, on);
    if (ptr == nullptr) { return false; }
    EXPECT_EQ(pool.figures().live_bytes, (size + 255) / 256 * 256);
    EXPECT_TRUE(pool.try_deallocate_nonblocking(ptr, size, on));
    EXPECT_EQ(cudasim::calls(), calls);
    return true;
  }

  std::size_t size;
  rmm::cuda_stream stream;
  cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<cuda_memory_resource> pool{&cuda, 64 * MiB, 64 * MiB};
};

struct ImmediateResourceSim : Simulated {
  void SetUp() override
  {
    Simulated::SetUp();
#if defined(RMM_NVTX)
    GTEST_SKIP() << "where tools look on nothing is served this way: memory_marks_sim_tests.cpp";
#endif
  }
};

TEST_F(ImmediateResourceSim, ServesSmallAndLargerBlocksWithoutARuntimeCall)
{
  for (std::size_t const size : {std::size_t{1}, std::size_t{1000}, 64 * KiB, 100 * KiB, MiB}) {
    warm_pool warm{size};
    for (int i = 0; i < 300; ++i) { ASSERT_TRUE(warm.serves(warm.stream)) << size; }
    EXPECT_EQ(warm.pool.figures().live_bytes, 0U);
  }
}

TEST_F(ImmediateResourceSim, ServesNothingWithoutACacheForThreadAndStream)
{
  warm_pool warm;
  rmm::cuda_stream const other;
  EXPECT_FALSE(warm.serves(other));
  rmm::test::run_on_a_thread_that_ends([&] { EXPECT_FALSE(warm.serves(warm.stream)); });
  auto* const ptr = warm.pool.allocate(warm.size, warm.stream);
  rmm::test::run_on_a_thread_that_ends(
    [&] { EXPECT_FALSE(warm.pool.try_deallocate_nonblocking(ptr, warm.size, warm.stream)); });
  EXPECT_EQ(warm.pool.figures().live_bytes, 1024U);
  warm.pool.deallocate(ptr, warm.size, warm.stream);
}

TEST_F(ImmediateResourceSim, RefusesAForeignStreamWhoseHandleMayBeRecycledUnlessTheCallerKnowsIt)
{
  warm_pool warm;
  cudaStream_t stream{};
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  warm.warm_up(stream);
  EXPECT_FALSE(warm.serves(stream));
  auto const identity = rmm::detail::stream_identity(stream);
  EXPECT_EQ(warm.pool.try_allocate_nonblocking(warm.size, identified_stream{stream, identity + 1}), nullptr);
  auto const calls    = cudasim::calls();
  auto const captures = cudasim::calls("cudaStreamIsCapturing");
  auto* const ptr     = warm.pool.try_allocate_nonblocking(warm.size, identified_stream{stream, identity});
  EXPECT_NE(ptr, nullptr);
  EXPECT_EQ(cudasim::calls(), calls + 1);
  EXPECT_EQ(cudasim::calls("cudaStreamIsCapturing"), captures + 1);
  warm.pool.deallocate(ptr, warm.size, stream);

  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(warm.pool.try_allocate_nonblocking(warm.size, identified_stream{stream, identity}), nullptr);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

/// A thread that exists only in the parent may hold a lock that the cache needs.
TEST_F(ImmediateResourceSim, GivesAForkedChildsBlocksToNoCacheOfItsParent)
{
  warm_pool warm{MiB};
  void* const ptr  = warm.pool.allocate(warm.size, warm.stream);
  auto const child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) { ::_Exit(warm.pool.try_deallocate_nonblocking(ptr, warm.size, warm.stream) ? 1 : 0); }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  warm.pool.deallocate(ptr, warm.size, warm.stream);
}

TEST_F(ImmediateResourceSim, ServesNeitherZeroBytesNorTooMany)
{
  warm_pool warm;
  EXPECT_EQ(warm.pool.try_allocate_nonblocking(0, warm.stream), nullptr);
  for (std::size_t const size : {65 * MiB, std::numeric_limits<std::size_t>::max()}) {
    EXPECT_EQ(warm.pool.try_allocate_nonblocking(size, warm.stream), nullptr);
  }
}

TEST_F(ImmediateResourceSim, LeavesFreesThatMustRecordAnEvent)
{
  warm_pool warm;
  std::vector<std::pair<void*, std::size_t>> blocks(400);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    auto const size = 256 * (1 + i % 8);  // so that no stack is full
    blocks[i]       = {warm.pool.allocate(size, warm.stream), size};
  }
  int at_once          = 0;
  std::size_t in_a_row = 0;
  for (auto const& [ptr, size] : blocks) {
    auto const calls  = cudasim::calls();
    auto const events = cudasim::calls("cudaEventRecord");
    if (warm.pool.try_deallocate_nonblocking(ptr, size, warm.stream)) {
      EXPECT_EQ(cudasim::calls(), calls);
      ++at_once;
      ++in_a_row;
    } else {
      warm.pool.deallocate(ptr, size, warm.stream);
      if (cudasim::calls("cudaEventRecord") > events) { in_a_row = 0; }
    }
    ASSERT_LT(in_a_row, rmm::detail::stream_cache::most_unfenced_frees);
  }
  EXPECT_GT(at_once, 350);
  EXPECT_EQ(warm.pool.figures().live_bytes, 0U);
}

TEST_F(ImmediateResourceSim, RefusesCallsThatTagsOrPartsMustSee)
{
  warm_pool warm;
  auto* const ptr = warm.pool.allocate(warm.size, warm.stream);
  warm.pool.track_tags(true);
  EXPECT_FALSE(warm.serves(warm.stream));
  EXPECT_FALSE(warm.pool.try_deallocate_nonblocking(ptr, warm.size, warm.stream));
  warm.pool.track_tags(false);
  EXPECT_TRUE(warm.pool.try_deallocate_nonblocking(ptr, warm.size, warm.stream));
}

TEST_F(ImmediateResourceSim, WithCaptureChecksServesTheLegacyStreamWithoutACall)
{
  warm_pool warm;
  warm.pool.set_check_capture(true);
  warm.warm_up(rmm::cuda_stream_legacy);
  EXPECT_TRUE(warm.serves(rmm::cuda_stream_legacy));
}

/// A pool that checks captures, with a stream of the library and a foreign stream.
struct CheckedPoolSim : ImmediateResourceSim {
  void SetUp() override
  {
    ImmediateResourceSim::SetUp();
    if (IsSkipped()) { return; }
    warm.emplace();
    warm->pool.set_check_capture(true);
    ASSERT_EQ(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking), cudaSuccess);
    for (auto* const each : {warm->stream.value(), foreign}) {
      for (int i = 0; i < 300; ++i) { warm->warm_up(each); }  // at first, each free of a foreign stream gets an event
    }
  }

  void TearDown() override
  {
    warm.reset();
    if (foreign != nullptr) { EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess); }
    ImmediateResourceSim::TearDown();
  }

  /// Expects that both calls are served, and that they make exactly the CUDA calls in `questions` about `stream`.
  void expect_served_with(identified_stream stream, std::vector<std::pair<char const*, std::uint64_t>> const& questions)
  {
    warm->warm_up(stream.view());  // otherwise the other stream may occupy this slot of the thread's table
    std::vector<std::uint64_t> before;
    for (auto const& question : questions) { before.push_back(cudasim::calls(question.first)); }
    auto const calls = cudasim::calls();
    auto* const ptr  = warm->pool.try_allocate_nonblocking(warm->size, stream);
    ASSERT_NE(ptr, nullptr);
    EXPECT_TRUE(warm->pool.try_deallocate_nonblocking(ptr, warm->size, stream.view()));
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      EXPECT_EQ(cudasim::calls(questions[i].first) - before[i], questions[i].second) << questions[i].first;
      sum += questions[i].second;
    }
    EXPECT_EQ(cudasim::calls() - calls, sum);
  }

  std::optional<warm_pool> warm;
  cudaStream_t foreign{};
};

TEST_F(CheckedPoolSim, AsksAKnownStreamWhetherItCaptures)
{
  expect_served_with(warm->stream.value(), {{"cudaStreamIsCapturing", 2}});
}

TEST_F(CheckedPoolSim, AsksAForeignStreamForItsIdentityAsWell)
{
  expect_served_with(foreign, {{"cudaStreamIsCapturing", 2}, {"cudaStreamGetId", 1}});
}

TEST_F(CheckedPoolSim, DoesNotAskForAnIdentityThatTheCallerKnows)
{
  auto const identity = rmm::detail::stream_identity(foreign);
  expect_served_with({foreign, identity}, {{"cudaStreamIsCapturing", 2}});
}

TEST_F(CheckedPoolSim, AsksForAnIdentityOtherThanThatOfItsCache)
{
  auto const identity = rmm::detail::stream_identity(foreign);
  expect_served_with({foreign, identity + 1}, {{"cudaStreamIsCapturing", 2}, {"cudaStreamGetId", 1}});
}

TEST_F(CheckedPoolSim, ServesNothingForARecycledHandle)
{
  auto* const handle = foreign;
  std::vector<cudaStream_t> others;
  ASSERT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
  do {
    ASSERT_LT(others.size(), 100U);
    ASSERT_EQ(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking), cudaSuccess);
    others.push_back(foreign);
  } while (foreign != handle);
  others.pop_back();
  EXPECT_EQ(warm->pool.try_allocate_nonblocking(warm->size, foreign), nullptr);
  identified_stream const known{foreign, rmm::detail::stream_identity(foreign)};
  EXPECT_EQ(warm->pool.try_allocate_nonblocking(warm->size, known), nullptr);
  for (auto* const other : others) { EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess); }
}

TEST_F(CheckedPoolSim, ServesNoStreamThatCapturesAndBreaksNoCapture)
{
  for (auto* const stream : {warm->stream.value(), foreign}) {
    identified_stream const known{stream, rmm::detail::stream_identity(stream)};
    auto* const ptr = warm->pool.allocate(warm->size, stream);
    warm->warm_up(stream);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(warm->pool.try_allocate_nonblocking(warm->size, stream), nullptr);
    EXPECT_EQ(warm->pool.try_allocate_nonblocking(warm->size, known), nullptr);
    EXPECT_FALSE(warm->pool.try_deallocate_nonblocking(ptr, warm->size, stream));
    cudaGraph_t graph{};
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    warm->pool.deallocate(ptr, warm->size, stream);
    auto* const again = warm->pool.try_allocate_nonblocking(warm->size, stream);
    EXPECT_NE(again, nullptr);
    warm->pool.deallocate(again, warm->size, stream);
  }
}

TEST_F(ImmediateResourceSim, RefusesAllCallsWhileACaptureIsAnnounced)
{
  warm_pool warm;
  auto* const ptr = warm.pool.allocate(warm.size, warm.stream);
  {
    rmm::cuda_stream const captured;
    rmm::graph_memory const memory;
    rmm::capture_scope const scope{captured, memory};
    EXPECT_FALSE(warm.serves(warm.stream));
    EXPECT_FALSE(warm.pool.try_deallocate_nonblocking(ptr, warm.size, warm.stream));
  }
  EXPECT_TRUE(warm.pool.try_deallocate_nonblocking(ptr, warm.size, warm.stream));
}

TEST_F(ImmediateResourceSim, IsOfferedByAPoolButNotByAnAdaptorOverIt)
{
  warm_pool warm;
  device_memory_resource* const pool = &warm.pool;
  EXPECT_NE(dynamic_cast<immediate_resource*>(pool), nullptr);
  rmm::mr::statistics_resource_adaptor<device_memory_resource> adaptor{pool};
  EXPECT_EQ(dynamic_cast<immediate_resource*>(static_cast<device_memory_resource*>(&adaptor)), nullptr);
}

}  // namespace
