// SPDX-License-Identifier: Apache-2.0

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/event.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <thread>
#include <vector>

namespace {

using rmm::detail::announced_captures;
using rmm::detail::capture_announcement;
using rmm::detail::capture_exemption;
using rmm::detail::capture_listener;
using rmm::detail::capture_status;
using rmm::detail::query_capture;

struct CaptureTest : ::testing::Test {
  rmm::cuda_stream stream{rmm::cuda_stream::flags::non_blocking};

  static void begin(rmm::cuda_stream_view on, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal)
  {
    ASSERT_EQ(cudaStreamBeginCapture(on.value(), mode), cudaSuccess);
  }
  static void end(rmm::cuda_stream_view on, cudaError_t expected = cudaSuccess)
  {
    cudaGraph_t graph{};
    EXPECT_EQ(cudaStreamEndCapture(on.value(), &graph), expected);
    static_cast<void>(cudaGetLastError());
    if (graph != nullptr) { EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess); }
  }
};

TEST_F(CaptureTest, AStreamCapturesFromBeginToEnd)
{
  EXPECT_TRUE(query_capture(stream.value()).is_none());
  begin(stream);
  auto const first = query_capture(stream.value());
  EXPECT_EQ(first.status, capture_status::active);
  EXPECT_TRUE(first.is_capturing());
  end(stream);
  EXPECT_TRUE(query_capture(stream.value()).is_none());
  begin(stream);
  EXPECT_NE(query_capture(stream.value()).id, first.id);
  end(stream);
}

TEST_F(CaptureTest, ABrokenCaptureIsStillOne)
{
  begin(stream);
  EXPECT_NE(cudaStreamSynchronize(stream.value()), cudaSuccess);
  EXPECT_EQ(query_capture(stream.value()).status, capture_status::invalidated);
  EXPECT_TRUE(query_capture(stream.value()).is_capturing());
  end(stream, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, ABlockingCaptureBlocksTheLegacyStreamAndQueriesDoNotBreakIt)
{
  rmm::cuda_stream const blocking;
  begin(blocking);
  auto const state = query_capture(cudaStreamLegacy);
  EXPECT_EQ(state.status, capture_status::blocked);
  EXPECT_FALSE(state.is_capturing());
  EXPECT_FALSE(state.is_none());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  end(blocking);
}

TEST_F(CaptureTest, AnExemptThreadMayAllocateBesideAGlobalCapture)
{
  begin(stream);
  {
    capture_exemption const exemption;
    void* ptr{};
    EXPECT_EQ(cudaMalloc(&ptr, 256), cudaSuccess);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }
  end(stream);
}

TEST_F(CaptureTest, TheExemptionEndsWithTheObject)
{
  begin(stream);
  {
    capture_exemption const outer;
    capture_exemption const inner;
  }
  void* ptr{};
  EXPECT_EQ(cudaMalloc(&ptr, 256), cudaErrorStreamCaptureUnsupported);
  end(stream, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, NoEventIsRecordedInACapture)
{
  rmm::detail::owned_event event;
  begin(stream);
  EXPECT_FALSE(event.try_record(stream.value()));
  end(stream);
  EXPECT_TRUE(event.is_reached());
}

TEST_F(CaptureTest, TheDeviceIsNotSynchronisedWhileAKnownStreamCaptures)
{
  begin(stream);
  EXPECT_FALSE(rmm::detail::try_wait_for_device());
  end(stream);
  EXPECT_TRUE(rmm::detail::try_wait_for_device());
}

TEST_F(CaptureTest, TheDeviceIsNotSynchronisedWhileABlockingStreamCaptures)
{
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  begin(rmm::cuda_stream_view{foreign});
  EXPECT_FALSE(rmm::detail::try_wait_for_device());
  end(rmm::cuda_stream_view{foreign});
  EXPECT_TRUE(rmm::detail::try_wait_for_device());
  ASSERT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(CaptureTest, WaitingIsUnknownWhileAnotherThreadLocksTheKnownStreams)
{
  EXPECT_TRUE(rmm::detail::is_known_to_allow_waiting());
  std::promise<void> held;
  std::promise<void> looked;
  std::thread holder{[&] {
    rmm::detail::known_streams().with_known([&](auto const&) {
      held.set_value();
      looked.get_future().wait();
    });
  }};
  held.get_future().wait();
  EXPECT_FALSE(rmm::detail::is_known_to_allow_waiting());
  looked.set_value();
  EXPECT_TRUE(rmm::detail::may_wait_for_device());  // waits until the lock is free
  holder.join();
}

TEST_F(CaptureTest, WaitingIsNotAllowedWhileAKnownStreamCaptures)
{
  begin(stream);
  EXPECT_FALSE(rmm::detail::is_known_to_allow_waiting());
  EXPECT_FALSE(rmm::detail::may_wait_for_device());
  end(stream);
  EXPECT_TRUE(rmm::detail::is_known_to_allow_waiting());
}

TEST_F(CaptureTest, AnAnnouncedCaptureIsFoundFromEachOfItsStreams)
{
  rmm::cuda_stream const other{rmm::cuda_stream::flags::non_blocking};
  cudaEvent_t event{};
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  auto& captures = announced_captures();
  capture_announcement announcement;
  announcement.stream = stream.value();
  announcement.memory = captures.new_memory();
  captures.add(announcement);  // before the capture begins
  begin(stream);
  ASSERT_EQ(cudaEventRecord(event, stream.value()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other.value(), event, 0), cudaSuccess);
  auto const found = captures.find(other.value(), query_capture(other.value()));
  EXPECT_EQ(found.memory, announcement.memory);
  EXPECT_EQ(found.capture, query_capture(stream.value()).id);
  EXPECT_FALSE(found.is_shared);
  ASSERT_EQ(cudaEventRecord(event, other.value()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream.value(), event, 0), cudaSuccess);
  end(stream);
  captures.remove(announcement);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(CaptureTest, AnUnannouncedCaptureIsNotFound)
{
  rmm::cuda_stream const other{rmm::cuda_stream::flags::non_blocking};
  auto& captures = announced_captures();
  capture_announcement announcement;
  announcement.stream = other.value();
  announcement.memory = captures.new_memory();
  captures.add(announcement);
  begin(stream);
  EXPECT_EQ(captures.find(stream.value(), query_capture(stream.value())).memory, 0U);
  end(stream);
  captures.remove(announcement);
}

TEST_F(CaptureTest, AListenerHearsOfTheFirstAnnouncementAndOfTheEndOfTheLast)
{
  struct listener : capture_listener {
    std::vector<bool> heard;
  } mine;
  mine.captures_are_announced = [](capture_listener& self, bool any) noexcept {
    static_cast<listener&>(self).heard.push_back(any);
  };
  auto& captures = announced_captures();
  captures.add(mine);
  capture_announcement first;
  capture_announcement second;
  first.stream  = stream.value();
  second.stream = stream.value();
  captures.add(first);
  captures.add(second);
  EXPECT_TRUE(captures.any());
  captures.remove(first);
  captures.remove(second);
  captures.remove(mine);
  captures.add(first);
  captures.remove(first);
  EXPECT_FALSE(captures.any());
  EXPECT_EQ(mine.heard, (std::vector<bool>{false, true, false}));
}

TEST_F(CaptureTest, AListenerHearsOfTheEndOfAMemory)
{
  struct listener : capture_listener {
    std::uint64_t ended{};
  } mine;
  mine.captures_are_announced = [](capture_listener&, bool) noexcept {};
  mine.graph_memory_ends      = [](capture_listener& self, rmm::detail::graph_memory_end const& end) noexcept {
    static_cast<listener&>(self).ended = end.memory;
  };
  auto& captures = announced_captures();
  captures.add(mine);
  auto const memory = captures.new_memory();
  EXPECT_NE(captures.new_memory(), memory);
  captures.end_memory({memory, false, nullptr});
  captures.remove(mine);
  EXPECT_EQ(mine.ended, memory);
}

}  // namespace
