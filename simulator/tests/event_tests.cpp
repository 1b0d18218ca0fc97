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
