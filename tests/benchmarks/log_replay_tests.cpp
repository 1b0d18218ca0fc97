// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/utilities/simulated_memory_resource.hpp>
#include <tools/recorded/log_parser.hpp>
#include <tools/recorded/log_replay.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::detail::action;
using rmm::detail::event;
using rmm::mr::simulated_memory_resource;
using rmm::recorded::allocation_history;
using rmm::recorded::log_replay;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

event on_thread(std::size_t thread, action what, std::uintptr_t ptr, std::size_t bytes, std::uintptr_t stream = 0)
{
  return {thread, what, bytes, ptr, stream, 0};
}

/// Notes its calls, in order, as sizes; frees are negative.
class noting_resource final : public rmm::mr::device_memory_resource {
 public:
  std::vector<long> calls;
  std::vector<cudaStream_t> streams;

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    calls.push_back(static_cast<long>(bytes));
    streams.push_back(stream.value());
    return reinterpret_cast<void*>(next_ += 256);
  }
  void do_deallocate(void*, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    calls.push_back(-static_cast<long>(bytes));
    streams.push_back(stream.value());
  }

  std::uintptr_t next_{0};
};

/// Fails at its n-th allocation.
class failing_resource final : public rmm::mr::device_memory_resource {
 public:
  explicit failing_resource(int n) : allocations_left_{n} {}

 private:
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override
  {
    if (--allocations_left_ == 0) { throw rmm::out_of_memory{"no more"}; }
    return this;
  }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}

  int allocations_left_;
};

TEST(SimulatedResource, HandsOutEachAddressOnce)
{
  simulated_memory_resource mr{1000};
  auto* const first = mr.allocate(100);
  EXPECT_EQ(first, reinterpret_cast<void*>(std::uintptr_t{0x100}));
  mr.deallocate(first, 100);
  EXPECT_EQ(mr.allocate(100), reinterpret_cast<void*>(std::uintptr_t{0x100 + 100}));
}

TEST(SimulatedResource, HasAsMuchMemoryAsItWasGiven)
{
  simulated_memory_resource mr{1000};
  EXPECT_NO_THROW(static_cast<void>(mr.allocate(600)));
  EXPECT_THROW(static_cast<void>(mr.allocate(401)), rmm::bad_alloc);
  EXPECT_NO_THROW(static_cast<void>(mr.allocate(400)));
}

TEST(AllocationHistory, NumbersThreadsByTheirFirstEvents)
{
  allocation_history const history{
    {on_thread(9, action::ALLOCATE, 1, 10), on_thread(4, action::ALLOCATE, 2, 20), on_thread(9, action::FREE, 1, 10)}};
  EXPECT_EQ(history.size(), 3);
  ASSERT_EQ(history.thread_count(), 2);
  EXPECT_EQ(history.of_thread(0).size(), 2);
  EXPECT_EQ(history.of_thread(1).front().event.size, 20);
}

TEST(AllocationHistory, TellsStreamsThatAreNotSpecial)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 10, 0),
                                    on_thread(1, action::ALLOCATE, 2, 10, 2),
                                    on_thread(1, action::ALLOCATE, 3, 10, 0x55),
                                    on_thread(1, action::ALLOCATE, 4, 10, 0x55)}};
  ASSERT_EQ(history.own_streams().size(), 1);
  EXPECT_EQ(history.own_streams()[0].handle, 0x55);
  EXPECT_EQ(history.own_streams()[0].calls, 2);
}

TEST(LogReplay, MakesTheCallsOfTheLog)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 10),
                                    on_thread(1, action::ALLOCATE, 2, 20),
                                    on_thread(1, action::FREE, 1, 10),
                                    on_thread(1, action::FREE, 2, 20)}};
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_THAT(mr.calls, ElementsAre(10, 20, -10, -20));
  EXPECT_EQ(replay.peak_live().live, 30);
  EXPECT_EQ(replay.left().allocations, 0);
}

TEST(LogReplay, GivesEachLoggedStreamOneOfItsOwn)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 10, 0x55),
                                    on_thread(1, action::ALLOCATE, 2, 20, 0x66),
                                    on_thread(1, action::FREE, 1, 10, 0x66),
                                    on_thread(1, action::FREE, 2, 20, 2)}};
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  ASSERT_EQ(mr.streams.size(), 4);
  EXPECT_NE(mr.streams[0], mr.streams[1]);
  EXPECT_EQ(mr.streams[1], mr.streams[2]);
  EXPECT_EQ(mr.streams[3], cudaStreamPerThread);
}

TEST(LogReplay, LeavesOutFailuresAndFreesOfTheUnknown)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE_FAILURE, 0, 10), on_thread(1, action::FREE, 7, 20)}};
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_THAT(mr.calls, IsEmpty());
  EXPECT_EQ(replay.unknown_frees(), 1);
}

TEST(LogReplay, FreesWhatTheLogLeaksAndTellsIt)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 10), on_thread(1, action::ALLOCATE, 2, 20)}};
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_EQ(replay.left().allocations, 2);
  EXPECT_EQ(replay.left().bytes, 30);
  EXPECT_THAT(mr.calls, ElementsAre(10, 20, -10, -20));
}

TEST(LogReplay, CanBeRepeated)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 10)}};
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_TRUE(replay.play(0));
  EXPECT_THAT(mr.calls, ElementsAre(10, -10, 10, -10));
}

TEST(LogReplay, AllocatesNothingForAddressZero)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 0, 0),
                                    on_thread(1, action::ALLOCATE, 0, 0),
                                    on_thread(1, action::FREE, 0, 0),
                                    on_thread(1, action::FREE, 0, 0)}};
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_EQ(replay.left().allocations, 0);
  EXPECT_EQ(replay.unknown_frees(), 0);
}

TEST(LogReplay, GivesBackAtOnceWhatHasNoBytes)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 7, 0),
                                    on_thread(1, action::ALLOCATE, 7, 0),  // at the same address
                                    on_thread(1, action::ALLOCATE, 8, 10),
                                    on_thread(1, action::FREE, 7, 0),
                                    on_thread(1, action::FREE, 7, 0),
                                    on_thread(1, action::FREE, 8, 0)}};  // a log that has no size here
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_THAT(mr.calls, ElementsAre(0, 0, 0, 0, 10, -10));
  EXPECT_EQ(replay.left().allocations, 0);
  EXPECT_EQ(replay.unknown_frees(), 0);
}

TEST(LogReplay, EndsAtTheFirstAllocationThatFails)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 600),
                                    on_thread(1, action::ALLOCATE, 2, 500),
                                    on_thread(1, action::FREE, 1, 600)}};
  simulated_memory_resource simulated{1000};
  rmm::mr::statistics_resource_adaptor<simulated_memory_resource> mr{&simulated};
  log_replay replay{history, mr};
  EXPECT_FALSE(replay.play(0));
  ASSERT_TRUE(replay.failure().has_value());
  EXPECT_EQ(replay.failure()->event.index, 1);
  EXPECT_EQ(mr.get_bytes_counter().value, 0);
}

TEST(LogReplay, PlaysThreadsInTheOrderOfTheLog)
{
  std::vector<event> events;
  std::vector<long> expected;
  for (std::size_t i = 0; i < 200; ++i) {
    events.push_back(on_thread(i % 3, action::ALLOCATE, i + 1, 100 + i));
    expected.push_back(static_cast<long>(100 + i));
  }
  for (std::size_t i = 0; i < 200; ++i) {
    events.push_back(on_thread(i % 2, action::FREE, i + 1, 100 + i));
    expected.push_back(-static_cast<long>(100 + i));
  }
  allocation_history const history{std::move(events)};
  noting_resource mr;
  log_replay replay{history, mr};
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < history.thread_count(); ++thread) {
    threads.emplace_back([&, thread] { EXPECT_TRUE(replay.play(thread)); });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(mr.calls, expected);
}

TEST(LogReplay, TellsWhatWasLiveWhenAnAllocationFails)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 600), on_thread(1, action::ALLOCATE, 2, 500)}};
  simulated_memory_resource mr{1000};
  log_replay replay{history, {{0, &mr, [] { return std::size_t{1000}; }}}};
  EXPECT_FALSE(replay.play(0));
  EXPECT_EQ(replay.failure()->before.live, 600);
  EXPECT_EQ(replay.failure()->before.reserved, 1000);
}

TEST(LogReplay, TellsWhenMostWasLiveAndReserved)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 10),
                                    on_thread(1, action::ALLOCATE, 2, 20),
                                    on_thread(1, action::FREE, 1, 10),
                                    on_thread(1, action::FREE, 2, 20)}};
  noting_resource mr;
  log_replay replay{history, {{0, &mr, [&] { return mr.calls.size() == 3 ? std::size_t{100} : 50; }}}};
  EXPECT_TRUE(replay.play(0));
  EXPECT_EQ(replay.peak_live().live, 30);
  EXPECT_EQ(replay.peak_live().event, 1);
  EXPECT_TRUE(replay.knows_reserved());
  EXPECT_EQ(replay.peak_reserved().reserved, 100);
  EXPECT_EQ(replay.peak_reserved().event, 2);
  EXPECT_EQ(replay.peak_reserved().live, 20);
}

TEST(LogReplay, ShowsTheNeedsOfTheFirstPass)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 600), on_thread(1, action::FREE, 1, 600)}};
  noting_resource mr;
  log_replay replay{history, {{0, &mr, [&] { return mr.calls.size(); }}}};
  for (int pass = 0; pass < 3; ++pass) { EXPECT_TRUE(replay.play(0)); }
  EXPECT_EQ(replay.peak_reserved().reserved, 2);
}

TEST(LogReplay, TellsThePassThatFailed)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 600), on_thread(1, action::ALLOCATE, 2, 300)}};
  failing_resource mr{4};
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_FALSE(replay.play(0));
  ASSERT_TRUE(replay.failure().has_value());
  EXPECT_EQ(replay.failure()->pass, 1);
  EXPECT_EQ(replay.failure()->event.index, 1);
  EXPECT_EQ(replay.left().allocations, 2);
}

TEST(LogReplay, DrawsTheCurveOfTheFirstPass)
{
  std::vector<event> events;
  for (std::size_t i = 0; i < 5000; ++i) {
    events.push_back(on_thread(1, action::ALLOCATE, i + 1, 1));
    events.back().time_ns = 7 * i;
  }
  allocation_history const history{std::move(events)};
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_TRUE(replay.play(0));
  auto const& curve = replay.curve();
  ASSERT_GE(curve.size(), 1000);
  ASSERT_LE(curve.size(), 1002);
  for (auto const& each : curve) {
    EXPECT_EQ(each.live, each.event + 1);
    EXPECT_EQ(each.time_ns, 7 * each.event);
  }
  EXPECT_EQ(curve.back().event, 4999);
}

TEST(LogReplay, TellsStreamsApartWhoseHandleIsTheSame)
{
  std::vector<event> events{on_thread(1, action::ALLOCATE, 1, 10, 0x55),
                            on_thread(1, action::ALLOCATE, 2, 20, 0x55),
                            on_thread(1, action::FREE, 1, 10, 0x55),
                            on_thread(1, action::FREE, 2, 20, 0x55)};
  events[0].stream_id = 7;
  events[1].stream_id = 8;
  events[2].stream_id = 7;  // the last has none: the stream that had the handle last
  allocation_history const history{std::move(events)};
  ASSERT_EQ(history.own_streams().size(), 2);
  auto const& calls = history.of_thread(0);
  EXPECT_NE(calls[0].stream, calls[1].stream);
  EXPECT_EQ(calls[2].stream, calls[0].stream);
  EXPECT_EQ(calls[3].stream, calls[2].stream);
}

TEST(LogReplay, KnowsAStreamWhoseNumberComesLater)
{
  std::vector<event> events{on_thread(1, action::FREE, 1, 10, 0x55), on_thread(1, action::ALLOCATE, 1, 10, 0x55)};
  events[1].stream_id = 7;
  allocation_history const history{std::move(events)};
  EXPECT_EQ(history.own_streams().size(), 1);
}

/// Notes the device that is current in each call.
class device_noting_resource final : public rmm::mr::device_memory_resource {
 public:
  std::vector<int> devices;

 private:
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override
  {
    devices.push_back(rmm::get_current_cuda_device().value());
    return this;
  }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override
  {
    devices.push_back(rmm::get_current_cuda_device().value());
  }
};

TEST(LogReplay, MakesEachCallOnItsDevice)
{
  if (rmm::get_num_cuda_devices() < 2) { GTEST_SKIP() << "there is one device"; }
  std::vector<event> events{on_thread(1, action::ALLOCATE, 1, 10, 0x55),
                            on_thread(1, action::ALLOCATE, 1, 20, 0x55),  // the same address on another device
                            on_thread(1, action::FREE, 1, 10, 0x55),
                            on_thread(1, action::ALLOCATE, 2, 30)};
  events[1].device = 1;
  events[3].device = 1;
  allocation_history const history{std::move(events)};
  EXPECT_THAT(history.devices(), ElementsAre(0, 1));
  EXPECT_EQ(history.own_streams().size(), 2);
  device_noting_resource first;
  device_noting_resource second;
  log_replay replay{history, {{0, &first, {}}, {1, &second, {}}}};
  EXPECT_TRUE(replay.play(0));
  EXPECT_THAT(first.devices, ElementsAre(0, 0));
  EXPECT_THAT(second.devices, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(replay.left().allocations, 2);
  EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
}

TEST(LogReplay, NeedsATargetForEachDevice)
{
  std::vector<event> events(1, on_thread(1, action::ALLOCATE, 1, 10));
  events[0].device = 2;
  allocation_history const history{std::move(events)};
  noting_resource mr;
  EXPECT_THROW((log_replay{history, {{0, &mr, {}}, {1, &mr, {}}}}), std::invalid_argument);
}

TEST(LogReplay, EndsAStreamThatHadASuccessor)
{
  std::vector<event> events;
  for (std::size_t i = 0; i < 300; ++i) {
    for (auto const what : {action::ALLOCATE, action::FREE}) {
      events.push_back(on_thread(1, what, i + 1, 10, 0x1000));
      events.back().stream_id = i + 1;
    }
  }
  allocation_history const history{std::move(events)};
  EXPECT_EQ(history.own_streams().size(), 300);
  noting_resource mr;
  log_replay replay{history, mr};
  EXPECT_TRUE(replay.play(0));
  EXPECT_LE(std::set<cudaStream_t>(mr.streams.begin(), mr.streams.end()).size(), 10);  // handles come back
}

TEST(LogReplay, EndsForEveryThread)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 600),
                                    on_thread(2, action::ALLOCATE, 2, 600),
                                    on_thread(1, action::FREE, 1, 600),
                                    on_thread(2, action::FREE, 2, 600)}};
  simulated_memory_resource mr{1000};
  log_replay replay{history, mr};
  std::thread first{[&] { EXPECT_FALSE(replay.play(0)); }};
  EXPECT_FALSE(replay.play(1));
  first.join();
}

}  // namespace
