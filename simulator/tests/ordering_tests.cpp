// SPDX-License-Identifier: Apache-2.0
//
// The ordering checker finds every conflict that nothing orders, and reports nothing else.

#include "support.hpp"

#include <bitset>
#include <memory>
#include <random>

namespace cudasim_tests {
namespace {

using kind = cudasim::violation::kind;

class OrderingTest : public Stepped {
 protected:
  [[nodiscard]] cudasim::range bytes(std::size_t offset = 0, std::size_t count = 64)
  {
    return {memory_ + offset, count};
  }

  void write(cudaStream_t s, cudasim::range r, char const* name = "writer")
  {
    ASSERT_EQ(cudasim::launch(s, {}, {r}, {}, {name}), cudaSuccess);
  }
  void read(cudaStream_t s, cudasim::range r, char const* name = "reader")
  {
    ASSERT_EQ(cudasim::launch(s, {r}, {}, {}, {name}), cudaSuccess);
  }
  void expect_races(std::size_t count)
  {
    auto const seen = take_violations();
    EXPECT_EQ(seen.size(), count);
    for (auto const& v : seen) { EXPECT_EQ(v.what, kind::race) << v.text; }
    cudasim::run_until_idle();
  }

  char memory_[4096]{};
};

TEST_F(OrderingTest, OneStreamIsInOrder)
{
  scoped_stream const s;
  write(s, bytes());
  read(s, bytes());
  write(s, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, TwoStreamsAreNot)
{
  scoped_stream const a;
  scoped_stream const b;
  write(a, bytes(), "producer");
  read(b, bytes(), "consumer");
  auto const seen = take_violations();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].what, kind::race);
  EXPECT_NE(seen[0].text.find("producer"), std::string::npos) << seen[0].text;
  EXPECT_NE(seen[0].text.find("consumer"), std::string::npos) << seen[0].text;
  cudasim::run_until_idle();
}

TEST_F(OrderingTest, AWriteAfterAReadIsARaceToo)
{
  scoped_stream const a;
  scoped_stream const b;
  read(a, bytes());
  write(b, bytes());
  expect_races(1);
}

TEST_F(OrderingTest, TwoWritesAreARace)
{
  scoped_stream const a;
  scoped_stream const b;
  write(a, bytes());
  write(b, bytes());
  expect_races(1);
}

TEST_F(OrderingTest, TwoReadsAreNone)
{
  scoped_stream const a;
  scoped_stream const b;
  read(a, bytes());
  read(b, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, AReadByEachStreamIsRemembered)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e;
  read(a, bytes());
  read(b, bytes());
  ASSERT_EQ(cudaEventRecord(e, b), cudaSuccess);
  scoped_stream const writer;
  ASSERT_EQ(cudaStreamWaitEvent(writer, e, 0), cudaSuccess);
  write(writer, bytes());  // after b's read, not after a's
  expect_races(1);
}

TEST_F(OrderingTest, OnlyCommonBytesCount)
{
  scoped_stream const a;
  scoped_stream const b;
  write(a, bytes(0, 64));
  write(b, bytes(64, 64));
  expect_races(0);
  write(a, bytes(200, 10));
  write(b, bytes(209, 10));
  expect_races(1);
}

TEST_F(OrderingTest, AnEventOrders)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e;
  write(a, bytes());
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
  write(b, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, AnEventRecordedBeforeTheWorkDoesNot)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e;
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  write(a, bytes());
  ASSERT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
  write(b, bytes());
  expect_races(1);
}

TEST_F(OrderingTest, EventsOrderThroughAThirdStream)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_stream const between;
  scoped_event const e;
  scoped_event const f;
  write(a, bytes());
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(between, e, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(f, between), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, f, 0), cudaSuccess);
  read(b, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, WaitingOnTheHostOrders)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e;
  write(a, bytes());
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  write(b, bytes());
  ASSERT_EQ(cudaEventRecord(e, b), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(e), cudaSuccess);
  write(a, bytes());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  write(b, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, AnAnswerThatWorkIsDoneOrders)
{
  scoped_stream const a;
  scoped_stream const b;
  scoped_event const e;
  write(a, bytes());
  ASSERT_EQ(cudaEventRecord(e, a), cudaSuccess);
  cudasim::run_until_idle();
  ASSERT_EQ(cudaEventQuery(e), cudaSuccess);
  write(b, bytes());
  cudasim::run_until_idle();
  ASSERT_EQ(cudaStreamQuery(b), cudaSuccess);
  write(a, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, TheAnswerOfTheDefaultStreamSpeaksForBlockingStreamsAlsoDestroyedOnes)
{
  scoped_stream const other;
  cudaStream_t blocking{};
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  write(blocking, bytes());
  ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  cudasim::run_until_idle();
  ASSERT_EQ(cudaStreamQuery(nullptr), cudaSuccess);
  write(other, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, ThatWorkIsDoneDoesNotIfNobodyAsked)
{
  scoped_stream const a;
  scoped_stream const b;
  write(a, bytes());
  cudasim::run_until_idle();
  write(b, bytes());
  expect_races(1);
}

TEST_F(OrderingTest, AHostFunctionTellsTheHost)
{
  scoped_stream const a;
  scoped_stream const b;
  write(a, bytes());
  ASSERT_EQ(cudaLaunchHostFunc(
              a, [](void*) {}, nullptr),
            cudaSuccess);
  cudasim::run_until_idle();  // a real program waits for a flag that the function sets
  write(b, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, TheLegacyStreamOrdersBlockingStreams)
{
  scoped_stream const a{cudaStreamDefault};
  scoped_stream const b{cudaStreamDefault};
  write(a, bytes());
  write(cudaStreamLegacy, bytes());
  write(b, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, TheLegacyStreamDoesNotOrderNonBlockingStreams)
{
  scoped_stream const a;
  write(a, bytes());
  write(cudaStreamLegacy, bytes());
  expect_races(1);
}

TEST_F(OrderingTest, TheLegacyStreamComesAfterWhatDestroyedStreamsDid)
{
  {
    scoped_stream const a{cudaStreamDefault};
    write(a, bytes());
  }
  write(cudaStreamLegacy, bytes());
  expect_races(0);
}

TEST_F(OrderingTest, ARecycledHandleIsAnotherStream)
{
  cudaStream_t s{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  write(s, bytes());
  auto const first = s;
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(s, first);
  write(s, bytes());
  expect_races(1);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

TEST_F(OrderingTest, TheHostsOwnAccessesAreChecked)
{
  scoped_stream const s;
  write(s, bytes());
  cudasim::touch(memory_, 64, false);
  expect_races(1);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  cudasim::touch(memory_, 64, true);
  write(s, bytes());  // submitted after the host's write
  expect_races(0);
}

TEST_F(OrderingTest, AKernelMayReadAndWriteTheSameBytes)
{
  scoped_stream const s;
  ASSERT_EQ(cudasim::launch(s, {bytes()}, {bytes()}), cudaSuccess);
  expect_races(0);
}

TEST_F(OrderingTest, NothingIsCheckedWhileItIsOff)
{
  scoped_stream const a;
  scoped_stream const b;
  cudasim::check_ordering(false);
  write(a, bytes());
  write(b, bytes());
  expect_races(0);
  cudasim::check_ordering(true);
  write(a, bytes());  // accesses meanwhile are unknown and ignored
  expect_races(0);
}

// --- Random programs against a model that knows, for each operation, all operations before it.

constexpr std::size_t most_operations = 160;
using predecessors                    = std::bitset<most_operations>;

class RandomOrderTest : public OrderingTest, public ::testing::WithParamInterface<unsigned> {};

/// Runs one random program until its first race. Expects the checker and the model to find it at the same operation, or
/// neither to find one.
void run_random_program(std::uint64_t seed, char* memory, bool& had_race)
{
  struct touched {
    std::size_t operation, begin, end;
    bool write;
  };
  std::mt19937_64 random{seed};
  auto const pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };

  constexpr std::size_t streams = 5;
  constexpr std::size_t events  = streams;
  cudaStream_t stream[streams]{};
  cudaEvent_t event[events]{};
  bool const careful = seed % 2 == 0;  // orders nearly every kernel after all streams: few such programs have a race
  for (std::size_t i = 0; i < streams; ++i) {
    if (i == 0) { continue; }  // stream 0 is the legacy stream
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream[i], i < 3 ? cudaStreamDefault : cudaStreamNonBlocking), cudaSuccess);
  }
  for (auto& e : event) { ASSERT_EQ(cudaEventCreate(&e), cudaSuccess); }

  predecessors of_stream[streams]{};
  predecessors of_event[events]{};
  bool recorded[events]{};
  predecessors of_host{};
  std::vector<touched> history;
  bool race           = false;
  std::size_t number  = 0;
  auto const blocking = [](std::size_t i) { return i < 3; };
  auto const before   = [&](std::size_t i) {  // all operations that one submitted to stream i comes after
    auto known = of_stream[i] | of_host;
    for (std::size_t other = 0; other < streams; ++other) {
        if (blocking(i) && blocking(other) && (i == 0 || other == 0)) { known |= of_stream[other]; }
    }
    return known;
  };

  while (number < most_operations && !race) {
    auto const s = pick(streams);
    auto const e = pick(events);
    switch (pick(12)) {
      case 0:
        ASSERT_EQ(cudaEventRecord(event[e], stream[s]), cudaSuccess);
        of_stream[s] = before(s);  // recording is work, too: the default stream's rules apply
        of_event[e]  = of_stream[s];
        recorded[e]  = true;
        break;
      case 1:
      case 2:
      case 3:
        ASSERT_EQ(cudaStreamWaitEvent(stream[s], event[e], 0), cudaSuccess);
        if (recorded[e]) { of_stream[s] = before(s) | of_event[e]; }
        break;
      case 4:
        if (pick(4) == 0) {
          ASSERT_EQ(cudaEventSynchronize(event[e]), cudaSuccess);
          of_host |= of_event[e];
        }
        break;
      case 5:
        if (pick(4) == 0) {
          ASSERT_EQ(cudaStreamSynchronize(stream[s]), cudaSuccess);
          if (s == 0) { of_stream[0] = before(0); }
          of_host |= of_stream[s];
        }
        break;
      default: {
        auto const begin = pick(48);
        auto const end   = begin + 1 + pick(8);
        bool const write = pick(3) == 0;
        for (std::size_t other = 0; careful && pick(400) != 0 && other < streams; ++other) {
          ASSERT_EQ(cudaEventRecord(event[other], stream[other]), cudaSuccess);
          of_stream[other] = before(other);
          of_event[other]  = of_stream[other];
          recorded[other]  = true;
          ASSERT_EQ(cudaStreamWaitEvent(stream[s], event[other], 0), cudaSuccess);
          of_stream[s] = before(s) | of_event[other];
        }
        auto const known = before(s);
        for (auto const& t : history) {
          if ((t.write || write) && t.begin < end && begin < t.end && !known[t.operation]) { race = true; }
        }
        cudasim::range const r{memory + begin, end - begin};
        std::vector<cudasim::range> reads;
        std::vector<cudasim::range> writes;
        (write ? writes : reads).push_back(r);
        ASSERT_EQ(cudasim::launch(stream[s], reads, writes), cudaSuccess);
        history.push_back({number, begin, end, write});
        of_stream[s] = known;
        of_stream[s].set(number++);
        ASSERT_EQ(cudasim::violations().empty(), !race) << "seed " << seed << ", operation " << number;
        break;
      }
    }
    if (pick(5) == 0) { cudasim::step(); }
  }
  had_race = race;
  cudasim::clear_violations();
  cudasim::run_until_idle();
  for (auto s : stream) {
    if (s != nullptr) { ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess); }
  }
  for (auto e : event) { ASSERT_EQ(cudaEventDestroy(e), cudaSuccess); }
}

TEST_P(RandomOrderTest, TheCheckerAndTheModelAgree)
{
  unsigned races              = 0;
  constexpr unsigned programs = 300;
  for (unsigned i = 0; i < programs; ++i) {
    auto o = machine();
    o.seed = i;
    cudasim::reset(o);
    bool race = false;
    run_random_program(GetParam() * 1000ULL + i, memory_, race);
    if (HasFatalFailure()) { return; }
    races += race ? 1 : 0;
  }
  EXPECT_GT(races, programs / 10);  // both outcomes have to be frequent for the comparison to mean something
  EXPECT_LT(races, programs - programs / 50);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomOrderTest, ::testing::Range(1U, 11U));

}  // namespace
}  // namespace cudasim_tests
