// SPDX-License-Identifier: Apache-2.0

#include "support.hpp"

#include <thread>

namespace cudasim_tests {
namespace {

class CaptureTest : public Stepped {
 protected:
  static cudaStreamCaptureStatus status(cudaStream_t s)
  {
    auto result = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(s, &result), cudaSuccess);
    return result;
  }

  /// Ends a capture that is expected to fail with `expected`.
  static void end_failing(cudaStream_t s, cudaError_t expected)
  {
    auto graph = reinterpret_cast<cudaGraph_t>(1);
    EXPECT_EQ(cudaStreamEndCapture(s, &graph), expected);
    EXPECT_EQ(graph, nullptr);
    cudaGetLastError();
  }
};

TEST_F(CaptureTest, WorkIsRecordedAndDoesNotRun)
{
  scoped_stream const s;
  int ran = 0;
  EXPECT_EQ(status(s), cudaStreamCaptureStatusNone);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(status(s), cudaStreamCaptureStatusActive);
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { ++ran; }), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 0U);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  EXPECT_EQ(status(s), cudaStreamCaptureStatusNone);
  cudasim::run_until_idle();
  EXPECT_EQ(ran, 0);
  ASSERT_NE(graph, nullptr);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CaptureTest, EventsCarryTheCaptureToAnotherStreamAndBack)
{
  scoped_stream const origin;
  scoped_stream const branch;
  scoped_event const fork;
  scoped_event const join;
  ASSERT_EQ(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudasim::launch(origin, {}, {}), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(fork, origin), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(branch, fork, 0), cudaSuccess);
  EXPECT_EQ(status(branch), cudaStreamCaptureStatusActive);
  ASSERT_EQ(cudasim::launch(branch, {}, {}), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(join, branch), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(origin, join, 0), cudaSuccess);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(origin, &graph), cudaSuccess);
  EXPECT_EQ(status(branch), cudaStreamCaptureStatusNone);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CaptureTest, ABranchThatIsNotJoinedIsAnError)
{
  scoped_stream const origin;
  scoped_stream const branch;
  scoped_event const fork;
  ASSERT_EQ(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(fork, origin), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(branch, fork, 0), cudaSuccess);
  ASSERT_EQ(cudasim::launch(branch, {}, {}), cudaSuccess);
  end_failing(origin, cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(status(branch), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureTest, OnlyTheStreamItBeganOnEndsIt)
{
  scoped_stream const origin;
  scoped_stream const branch;
  scoped_event const fork;
  ASSERT_EQ(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(fork, origin), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(branch, fork, 0), cudaSuccess);
  end_failing(branch, cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(status(origin), cudaStreamCaptureStatusInvalidated);
  end_failing(origin, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, OnlyTheThreadThatBeganEndsItUnlessRelaxed)
{
  scoped_stream const s;
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  std::thread{[&] { end_failing(s, cudaErrorStreamCaptureWrongThread); }}.join();
  EXPECT_EQ(status(s), cudaStreamCaptureStatusNone);  // the attempt ends the capture
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  std::thread{[&] {
    ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }}.join();
}

TEST_F(CaptureTest, BeginAndEndHaveToAlternate)
{
  scoped_stream const s;
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 2U);
  cudaGetLastError();
}

TEST_F(CaptureTest, TheLegacyStreamCannotBeCaptured)
{
  EXPECT_EQ(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 1U);
  cudaGetLastError();
}

TEST_F(CaptureTest, TheLegacyStreamIsBlockedWhileABlockingStreamCaptures)
{
  scoped_stream const s{cudaStreamDefault};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaStreamCaptureStatus answer{};
  EXPECT_EQ(cudaStreamIsCapturing(cudaStreamLegacy, &answer), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(status(s), cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudasim::launch(cudaStreamLegacy, {}, {}), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(status(s), cudaStreamCaptureStatusInvalidated);
  end_failing(s, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, ANonBlockingCaptureLeavesTheLegacyStreamAlone)
{
  scoped_stream const s{cudaStreamNonBlocking};
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudasim::launch(cudaStreamLegacy, {}, {}), cudaSuccess);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  cudasim::run_until_idle();
}

TEST_F(CaptureTest, WaitingForTheStreamInvalidatesIt)
{
  scoped_stream const s;
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
  end_failing(s, cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorStreamCaptureUnsupported);
  end_failing(s, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, ACapturedEventCannotBeAskedOrWaitedForOnTheHost)
{
  scoped_stream const s;
  scoped_event const e;
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(e), cudaErrorCapturedEvent);
  end_failing(s, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, WorkFromOutsideCannotBeWaitedFor)
{
  scoped_stream const outside;
  scoped_stream const s;
  scoped_event const e;
  ASSERT_EQ(cudaEventRecord(e, outside), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(s, e, 0), cudaErrorStreamCaptureIsolation);
  end_failing(s, cudaErrorStreamCaptureInvalidated);
  cudasim::run_until_idle();
}

TEST_F(CaptureTest, TwoCapturesDoNotMerge)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e;
  ASSERT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(b, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b, e, 0), cudaErrorStreamCaptureMerge);
  end_failing(a, cudaErrorStreamCaptureInvalidated);
  end_failing(b, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, UnsafeCallsAreForbiddenAsTheModesSay)
{
  scoped_stream const s;
  scoped_event const e;
  auto const query           = [&] { return cudaEventQuery(e); };
  auto const query_elsewhere = [&] {
    cudaError_t answer{};
    std::thread{[&] { answer = query(); }}.join();
    return answer;
  };
  cudaGraph_t graph{};

  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(query_elsewhere(), cudaErrorStreamCaptureUnsupported);
  end_failing(s, cudaErrorStreamCaptureInvalidated);

  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(query_elsewhere(), cudaSuccess);
  EXPECT_EQ(query(), cudaErrorStreamCaptureUnsupported);
  end_failing(s, cudaErrorStreamCaptureInvalidated);

  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(query_elsewhere(), cudaSuccess);
  EXPECT_EQ(query(), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CaptureTest, AThreadCanExemptItself)
{
  scoped_stream const s;
  scoped_event const e;
  auto mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 1U);
  cudaGetLastError();
}

TEST_F(CaptureTest, InfoTellsIdGraphAndDependencies)
{
  scoped_stream const s;
  cudaStreamCaptureStatus answer{};
  unsigned long long first{};
  unsigned long long second{};
  std::size_t count{99};
  cudaGraphNode_t const* dependencies{};
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamGetCaptureInfo(s, &answer, nullptr, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
  EXPECT_EQ(answer, cudaStreamCaptureStatusNone);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaStreamGetCaptureInfo(s, &answer, &first, &graph, &dependencies, nullptr, &count), cudaSuccess);
  EXPECT_EQ(answer, cudaStreamCaptureStatusActive);
  EXPECT_EQ(count, 0U);
  EXPECT_NE(graph, nullptr);
  ASSERT_EQ(cudasim::launch(s, {}, {}), cudaSuccess);
  ASSERT_EQ(cudasim::launch(s, {}, {}), cudaSuccess);
  ASSERT_EQ(cudaStreamGetCaptureInfo(s, &answer, nullptr, nullptr, &dependencies, nullptr, &count), cudaSuccess);
  ASSERT_EQ(count, 1U);
  EXPECT_NE(dependencies[0], nullptr);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaStreamGetCaptureInfo(s, &answer, &second, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
  EXPECT_NE(first, second);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CaptureTest, NullOutputsAndUnknownModesAreInvalid)
{
  scoped_stream const s;
  EXPECT_EQ(cudaStreamBeginCapture(s, static_cast<cudaStreamCaptureMode>(3)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamIsCapturing(s, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamGetCaptureInfo(s, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 3U);
  cudaGetLastError();
}

TEST_F(CaptureTest, InfoLeavesOutAGraphThatIsNotRequested)
{
  scoped_stream const s;
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudasim::launch(s, {}, {}), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(s, nullptr), cudaSuccess);
  EXPECT_EQ(status(s), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureTest, DestroyingTheStreamEndsTheCapture)
{
  cudaStream_t s{};
  scoped_event const e;
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);  // no capture forbids it now
}

}  // namespace
}  // namespace cudasim_tests
