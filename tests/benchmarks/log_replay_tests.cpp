// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/replay/log_replay.hpp>
#include <benchmarks/utilities/log_parser.hpp>
#include <benchmarks/utilities/simulated_memory_resource.hpp>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::benchmarks::allocation_history;
using rmm::benchmarks::log_replay;
using rmm::detail::action;
using rmm::detail::event;
using rmm::mr::simulated_memory_resource;
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
  EXPECT_EQ(history.of_thread(1).front().size, 20);
}

TEST(AllocationHistory, TellsStreamsThatAreNotSpecial)
{
  allocation_history const history{{on_thread(1, action::ALLOCATE, 1, 10, 0),
                                    on_thread(1, action::ALLOCATE, 2, 10, 2),
                                    on_thread(1, action::ALLOCATE, 3, 10, 0x55),
                                    on_thread(1, action::ALLOCATE, 4, 10, 0x55)}};
  EXPECT_THAT(history.own_streams(), ElementsAre(0x55));
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
  EXPECT_EQ(replay.peak_bytes(), 30);
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
