// SPDX-License-Identifier: Apache-2.0
//
// What streams, events and captures do, asked through the CUDA API alone. The simulator and a real GPU have to pass the
// same tests.

#include "gate.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

/// Host functions append a letter each.
struct journal {
  std::string text;

  struct entry {
    journal* to;
    char letter;
  };

  void enqueue(cudaStream_t s, char letter)
  {
    ASSERT_EQ(cudaLaunchHostFunc(
                s,
                [](void* p) {
                  auto const* e = static_cast<entry*>(p);
                  std::lock_guard<std::mutex> const lock{e->to->mutex_};
                  e->to->text += e->letter;
                  delete e;
                },
                new entry{this, letter}),
              cudaSuccess);
  }

 private:
  std::mutex mutex_;
};

class StreamBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&a_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&b_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&blocking_, cudaStreamDefault), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&e_), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  void TearDown() override
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (auto s : {a_, b_, blocking_}) { EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess); }
    EXPECT_EQ(cudaEventDestroy(e_), cudaSuccess);
    cudaGetLastError();
  }

  cudaStream_t a_{};
  cudaStream_t b_{};
  cudaStream_t blocking_{};
  cudaEvent_t e_{};
};

TEST_F(StreamBehaviour, ABusyStreamIsNotReady)
{
  gate g;
  g.enqueue(a_);
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(b_), cudaSuccess);
  g.open();
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a_), cudaSuccess);
}

TEST_F(StreamBehaviour, NotReadyIsAnAnswerAndNotTheLastError)
{
  gate g;
  cudaGetLastError();
  g.enqueue(a_);
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorNotReady);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(StreamBehaviour, AnEventIsReadyWhenTheWorkBeforeItIsDone)
{
  gate g;
  EXPECT_EQ(cudaEventQuery(e_), cudaSuccess);
  g.enqueue(a_);
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e_), cudaErrorNotReady);
  g.open();
  EXPECT_EQ(cudaEventSynchronize(e_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e_), cudaSuccess);
}

TEST_F(StreamBehaviour, AStreamWaitsForAnEventOfAnother)
{
  gate g;
  journal j;
  g.enqueue(a_);
  j.enqueue(a_, 'a');
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b_, e_, 0), cudaSuccess);
  j.enqueue(b_, 'b');
  EXPECT_EQ(cudaStreamQuery(b_), cudaErrorNotReady);
  g.open();
  ASSERT_EQ(cudaStreamSynchronize(b_), cudaSuccess);
  EXPECT_EQ(j.text, "ab");
}

TEST_F(StreamBehaviour, AWaitTakesTheRecordOfItsTime)
{
  gate first;
  gate second;
  first.enqueue(a_);
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b_, e_, 0), cudaSuccess);
  second.enqueue(a_);
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  first.open();
  EXPECT_EQ(cudaStreamSynchronize(b_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e_), cudaErrorNotReady);
}

TEST_F(StreamBehaviour, AnUnrecordedEventIsNotWaitedFor)
{
  ASSERT_EQ(cudaStreamWaitEvent(b_, e_, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b_), cudaSuccess);
}

TEST_F(StreamBehaviour, TheLegacyStreamWaitsForBlockingStreams)
{
  gate g;
  journal j;
  g.enqueue(blocking_);
  j.enqueue(blocking_, 'a');
  j.enqueue(cudaStreamLegacy, 'b');
  j.enqueue(blocking_, 'c');
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  g.open();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(j.text, "abc");
}

TEST_F(StreamBehaviour, TheLegacyStreamIgnoresNonBlockingStreams)
{
  gate g;
  g.enqueue(a_);
  ASSERT_EQ(cudaEventRecord(e_, cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(e_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorNotReady);
}

TEST_F(StreamBehaviour, TheQueryOfTheLegacyStreamSeesBlockingStreams)
{
  gate g;
  g.enqueue(blocking_);
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
}

TEST_F(StreamBehaviour, ThePerThreadStreamIsBlocking)
{
  gate g;
  journal j;
  g.enqueue(cudaStreamPerThread);
  j.enqueue(cudaStreamPerThread, 'a');
  j.enqueue(cudaStreamLegacy, 'b');
  g.open();
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(j.text, "ab");
}

// What a thread frees when it ends waits for such an event.
TEST_F(StreamBehaviour, ThePerThreadStreamLivesUntilObjectsMadeAfterItsFirstUseAreGone)
{
  struct last_use {
    std::promise<void>* recorded;
    cudaEvent_t event;
    ~last_use()
    {
      if (recorded == nullptr) { return; }
      EXPECT_EQ(cudaEventRecord(event, cudaStreamPerThread), cudaSuccess);
      EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);  // it comes after what the thread enqueued
      recorded->set_value();
    }
  };
  gate g;
  std::promise<void> recorded;
  std::thread thread{[&] {
    g.enqueue(cudaStreamPerThread);
    thread_local last_use object{};
    object.recorded = &recorded;
    object.event    = e_;
  }};
  recorded.get_future().wait();
  EXPECT_EQ(cudaEventQuery(e_), cudaErrorNotReady);
  g.open();
  thread.join();
  EXPECT_EQ(cudaEventSynchronize(e_), cudaSuccess);
}

TEST_F(StreamBehaviour, ThePerThreadStreamsOfTwoThreadsAreTwo)
{
  gate g;
  g.enqueue(cudaStreamPerThread);
  std::thread{[] { EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaSuccess); }}.join();
}

TEST_F(StreamBehaviour, ADestroyedStreamFinishesItsWork)
{
  gate g;
  journal j;
  cudaStream_t s{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  g.enqueue(s);
  j.enqueue(s, 'a');
  ASSERT_EQ(cudaEventRecord(e_, s), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  g.open();
  ASSERT_EQ(cudaEventSynchronize(e_), cudaSuccess);
  EXPECT_EQ(j.text, "a");
}

TEST_F(StreamBehaviour, StreamsHaveIdsFlagsPrioritiesAndADevice)
{
  unsigned long long id_a{};
  unsigned long long id_b{};
  unsigned flags{};
  int priority{};
  int least{};
  int greatest{};
  ASSERT_EQ(cudaStreamGetId(a_, &id_a), cudaSuccess);
  ASSERT_EQ(cudaStreamGetId(b_, &id_b), cudaSuccess);
  EXPECT_NE(id_a, id_b);
  ASSERT_EQ(cudaStreamGetFlags(a_, &flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  ASSERT_EQ(cudaStreamGetFlags(blocking_, &flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamDefault));
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_LT(greatest, least);
  cudaStream_t urgent{};
  ASSERT_EQ(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest - 100), cudaSuccess);
  ASSERT_EQ(cudaStreamGetPriority(urgent, &priority), cudaSuccess);
  EXPECT_EQ(priority, greatest);
  ASSERT_EQ(cudaStreamDestroy(urgent), cudaSuccess);
#if CUDART_VERSION >= 12080
  int device{-1};
  ASSERT_EQ(cudaStreamGetDevice(a_, &device), cudaSuccess);
  EXPECT_EQ(device, 0);
#endif
}

/// Pools ask this while the caller may hold a lock that the thread inside the driver, or a host function before it, waits for.
TEST_F(StreamBehaviour, TellsItsIdAndWhetherItCapturesWhileAThreadWaitsToUseIt)
{
  void* memory{};
  ASSERT_EQ(cudaMalloc(&memory, 256), cudaSuccess);
  std::vector<std::function<void(std::atomic<int>&)>> const uses{
    [&](std::atomic<int>& launches) {  // a GPU's queue has room for about a thousand
      while (launches < 4000) {
        EXPECT_EQ(cudaMemsetAsync(memory, 0, 256, a_), cudaSuccess);
        ++launches;
      }
    },
    [&](std::atomic<int>&) { EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess); },
    [](std::atomic<int>&) { EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess); },
    [](std::atomic<int>&) {
      void* freed{};
      EXPECT_EQ(cudaMalloc(&freed, 256), cudaSuccess);
      EXPECT_EQ(cudaFree(freed), cudaSuccess);
    },
  };
  for (auto const& use : uses) {
    gate g;
    g.enqueue(a_);
    std::atomic<int> launches{-1};
    std::thread user{[&] {
      launches = 0;
      use(launches);
    }};
    for (int seen = -2; seen != launches;) {  // until it waits
      seen = launches;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    auto asked = std::async(std::launch::async, [&] {
      cudaStreamCaptureStatus status{};
      unsigned long long id{};
      EXPECT_EQ(cudaStreamIsCapturing(a_, &status), cudaSuccess);
      EXPECT_EQ(status, cudaStreamCaptureStatusNone);
      EXPECT_EQ(cudaStreamGetId(a_, &id), cudaSuccess);
    });
    EXPECT_EQ(asked.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    g.open();
    user.join();
    asked.wait();
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(StreamBehaviour, TheIdsOfTheDefaultStreamsStayTheSame)
{
  unsigned long long null_id{};
  unsigned long long legacy_id{};
  unsigned long long per_thread_id{};
  ASSERT_EQ(cudaStreamGetId(nullptr, &null_id), cudaSuccess);
  ASSERT_EQ(cudaStreamGetId(cudaStreamLegacy, &legacy_id), cudaSuccess);
  ASSERT_EQ(cudaStreamGetId(cudaStreamPerThread, &per_thread_id), cudaSuccess);
#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
  EXPECT_EQ(null_id, legacy_id);
#else
  EXPECT_EQ(null_id, per_thread_id);
#endif
  EXPECT_NE(legacy_id, per_thread_id);
}

TEST_F(StreamBehaviour, WrongArgumentsAreErrors)
{
  cudaStream_t s{};
  cudaEvent_t e{};
  EXPECT_EQ(cudaStreamCreate(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamCreateWithFlags(&s, 0x80), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreate(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreateWithFlags(&e, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaLaunchHostFunc(a_, nullptr, nullptr), cudaErrorInvalidValue);
}

TEST_F(StreamBehaviour, ElapsedTimeNeedsTwoRecordedTimedEvents)
{
  cudaEvent_t untimed{};
  cudaEvent_t second{};
  float ms{-1};
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&second), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, e_, second), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed, a_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, e_, untimed), cudaErrorInvalidResourceHandle);
  {
    gate g;
    g.enqueue(a_);
    ASSERT_EQ(cudaEventRecord(second, a_), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, e_, second), cudaErrorNotReady);
  }
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, e_, second), cudaSuccess);
  EXPECT_GE(ms, 0.0F);
  ASSERT_EQ(cudaEventDestroy(untimed), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(second), cudaSuccess);
}

TEST_F(StreamBehaviour, CallbacksRunInOrderWithTheRest)
{
  journal j;
  j.enqueue(a_, 'a');
  ASSERT_EQ(cudaStreamAddCallback(
              a_, [](cudaStream_t, cudaError_t, void* p) { static_cast<journal*>(p)->text += 'c'; }, &j, 0),
            cudaSuccess);
  j.enqueue(a_, 'b');
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(j.text, "acb");
}

/// What calls of CUDA answer inside a host function.
struct answers_inside {
  cudaStream_t stream;
  cudaEvent_t reached;
  cudaError_t allocate, query, record, attribute, current, event_query, event_wait, count, last;
  void ask()
  {
    void* memory = nullptr;
    int value    = 0;
    allocate     = cudaMalloc(&memory, 64);
    last         = cudaGetLastError();
    query        = cudaStreamQuery(stream);
    record       = cudaEventRecord(reached, stream);
    attribute    = cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0);
    current      = cudaGetDevice(&value);
    cudaGetLastError();
    event_query = cudaEventQuery(reached);
    event_wait  = cudaEventSynchronize(reached);
    count       = cudaGetDeviceCount(&value);
  }
  void check() const
  {
    EXPECT_EQ(allocate, cudaErrorNotPermitted);
    EXPECT_EQ(last, cudaErrorNotPermitted);
    EXPECT_EQ(query, cudaErrorNotPermitted);
    EXPECT_EQ(record, cudaErrorNotPermitted);
    EXPECT_EQ(attribute, cudaErrorNotPermitted);
    EXPECT_EQ(current, cudaErrorNotPermitted);
    EXPECT_EQ(event_query, cudaSuccess);
    EXPECT_EQ(event_wait, cudaSuccess);
    EXPECT_EQ(count, cudaSuccess);
  }
};

TEST_F(StreamBehaviour, HostFunctionsMustNotCallCuda)
{
  ASSERT_EQ(cudaEventRecord(e_, b_), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(e_), cudaSuccess);
  answers_inside function{b_, e_, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  auto callback = function;
  ASSERT_EQ(cudaLaunchHostFunc(
              a_, [](void* p) { static_cast<answers_inside*>(p)->ask(); }, &function),
            cudaSuccess);
  ASSERT_EQ(cudaStreamAddCallback(
              a_, [](cudaStream_t, cudaError_t, void* p) { static_cast<answers_inside*>(p)->ask(); }, &callback, 0),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  function.check();
  callback.check();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// ---------------------------------------------------------------------------------------------------------------

class CaptureBehaviour : public StreamBehaviour {
 protected:
  static cudaStreamCaptureStatus status(cudaStream_t s)
  {
    auto result = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(s, &result), cudaSuccess);
    return result;
  }

  static void end(cudaStream_t s, cudaError_t expected)
  {
    cudaGraph_t graph{};
    EXPECT_EQ(cudaStreamEndCapture(s, &graph), expected);
    if (graph != nullptr) { EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess); }
    cudaGetLastError();
  }
};

TEST_F(CaptureBehaviour, RecordsWorkAndAGraphRunsIt)
{
  int ran = 0;
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
  ASSERT_EQ(cudaLaunchHostFunc(
              a_, [](void* p) { ++*static_cast<int*>(p); }, &ran),
            cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph), cudaSuccess);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusNone);
  EXPECT_EQ(ran, 0);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, b_), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, b_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(b_), cudaSuccess);
  EXPECT_EQ(ran, 2);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CaptureBehaviour, TheLegacyStreamCannotBeCaptured)
{
  EXPECT_EQ(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeRelaxed), cudaErrorStreamCaptureUnsupported);
}

TEST_F(CaptureBehaviour, BeginTwiceAndEndWithoutBeginAreErrors)
{
  end(a_, cudaErrorIllegalState);
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  end(a_, cudaSuccess);
}

TEST_F(CaptureBehaviour, SynchronizingInvalidates)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusInvalidated);
  end(a_, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureBehaviour, QueryingInvalidates)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusInvalidated);
  end(a_, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureBehaviour, DeviceSynchronizeInvalidates)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  end(a_, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureBehaviour, CudaMallocIsForbiddenUnlessRelaxed)
{
  void* p{};
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 256), cudaErrorStreamCaptureUnsupported);
  end(a_, cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 256), cudaSuccess);
  end(a_, cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST_F(CaptureBehaviour, AThreadCanExemptItself)
{
  void* p{};
  auto mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaMalloc(&p, 256), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  end(a_, cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST_F(CaptureBehaviour, EventsCarryTheCaptureAndBranchesHaveToBeJoined)
{
  cudaEvent_t join{};
  ASSERT_EQ(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), cudaSuccess);
  journal j;
  for (bool const joined : {true, false}) {
    ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(b_, e_, 0), cudaSuccess);
    EXPECT_EQ(status(b_), cudaStreamCaptureStatusActive);
    ASSERT_EQ(cudaLaunchHostFunc(
                b_, [](void*) {}, nullptr),
              cudaSuccess);
    if (joined) {
      ASSERT_EQ(cudaEventRecord(join, b_), cudaSuccess);
      ASSERT_EQ(cudaStreamWaitEvent(a_, join, 0), cudaSuccess);
    }
    end(a_, joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(status(b_), cudaStreamCaptureStatusNone);
  }
  ASSERT_EQ(cudaEventDestroy(join), cudaSuccess);
}

TEST_F(CaptureBehaviour, AStreamThatEndsInItLeavesItsNodes)
{
  journal j;
  for (bool const joined : {true, false}) {
    cudaStream_t ends{};
    cudaEvent_t join{};
    cudaGraph_t graph{};
    ASSERT_EQ(cudaStreamCreateWithFlags(&ends, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(ends, e_, 0), cudaSuccess);
    ASSERT_EQ(cudaLaunchHostFunc(
                ends, [](void*) {}, nullptr),
              cudaSuccess);
    if (joined) { ASSERT_EQ(cudaEventRecord(join, ends), cudaSuccess); }
    EXPECT_EQ(cudaStreamDestroy(ends), cudaSuccess);
    EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
    if (joined) {
      ASSERT_EQ(cudaStreamWaitEvent(a_, join, 0), cudaSuccess);
    }  // it carries the nodes of the stream that is gone
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph), joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    if (graph != nullptr) {
      std::size_t nodes{};
      EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
      EXPECT_EQ(nodes, 1U);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    EXPECT_EQ(graph != nullptr, joined);
    ASSERT_EQ(cudaEventDestroy(join), cudaSuccess);
  }
}

TEST_F(CaptureBehaviour, OnlyTheOriginEndsTheCapture)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b_, e_, 0), cudaSuccess);
  end(b_, cudaErrorStreamCaptureUnmatched);
  end(a_, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureBehaviour, OnlyTheThreadThatBeganEndsIt)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  std::thread{[this] { end(a_, cudaErrorStreamCaptureWrongThread); }}.join();
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusNone);  // the attempt ended it, without a graph
  end(a_, cudaErrorIllegalState);
}

TEST_F(CaptureBehaviour, CapturesDoNotMergeAndDoNotDependOnOtherWork)
{
  ASSERT_EQ(cudaEventRecord(e_, blocking_), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(a_, e_, 0), cudaErrorStreamCaptureIsolation);
  end(a_, cudaErrorStreamCaptureInvalidated);

  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(b_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b_, e_, 0), cudaErrorStreamCaptureMerge);
  end(a_, cudaErrorStreamCaptureInvalidated);
  end(b_, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureBehaviour, ACapturedEventCannotBeQueried)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(e_), cudaErrorCapturedEvent);
  end(a_, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureBehaviour, AnEventOfACaptureThatIsOverStandsForNothing)
{
  for (bool const fails : {false, true}) {
    ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(e_, a_), cudaSuccess);
    if (fails) { ASSERT_EQ(cudaStreamSynchronize(a_), cudaErrorStreamCaptureUnsupported); }
    end(a_, fails ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    EXPECT_EQ(cudaEventQuery(e_), cudaErrorInvalidValue);
    EXPECT_EQ(cudaEventSynchronize(e_), cudaErrorInvalidValue);
    EXPECT_EQ(cudaStreamWaitEvent(b_, e_, 0), cudaErrorInvalidValue);
    ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(a_, e_, 0), cudaErrorInvalidValue);
    end(a_, cudaErrorStreamCaptureInvalidated);
    ASSERT_EQ(cudaEventRecord(e_, b_), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(e_), cudaSuccess);
  }
  cudaGetLastError();
}

TEST_F(CaptureBehaviour, InfoLeavesOutAGraphThatIsNotRequested)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(a_, nullptr), cudaSuccess);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureBehaviour, AGlobalOneForbidsWaitsForOtherStreamsInAllThreads)
{
  ASSERT_EQ(cudaEventRecord(e_, b_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::function<cudaError_t()> const waits[]{[&] { return cudaStreamSynchronize(b_); },
                                             [&] { return cudaStreamSynchronize(blocking_); },
                                             [&] { return cudaStreamSynchronize(cudaStreamLegacy); },
                                             [&] { return cudaStreamQuery(b_); },
                                             [&] { return cudaEventQuery(e_); },
                                             [&] { return cudaEventSynchronize(e_); }};
  for (auto const mine :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    bool const forbidden = mine == cudaStreamCaptureModeGlobal;
    for (auto const& wait : waits) {
      ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal), cudaSuccess);
      std::thread{[&] {
        auto mode = mine;
        EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
        EXPECT_EQ(wait(), forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess) << mine << " " << &wait - waits;
      }}.join();
      end(a_, forbidden ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    }
  }
}

TEST_F(CaptureBehaviour, AWaitForTheLegacyStreamBreaksTheCaptureOfABlockingStream)
{
  for (auto const mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    for (auto* const wait : {&cudaStreamSynchronize, &cudaStreamQuery}) {
      ASSERT_EQ(cudaStreamBeginCapture(blocking_, mode), cudaSuccess);
      EXPECT_EQ(wait(cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
      end(blocking_, cudaErrorStreamCaptureInvalidated);
    }
  }
}

/// What is asked of a stream, but for its priority and whether it captures.
std::vector<std::function<cudaError_t(cudaStream_t)>> questions()
{
  return {[](cudaStream_t stream) {
            unsigned long long id{};
            return cudaStreamGetId(stream, &id);
          },
          [](cudaStream_t stream) {
            unsigned flags{};
            return cudaStreamGetFlags(stream, &flags);
          }};
}

TEST_F(CaptureBehaviour, AskingForTheIdOrTheFlagsOfItsStreamBreaksIt)
{
  for (auto const mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    for (auto const& ask : questions()) {
      int priority{};
      ASSERT_EQ(cudaStreamBeginCapture(a_, mode), cudaSuccess);
      EXPECT_EQ(ask(b_), cudaSuccess);
      EXPECT_EQ(cudaStreamGetPriority(a_, &priority), cudaSuccess);
      EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
      EXPECT_EQ(ask(a_), cudaErrorStreamCaptureUnsupported);
      end(a_, cudaErrorStreamCaptureInvalidated);
    }
  }
}

TEST_F(CaptureBehaviour, AQueryOfTheLegacyStreamBreaksTheCaptureOfABlockingStream)
{
  for (auto const& ask : questions()) {
    ASSERT_EQ(cudaStreamBeginCapture(blocking_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(ask(cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
    end(blocking_, cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(CaptureBehaviour, AGlobalOneForbidsNoWorkOnOtherStreams)
{
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread{[this] {
    EXPECT_EQ(cudaEventRecord(e_, b_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(blocking_, e_, 0), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(
                cudaStreamLegacy, [](void*) {}, nullptr),
              cudaSuccess);
    std::size_t free{};
    EXPECT_EQ(cudaMemGetInfo(&free, nullptr), cudaSuccess);
    cudaStream_t made{};
    EXPECT_EQ(cudaStreamCreate(&made), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(made), cudaSuccess);
  }}.join();
  end(a_, cudaSuccess);
}

TEST_F(CaptureBehaviour, TheLegacyStreamIsBlockedWhileABlockingStreamCaptures)
{
  ASSERT_EQ(cudaStreamBeginCapture(blocking_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaStreamCaptureStatus answer{};
  EXPECT_EQ(cudaStreamIsCapturing(cudaStreamLegacy, &answer), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(status(blocking_), cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaEventRecord(e_, cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
  end(blocking_, cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureBehaviour, InfoReturnsAnIdForEachCapture)
{
  unsigned long long first{};
  unsigned long long second{};
  cudaStreamCaptureStatus answer{};
  for (auto* const id : {&first, &second}) {
    ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
#if CUDART_VERSION >= 13000
    ASSERT_EQ(cudaStreamGetCaptureInfo(a_, &answer, id, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
#else
    ASSERT_EQ(cudaStreamGetCaptureInfo_v2(a_, &answer, id, nullptr, nullptr, nullptr), cudaSuccess);
#endif
    EXPECT_EQ(answer, cudaStreamCaptureStatusActive);
    end(a_, cudaSuccess);
  }
  EXPECT_NE(first, second);
}

// ---------------------------------------------------------------------------------------------------------------

/// Two devices, each with a stream, an event, and a thread that works with it.
class TwoDevicesBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    int count{};
    ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    if (count < 2) { GTEST_SKIP() << "needs two devices, there is one"; }
    for (int device = 0; device < 2; ++device) {
      ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream_[device], cudaStreamNonBlocking), cudaSuccess);
      ASSERT_EQ(cudaEventCreateWithFlags(&event_[device], cudaEventDisableTiming), cudaSuccess);
    }
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }

  void TearDown() override
  {
    if (IsSkipped()) { return; }
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (int device = 0; device < 2; ++device) {  // device 0 stays current
      EXPECT_EQ(cudaStreamSynchronize(stream_[device]), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(stream_[device]), cudaSuccess);
      EXPECT_EQ(cudaEventDestroy(event_[device]), cudaSuccess);
    }
    cudaGetLastError();
  }

  /// Work on the stream of a device that does not end before the gate opens.
  void enqueue(gate const& g, int device) const
  {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    g.enqueue(stream_[device]);
  }

  [[nodiscard]] static unsigned long long id_of(cudaStream_t stream)
  {
    unsigned long long id{};
    EXPECT_EQ(cudaStreamGetId(stream, &id), cudaSuccess);
    return id;
  }

  [[nodiscard]] static int device_of(void const* ptr)
  {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
    return attributes.device;
  }

  cudaStream_t stream_[2]{};
  cudaEvent_t event_[2]{};
};

#if CUDART_VERSION >= 12080

TEST_F(TwoDevicesBehaviour, AStreamTellsItsDeviceWhicheverIsCurrent)
{
  for (int current = 0; current < 2; ++current) {
    ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
    for (int device = 0; device < 2; ++device) {
      int answer{-1};
      EXPECT_EQ(cudaStreamGetDevice(stream_[device], &answer), cudaSuccess);
      EXPECT_EQ(answer, device);
    }
    for (cudaStream_t const stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
      int answer{-1};
      EXPECT_EQ(cudaStreamGetDevice(stream, &answer), cudaSuccess);
      EXPECT_EQ(answer, current);
    }
  }
}

#endif

TEST_F(TwoDevicesBehaviour, EachHasDefaultStreamsOfItsOwn)
{
  std::vector<unsigned long long> ids;
  for (int current = 0; current < 2; ++current) {
    ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
    for (cudaStream_t const stream : {cudaStreamLegacy, cudaStreamPerThread}) { ids.push_back(id_of(stream)); }
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) { EXPECT_NE(ids[i], ids[j]) << i << " and " << j; }
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(id_of(cudaStreamLegacy), ids[0]);
  EXPECT_EQ(id_of(cudaStreamPerThread), ids[1]);
}

TEST_F(TwoDevicesBehaviour, TheDefaultStreamsOfOneDoNotWaitForTheOther)
{
  for (cudaStream_t const stream : {cudaStreamLegacy, cudaStreamPerThread}) {
    gate g;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    g.enqueue(stream);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    g.open();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

TEST_F(TwoDevicesBehaviour, AnEventIsRecordedOnStreamsOfItsDeviceOnly)
{
  for (int current = 0; current < 2; ++current) {
    ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
    for (int device = 0; device < 2; ++device) {
      EXPECT_EQ(cudaEventRecord(event_[device], stream_[device]), cudaSuccess);
      EXPECT_EQ(cudaEventRecord(event_[device], stream_[1 - device]), cudaErrorInvalidResourceHandle);
      for (cudaStream_t const stream : {cudaStreamLegacy, cudaStreamPerThread}) {
        EXPECT_EQ(cudaEventRecord(event_[device], stream),
                  device == current ? cudaSuccess : cudaErrorInvalidResourceHandle);
      }
    }
  }
}

TEST_F(TwoDevicesBehaviour, AnEventIsAskedAndWaitedForWhicheverDeviceIsCurrent)
{
  for (int device = 0; device < 2; ++device) {
    gate g;
    auto const other = 1 - device;
    enqueue(g, device);
    ASSERT_EQ(cudaSetDevice(other), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event_[device], stream_[device]), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event_[device]), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamWaitEvent(stream_[other], event_[device], 0), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream_[other]), cudaErrorNotReady);
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);  // a stream of a device that is not current waits, too
    EXPECT_EQ(cudaStreamWaitEvent(stream_[other], event_[device], 0), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(other), cudaSuccess);
    g.open();
    EXPECT_EQ(cudaEventSynchronize(event_[device]), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event_[device]), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_[other]), cudaSuccess);
  }
}

TEST_F(TwoDevicesBehaviour, AStreamIsAskedAndWaitedForWhicheverDeviceIsCurrent)
{
  for (int device = 0; device < 2; ++device) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    auto const id = id_of(stream_[device]);
    gate g;
    enqueue(g, device);
    ASSERT_EQ(cudaSetDevice(1 - device), cudaSuccess);
    auto status = cudaStreamCaptureStatusActive;
    EXPECT_EQ(cudaStreamIsCapturing(stream_[device], &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    EXPECT_EQ(id_of(stream_[device]), id);
    EXPECT_EQ(cudaStreamQuery(stream_[device]), cudaErrorNotReady);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // waits for the current device only
    EXPECT_EQ(cudaStreamQuery(stream_[device]), cudaErrorNotReady);
    g.open();
    EXPECT_EQ(cudaStreamSynchronize(stream_[device]), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream_[device]), cudaSuccess);
  }
}

TEST_F(TwoDevicesBehaviour, MemoryIsOfTheCurrentDeviceAndFreedWhicheverIsCurrent)
{
  for (int device = 0; device < 2; ++device) {
    void* ptr{};
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&ptr, 256), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(1 - device), cudaSuccess);
    EXPECT_EQ(device_of(ptr), device);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }
}

TEST_F(TwoDevicesBehaviour, MemoryInTheOrderOfAStreamIsOfTheStreamsDevice)
{
  for (int device = 0; device < 2; ++device) {
    void* ptr{};
    ASSERT_EQ(cudaSetDevice(1 - device), cudaSuccess);
    ASSERT_EQ(cudaMallocAsync(&ptr, 256, stream_[device]), cudaSuccess);
    EXPECT_EQ(device_of(ptr), device);
    EXPECT_EQ(cudaFreeAsync(ptr, stream_[device]), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_[device]), cudaSuccess);
  }
}

TEST_F(TwoDevicesBehaviour, MemoryOfAPoolIsOfThePoolsDevice)
{
  for (int device = 0; device < 2; ++device) {
    void* ptr{};
    cudaMemPool_t pool{};
    ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, device), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(1 - device), cudaSuccess);
    ASSERT_EQ(cudaMallocFromPoolAsync(&ptr, 256, pool, stream_[device]), cudaSuccess);
    EXPECT_EQ(device_of(ptr), device);
    EXPECT_EQ(cudaFreeAsync(ptr, stream_[device]), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_[device]), cudaSuccess);
  }
}

}  // namespace
