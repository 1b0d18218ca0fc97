// SPDX-License-Identifier: Apache-2.0
//
// Streams in stepped mode: when work runs, and what the calls return meanwhile.

#include "support.hpp"

#include <atomic>
#include <set>
#include <thread>

namespace cudasim_tests {
namespace {

using StreamTest = Stepped;

/// Queues a kernel that appends `mark` to `log`.
void mark(cudaStream_t s, std::string& log, char mark)
{
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&log, mark] { log += mark; }), cudaSuccess);
}

TEST_F(StreamTest, NothingRunsUntilStepped)
{
  scoped_stream const s;
  std::string log;
  mark(s, log, 'a');
  mark(s, log, 'b');
  EXPECT_EQ(log, "");
  EXPECT_EQ(cudasim::pending(s), 2U);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_TRUE(cudasim::step());
  EXPECT_EQ(log, "a");
  EXPECT_TRUE(cudasim::step(s));
  EXPECT_EQ(log, "ab");
  EXPECT_FALSE(cudasim::step());
  EXPECT_FALSE(cudasim::step(s));
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
  cudaGetLastError();
}

TEST_F(StreamTest, SynchronizeRunsTheStreamAndWhatItWaitsForButNoMore)
{
  scoped_stream const first;
  scoped_stream const second;
  scoped_stream const other;
  scoped_event const e;
  std::string log;
  mark(first, log, 'a');
  ASSERT_EQ(cudaEventRecord(e, first), cudaSuccess);
  mark(first, log, 'x');
  mark(other, log, 'y');
  ASSERT_EQ(cudaStreamWaitEvent(second, e, 0), cudaSuccess);
  mark(second, log, 'b');
  ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(log, "ab");
  EXPECT_EQ(cudasim::run_until_idle(), 0U);
  EXPECT_EQ(log, "abxy");
}

TEST_F(StreamTest, AWaitTakesTheRecordThatWasThereWhenItWasMade)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e;
  std::string log;
  mark(a, log, '1');
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
  mark(a, log, '2');
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  mark(b, log, 'b');
  ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(log, "1b");
  cudasim::run_until_idle();
}

TEST_F(StreamTest, AnUnrecordedEventIsNotWaitedFor)
{
  scoped_stream const s;
  scoped_event const e;
  ASSERT_EQ(cudaStreamWaitEvent(s, e, 0), cudaSuccess);
  EXPECT_EQ(cudasim::pending(s), 0U);
}

TEST_F(StreamTest, TheLegacyStreamComesAfterBlockingStreamsAndBeforeThem)
{
  scoped_stream const blocking{cudaStreamDefault};
  std::string log;
  mark(blocking, log, 'a');
  mark(cudaStreamLegacy, log, 'b');
  mark(blocking, log, 'c');
  EXPECT_FALSE(cudasim::step(cudaStreamLegacy));
  ASSERT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  EXPECT_EQ(log, "abc");
}

TEST_F(StreamTest, TheLegacyStreamDoesNotMindNonBlockingStreams)
{
  scoped_stream const free_running{cudaStreamNonBlocking};
  std::string log;
  mark(free_running, log, 'a');
  mark(nullptr, log, 'b');
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(log, "b");
  mark(nullptr, log, 'c');
  ASSERT_EQ(cudaStreamSynchronize(free_running), cudaSuccess);
  EXPECT_EQ(log, "ba");
  cudasim::run_until_idle();
}

TEST_F(StreamTest, SynchronizingTheLegacyStreamWaitsForBlockingStreams)
{
  scoped_stream const blocking{cudaStreamDefault};
  std::string log;
  mark(blocking, log, 'a');
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(log, "a");
}

TEST_F(StreamTest, TheLegacyStreamIsReadyWhenTheBlockingStreamsAre)
{
  scoped_stream const blocking{cudaStreamDefault};
  scoped_stream const free_running{cudaStreamNonBlocking};
  ASSERT_EQ(cudasim::launch(free_running, {}, {}), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaSuccess);
  ASSERT_EQ(cudasim::launch(blocking, {}, {}), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  cudasim::run_until_idle();
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaSuccess);
}

TEST_F(StreamTest, ThePerThreadStreamIsAnotherOneInEachThreadAndBlocking)
{
  unsigned long long mine{};
  unsigned long long other{};
  ASSERT_EQ(cudaStreamGetId(cudaStreamPerThread, &mine), cudaSuccess);
  std::thread{[&] { ASSERT_EQ(cudaStreamGetId(cudaStreamPerThread, &other), cudaSuccess); }}.join();
  EXPECT_NE(mine, other);
  std::string log;
  mark(cudaStreamPerThread, log, 'a');
  mark(cudaStreamLegacy, log, 'b');
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(log, "ab");
}

TEST_F(StreamTest, WorkOfAThreadThatEndedStillRuns)
{
  std::string log;
  std::thread{[&] { mark(cudaStreamPerThread, log, 'a'); }}.join();
  EXPECT_EQ(log, "");
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(log, "a");
}

TEST_F(StreamTest, DeviceSynchronizeRunsEverythingOfThatDeviceOnly)
{
  scoped_stream const here;
  std::string log;
  mark(here, log, 'a');
  mark(nullptr, log, 'b');
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  mark(nullptr, log, 'x');
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(std::set<char>(log.begin(), log.end()), (std::set<char>{'a', 'b'}));
  cudasim::run_until_idle();
}

TEST_F(StreamTest, AHeldStreamWaitsAndTheOthersGoOn)
{
  scoped_stream const held;
  scoped_stream const other;
  std::string log;
  cudasim::hold(held);
  mark(held, log, 'h');
  mark(other, log, 'o');
  EXPECT_EQ(cudasim::run_until_idle(), 1U);
  EXPECT_EQ(log, "o");
  EXPECT_FALSE(cudasim::step(held));
  cudasim::let_go(held);
  EXPECT_EQ(cudasim::run_until_idle(), 0U);
  EXPECT_EQ(log, "oh");
}

TEST_F(StreamTest, AWaitForAHeldStreamEndsWhenAnotherThreadLetsGo)
{
  scoped_stream const held;
  std::string log;
  cudasim::hold(held);
  mark(held, log, 'h');
  std::thread waiter{[&] { EXPECT_EQ(cudaStreamSynchronize(held), cudaSuccess); }};
  cudasim::let_go(held);
  waiter.join();
  EXPECT_EQ(log, "h");
}

TEST_F(StreamTest, ADestroyedStreamFinishesItsWorkAndItsHandleComesBackAtOnce)
{
  std::string log;
  cudaStream_t first{};
  unsigned long long first_id{};
  ASSERT_EQ(cudaStreamCreate(&first), cudaSuccess);
  ASSERT_EQ(cudaStreamGetId(first, &first_id), cudaSuccess);
  mark(first, log, 'a');
  ASSERT_EQ(cudaStreamDestroy(first), cudaSuccess);
  EXPECT_EQ(log, "");
  cudaStream_t second{};
  unsigned long long second_id{};
  ASSERT_EQ(cudaStreamCreate(&second), cudaSuccess);
  ASSERT_EQ(cudaStreamGetId(second, &second_id), cudaSuccess);
  EXPECT_EQ(second, first);
  EXPECT_NE(second_id, first_id);
  EXPECT_EQ(cudaStreamQuery(second), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(log, "a");
  ASSERT_EQ(cudaStreamDestroy(second), cudaSuccess);
}

TEST_F(StreamTest, ADestroyedHandleIsMisuse)
{
  cudaStream_t s{};
  ASSERT_EQ(cudaStreamCreate(&s), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudasim::launch(s, {}, {}), cudaErrorInvalidResourceHandle);
  auto const seen = take_violations();
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_NE(seen[0].text.find("cudaStreamQuery"), std::string::npos);
  cudaGetLastError();
}

TEST_F(StreamTest, DefaultStreamsCannotBeDestroyed)
{
  for (auto const s : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    EXPECT_EQ(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
  }
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 3U);
}

TEST_F(StreamTest, FlagsPriorityAndDeviceAreReported)
{
  cudaStream_t s{};
  int least{};
  int greatest{};
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_LT(greatest, least);
  ASSERT_EQ(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest - 10), cudaSuccess);
  unsigned flags{};
  int priority{};
  int device{-1};
  ASSERT_EQ(cudaStreamGetFlags(s, &flags), cudaSuccess);
  ASSERT_EQ(cudaStreamGetPriority(s, &priority), cudaSuccess);
  ASSERT_EQ(cudaStreamGetDevice(s, &device), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(device, 0);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

TEST_F(StreamTest, NullOutputsAndUnknownFlagsAreInvalid)
{
  cudaStream_t s{};
  EXPECT_EQ(cudaStreamCreate(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamCreateWithFlags(&s, 0x80), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamCreateWithPriority(&s, 0x80, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamGetFlags(nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamGetPriority(nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamGetId(nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamGetDevice(nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaLaunchHostFunc(nullptr, nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamAddCallback(nullptr, nullptr, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 9U);
}

TEST_F(StreamTest, AKernelOnAStreamOfAnotherDeviceIsRefused)
{
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  scoped_stream const s;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudasim::launch(s, {}, {}), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 1U);
}

TEST_F(StreamTest, HostFunctionsAndCallbacksRunInOrderWithTheRest)
{
  scoped_stream const s;
  std::string log;
  mark(s, log, 'a');
  ASSERT_EQ(cudaLaunchHostFunc(
              s, [](void* p) { *static_cast<std::string*>(p) += 'h'; }, &log),
            cudaSuccess);
  ASSERT_EQ(cudaStreamAddCallback(
              s,
              [](cudaStream_t, cudaError_t status, void* p) {
                *static_cast<std::string*>(p) += status == cudaSuccess ? 'c' : '?';
              },
              &log,
              0),
            cudaSuccess);
  mark(s, log, 'b');
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(log, "ahcb");
}

TEST_F(StreamTest, HostFunctionsAndKernelsMustNotCallCuda)
{
  scoped_stream const s;
  auto const synchronize = [](void*) { EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNotPermitted); };
  ASSERT_EQ(cudaLaunchHostFunc(s, synchronize, nullptr), cudaSuccess);
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { EXPECT_EQ(cudaFree(nullptr), cudaErrorNotPermitted); }), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  auto const found = take_violations();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].text.find("cudaDeviceSynchronize: host functions and kernels must not call CUDA"), 0U);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess) << "it is over when they are";
  cudaGetLastError();
}

TEST_F(StreamTest, AttachAndCopyAttributesCheckTheirArguments)
{
  scoped_stream const a;
  scoped_stream const b;
  EXPECT_EQ(cudaStreamCopyAttributes(a, b), cudaSuccess);
  int ordinary{};
  EXPECT_EQ(cudaStreamAttachMemAsync(a, &ordinary, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
  EXPECT_EQ(take_count(cudasim::violation::kind::misuse), 1U);
}

TEST_F(StreamTest, SeedsGiveDifferentOrdersAndTheSameOneAgain)
{
  auto const order_of = [](std::uint64_t seed) {
    cudasim::options o;
    o.mode = cudasim::execution::stepped;
    o.seed = seed;
    cudasim::reset(o);
    std::string log;
    cudaStream_t s[4]{};
    for (auto& each : s) { EXPECT_EQ(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), cudaSuccess); }
    for (int i = 0; i < 12; ++i) { mark(s[i % 4], log, static_cast<char>('a' + i)); }
    cudasim::run_until_idle();
    for (auto& each : s) { EXPECT_EQ(cudaStreamDestroy(each), cudaSuccess); }
    return log;
  };
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    auto const log = order_of(seed);
    EXPECT_EQ(order_of(seed), log);
    EXPECT_EQ(log.size(), 12U);
    EXPECT_LT(log.find('a'), log.find('e'));  // one stream's work stays in order
    seen.insert(log);
  }
  EXPECT_GT(seen.size(), 5U);
  EXPECT_EQ(order_of(0), "abcdefghijkl");
}

// --- Virtual time

TEST_F(StreamTest, KernelsOfDifferentStreamsOverlapInVirtualTime)
{
  scoped_stream const a;
  scoped_stream const b;
  ASSERT_EQ(cudasim::launch(a, {}, {}, {}, {"long", 5'000'000}), cudaSuccess);
  ASSERT_EQ(cudasim::launch(b, {}, {}, {}, {"short", 3'000'000}), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudasim::now_ns(), 5'000'000U);
  cudasim::advance(1'000'000);
  EXPECT_EQ(cudasim::now_ns(), 6'000'000U);
}

TEST_F(StreamTest, EventsMeasureVirtualTimeAlsoAcrossStreams)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const start;
  scoped_event const middle;
  scoped_event const end;
  ASSERT_EQ(cudaEventRecord(start, a), cudaSuccess);
  ASSERT_EQ(cudasim::launch(a, {}, {}, {}, {"first", 2'000'000}), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(middle, a), cudaSuccess);
  ASSERT_EQ(cudasim::launch(a, {}, {}, {}, {"later, of no concern to b", 50'000'000}), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, middle, 0), cudaSuccess);
  ASSERT_EQ(cudasim::launch(b, {}, {}, {}, {"second", 1'500'000}), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, b), cudaSuccess);
  float ms{};
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_FLOAT_EQ(ms, 3.5F);
  cudaGetLastError();
}

// --- Background execution

using ThreadedStreamTest = Simulated;

TEST_F(ThreadedStreamTest, WorkRunsWithoutBeingWaitedFor)
{
  scoped_stream const s;
  std::atomic<bool> ran{false};
  ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { ran = true; }), cudaSuccess);
  while (!ran) { std::this_thread::yield(); }
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST_F(ThreadedStreamTest, StreamsRunAtTheSameTime)
{
  // Each kernel waits for the other one: only two at a time can end.
  scoped_stream const a;
  scoped_stream const b;
  std::atomic<int> arrived{0};
  auto const meet = [&] {
    ++arrived;
    while (arrived < 2) { std::this_thread::yield(); }
  };
  ASSERT_EQ(cudasim::launch(a, {}, {}, meet), cudaSuccess);
  ASSERT_EQ(cudasim::launch(b, {}, {}, meet), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(arrived, 2);
}

TEST_F(ThreadedStreamTest, HostFunctionsRunOneAtATime)
{
  scoped_stream const a;
  scoped_stream const b;
  int unguarded    = 0;  // ThreadSanitizer would report concurrent calls
  auto const count = [](void* p) { ++*static_cast<int*>(p); };
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(cudaLaunchHostFunc(a, count, &unguarded), cudaSuccess);
    ASSERT_EQ(cudaLaunchHostFunc(b, count, &unguarded), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(unguarded, 1000);
}

TEST_F(ThreadedStreamTest, OneStreamRunsOneThingAtATime)
{
  scoped_stream const s;
  int unguarded = 0;  // ThreadSanitizer would report concurrent calls
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { ++unguarded; }), cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(unguarded, 1000);
}

TEST_F(ThreadedStreamTest, EventsOrderStreams)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e{cudaEventDisableTiming};
  int unguarded = 0;
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(cudasim::launch(a, {}, {}, [&] { ++unguarded; }), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
    ASSERT_EQ(cudasim::launch(b, {}, {}, [&] { ++unguarded; }), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(e, b), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(a, e, 0), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(unguarded, 1000);
}

TEST_F(ThreadedStreamTest, ManyThreadsSubmitAndWait)
{
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      scoped_stream const s;
      for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(cudasim::launch(s, {}, {}, [&] { ++ran; }), cudaSuccess);
        if (i % 16 == 0) { ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess); }
      }
      ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    });
  }
  for (auto& t : threads) { t.join(); }
  EXPECT_EQ(ran, 1600);
}

TEST_F(ThreadedStreamTest, ABodyThatThrowsBreaksTheDevice)
{
  scoped_stream const s;
  ASSERT_EQ(cudasim::launch(s, {}, {}, [] { throw 1; }, {"faulty"}), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
  auto const seen = take_violations();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_NE(seen[0].text.find("faulty"), std::string::npos);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);  // also destroys the stream
  cudaStream_t replacement{};
  ASSERT_EQ(cudaStreamCreate(&replacement), cudaSuccess);
  EXPECT_EQ(replacement, static_cast<cudaStream_t>(s));
}

}  // namespace
}  // namespace cudasim_tests
