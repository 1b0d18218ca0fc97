// SPDX-License-Identifier: Apache-2.0

#include "support.hpp"

#include <thread>

namespace cudasim_tests {
namespace {

using EventTest = Stepped;

TEST_F(EventTest, IsReadyBeforeItIsRecorded)
{
  scoped_event const e;
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
}

TEST_F(EventTest, IsReadyWhenTheWorkBeforeItIsDone)
{
  scoped_stream const s;
  scoped_event const e;
  int ran = 0;
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { ++ran; }), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { ++ran; }), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
  cudasim::run_until_idle();
  cudaGetLastError();
}

TEST_F(EventTest, RecordingAgainMovesIt)
{
  scoped_stream const s;
  scoped_event const e;
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  ASSERT_EQ(cudasim::launch(s, {}, {}), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
  ASSERT_EQ(cudaEventRecordWithFlags(e, s, cudaEventRecordDefault), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorNotReady);
  cudasim::run_until_idle();
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
  cudaGetLastError();
}

TEST_F(EventTest, MayBeDestroyedWhileItsRecordIsPendingAndItsHandleComesBack)
{
  scoped_stream const s;
  cudaEvent_t e{};
  ASSERT_EQ(cudaEventCreate(&e), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(e), cudaSuccess);
  cudaEvent_t again{};
  ASSERT_EQ(cudaEventCreate(&again), cudaSuccess);
  EXPECT_EQ(again, e);
  EXPECT_EQ(cudaEventQuery(again), cudaSuccess);
  cudasim::run_until_idle();
  ASSERT_EQ(cudaEventDestroy(again), cudaSuccess);
}

TEST_F(EventTest, OutlivesTheStreamItWasRecordedOn)
{
  scoped_event const e;
  int ran = 0;
  {
    scoped_stream const s;
    ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { ++ran; }), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  }
  EXPECT_EQ(cudaEventQuery(e), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
  EXPECT_EQ(ran, 1);
  cudaGetLastError();
}

TEST_F(EventTest, AStaleHandleIsMisuse)
{
  cudaEvent_t e{};
  ASSERT_EQ(cudaEventCreate(&e), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(e), cudaSuccess);
  float ms{};
  EXPECT_EQ(cudaEventRecord(e, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventSynchronize(e), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(e), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, e, 0), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventElapsedTime(&ms, e, e), cudaErrorInvalidResourceHandle);
  EXPECT_GE(take_count(cudasim::violation::kind::misuse), 6U);
  cudaGetLastError();
}

TEST_F(EventTest, BelongsToOneDevice)
{
  scoped_event const e;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(e, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, e, 0), cudaSuccess);  // waiting works across devices
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 1U);
  cudaGetLastError();
}

TEST_F(EventTest, FlagsAreChecked)
{
  cudaEvent_t e{};
  EXPECT_EQ(cudaEventCreate(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreateWithFlags(&e, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreateWithFlags(&e, cudaEventInterprocess), cudaErrorInvalidValue);
  scoped_event const good;
  EXPECT_EQ(cudaEventRecordWithFlags(good, nullptr, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, good, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 5U);
  cudaGetLastError();
}

TEST_F(EventTest, ElapsedTimeNeedsTwoTimedRecordsOfOneDevice)
{
  scoped_event const timed;
  scoped_event const unrecorded;
  scoped_event const untimed{cudaEventDisableTiming};
  float ms{};
  ASSERT_EQ(cudaEventRecord(timed, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed, nullptr), cudaSuccess);
  cudasim::run_until_idle();
  EXPECT_EQ(cudaEventElapsedTime(&ms, timed, unrecorded), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventElapsedTime(&ms, untimed, timed), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventElapsedTime(nullptr, timed, timed), cudaErrorInvalidValue);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    scoped_event const elsewhere;
    ASSERT_EQ(cudaEventRecord(elsewhere, nullptr), cudaSuccess);
    cudasim::run_until_idle();
    EXPECT_EQ(cudaEventElapsedTime(&ms, timed, elsewhere), cudaErrorInvalidResourceHandle);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 4U);
  cudaGetLastError();
}

/// Work of 10 us on one stream, then on another that waits for it. The total time must not depend on whether the first
/// was done when the second was submitted, nor on later work of the first stream.
class EventTimeTest : public Simulated, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override
  {
    Simulated::SetUp();
    ASSERT_EQ(cudaEventCreate(&begin_), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&end_), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&first_), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(begin_, first_), cudaSuccess);
    if (!first_is_done()) { cudasim::hold(first_); }
    work(first_);
  }

  void TearDown() override
  {
    if (first_ != nullptr) { EXPECT_EQ(cudaStreamDestroy(first_), cudaSuccess); }
    EXPECT_EQ(cudaEventDestroy(begin_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(end_), cudaSuccess);
    Simulated::TearDown();
  }

  [[nodiscard]] static bool first_is_done() { return GetParam(); }

  static void work(cudaStream_t s)
  {
    ASSERT_EQ(cudasim::launch(s, {}, {}, [] {}, {"work", 10'000}), cudaSuccess);
  }

  /// Brings the first stream to the parameter's state, runs the second stream's work, and returns the total time.
  [[nodiscard]] float microseconds_with(cudaStream_t second)
  {
    work(second);
    EXPECT_EQ(cudaEventRecord(end_, second), cudaSuccess);
    if (!first_is_done()) { cudasim::let_go(first_); }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    float milliseconds = 0;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin_, end_), cudaSuccess);
    return milliseconds * 1'000;
  }

  void finish_first()
  {
    if (first_is_done()) { cudasim::run_until_idle(); }
  }

  cudaStream_t first_{};
  cudaEvent_t begin_{};
  cudaEvent_t end_{};
};

INSTANTIATE_TEST_SUITE_P(, EventTimeTest, ::testing::Bool(), [](auto const& p) {
  return p.param ? "Done" : "UnderWay";
});

TEST_P(EventTimeTest, TheDefaultStreamBeginsWhenTheBlockingStreamsEnd)
{
  finish_first();
  EXPECT_FLOAT_EQ(microseconds_with(nullptr), 20);
}

TEST_P(EventTimeTest, AStreamBeginsWhenTheEventWasReachedAndNotWhenItsStreamIsDone)
{
  scoped_stream const second;
  scoped_event const reached{cudaEventDisableTiming};
  ASSERT_EQ(cudaEventRecord(reached, first_), cudaSuccess);
  work(first_);
  finish_first();
  ASSERT_EQ(cudaStreamWaitEvent(second, reached, 0), cudaSuccess);
  EXPECT_FLOAT_EQ(microseconds_with(second), 20);
}

TEST_P(EventTimeTest, ABlockingStreamBeginsWhenTheDefaultStreamEnds)
{
  scoped_stream const second{cudaStreamDefault};
  work(nullptr);
  finish_first();
  EXPECT_FLOAT_EQ(microseconds_with(second), 30);
}

TEST_P(EventTimeTest, ADestroyedStreamTakesItsTimeToo)
{
  if (first_is_done()) { cudasim::run_until_idle(); }
  ASSERT_EQ(cudaStreamDestroy(first_), cudaSuccess);
  first_ = cudaStream_t{};
  work(nullptr);
  ASSERT_EQ(cudaEventRecord(end_, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  float milliseconds = 0;
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, begin_, end_), cudaSuccess);
  EXPECT_FLOAT_EQ(milliseconds, 0.02F);
}

TEST_P(EventTimeTest, AWaitOfTheHostEndsWhenTheEventWasReached)
{
  scoped_event const reached{cudaEventDisableTiming};
  ASSERT_EQ(cudaEventRecord(reached, first_), cudaSuccess);
  work(first_);
  if (!first_is_done()) { cudasim::let_go(first_); }
  finish_first();
  auto const before = cudasim::now_ns();
  ASSERT_EQ(cudaEventSynchronize(reached), cudaSuccess);
  EXPECT_EQ(cudasim::now_ns() - before, 10'000U);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(cudasim::now_ns() - before, 20'000U);
}

using EventTimeoutTest = Simulated;

TEST_F(EventTimeoutTest, AnEventOfAHeldStreamIsNotReadyUntilItIsLetGo)
{
  scoped_stream const s;
  scoped_event const e;
  cudasim::hold(s);
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorNotReady);
  std::thread waiter{[&] { EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess); }};
  cudasim::let_go(s);
  waiter.join();
  cudaGetLastError();
}

}  // namespace
}  // namespace cudasim_tests
