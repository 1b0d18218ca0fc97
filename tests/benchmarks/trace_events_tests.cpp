// SPDX-License-Identifier: Apache-2.0
#include <tools/recorded/log_replay.hpp>
#include <tools/recorded/trace_events.hpp>
#include <tools/recorded/trace_reader.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>

#include <tests/support/seeds.hpp>
#include <tests/support/temporary_folder.hpp>
#include <tests/support/trace_file.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::detail::action;
using rmm::mr::cuda_memory_resource;
using rmm::recorded::read_events;
using rmm::test::temporary_folder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

struct TraceEvents : ::testing::Test {
  temporary_folder folder;
  std::string const file{folder / "trace"};
};

// A folder lists its files in any order.
TEST_F(TraceEvents, ComeFromTheFilesOfARunInTheOrderOfTheirNumbers)
{
  rmm::detail::trace::file_header header;
  header.run = 7;
  for (std::uint32_t const part : {0U, 12U, 2U, 9U, 1U, 11U, 10U, 4U, 3U, 14U, 5U, 8U, 6U}) {
    header.part = part;
    std::ofstream out{part == 0 ? file : file + '.' + std::to_string(part), std::ios::binary};
    out.write(reinterpret_cast<char const*>(&header), sizeof header);
  }
  auto const trace = rmm::recorded::trace_reader::read(file);
  EXPECT_EQ(trace.bytes, 13 * sizeof header);
  EXPECT_EQ(trace.missing_files, 2);  // 7 and 13
}

TEST_F(TraceEvents, AreThoseOfATrace)
{
  cuda_memory_resource cuda;
  void* ptr{};
  {
    rmm::mr::trace_resource_adaptor mr{&cuda, rmm::mr::trace_options{file}};
    ptr = mr.allocate(1000, rmm::cuda_stream_legacy);
    mr.deallocate(ptr, 1000, rmm::cuda_stream_per_thread);
  }
  auto const log = read_events(file);
  EXPECT_EQ(log.lost, 0);
  EXPECT_EQ(log.damage, "");
  ASSERT_THAT(log.events, SizeIs(2));
  EXPECT_EQ(log.events[0].act, action::ALLOCATE);
  EXPECT_EQ(log.events[0].pointer, reinterpret_cast<std::uintptr_t>(ptr));
  EXPECT_EQ(log.events[0].size, 1000);
  EXPECT_EQ(log.events[0].stream, 1);
  EXPECT_EQ(log.events[0].device, 0);
  EXPECT_EQ(log.events[1].act, action::FREE);
  EXPECT_EQ(log.events[1].stream, 2);
  EXPECT_EQ(log.events[1].index, 1);
  EXPECT_GE(log.events[1].time_ns, log.events[0].time_ns);
}

TEST_F(TraceEvents, AreThoseOfALog)
{
  cuda_memory_resource cuda;
  {
    rmm::mr::logging_resource_adaptor<cuda_memory_resource> mr{&cuda, file};
    mr.deallocate(mr.allocate(1000), 1000);
  }
  EXPECT_THAT(read_events(file).events, SizeIs(2));
}

TEST_F(TraceEvents, AreNotInOtherFiles)
{
  std::ofstream{file} << "neither the one\nnor the other\n";
  EXPECT_THAT(
    [&] { read_events(file); },
    ThrowsMessage<rmm::logic_error>(HasSubstr(file + ": line 1: this is not a log: it has no column 'Time'")));
  std::ofstream{file} << "\x1F\x8B\x08 and what gzip makes of a log";
  EXPECT_THAT([&] { read_events(file); },
              ThrowsMessage<rmm::recorded::bad_trace>(HasSubstr(file + ": at byte 0: the file is compressed")));
  std::ofstream{file} << "RMMTRACE and then nothing good, for many characters, until the header is whole";
  EXPECT_THAT([&] { read_events(file); }, ThrowsMessage<rmm::recorded::bad_trace>(HasSubstr(file + ": at byte 8")));
  std::ofstream{file, std::ios::trunc};
  EXPECT_THROW(read_events(file), rmm::recorded::bad_trace);
  EXPECT_THROW(read_events(folder / "no such file"), std::runtime_error);
}

TEST_F(TraceEvents, AreRefusedIfTheirBytesCannotBeCounted)
{
  std::string const log{"Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00,allocate,0x100,18446744073709551615,0\n"};
  std::ofstream{file} << log;
  EXPECT_THAT(read_events(file).events, SizeIs(1));
  std::ofstream{file} << log << "1,10:00:00,free,0x100,18446744073709551615,0\n1,10:00:00,allocate,0x200,2,0\n";
  EXPECT_THAT([&] { read_events(file); },
              ThrowsMessage<rmm::logic_error>(
                HasSubstr(file + ": the allocations until event 2 come to more than 2^64-1 bytes")));
}

TEST_F(TraceEvents, TellLinesWithoutATime)
{
  std::ofstream{file} << "Thread,Time,Action,Pointer,Size,Stream\n1,nan,allocate,0x100,5,0\n1,,free,0x100,5,0\n";
  EXPECT_EQ(read_events(file).damage, "2 lines without a readable time, counted at the time before");
}

TEST(Damage, IsToldInWords)
{
  rmm::recorded::recorded_trace trace{};
  EXPECT_EQ(rmm::recorded::damage_of(trace), "");
  trace.missing_files = 1;
  EXPECT_EQ(rmm::recorded::damage_of(trace), "1 file missing between its first and its last");
  trace.missing_files = 2;
  trace.cut_off_at    = 115;
  EXPECT_EQ(rmm::recorded::damage_of(trace), "cut off at byte 115, and 2 files missing between its first and its last");
  trace.missing_files = 0;
  trace.without_time  = 1;
  EXPECT_EQ(rmm::recorded::damage_of(trace),
            "cut off at byte 115, and 1 line without a readable time, counted at the time before");
}

/// Live bytes after each event.
std::vector<std::size_t> live_bytes(std::vector<rmm::detail::event> const& events)
{
  std::vector<std::size_t> result;
  std::size_t live = 0;
  for (auto const& event : events) {
    if (event.act == action::ALLOCATE) { live += event.size; }
    if (event.act == action::FREE) { live -= event.size; }
    result.push_back(live);
  }
  return result;
}

TEST_F(TraceEvents, GiveTheSameCurveWhenTheyAreTracedAndReplayed)
{
  rmm::test::for_each_seed(10, [&](std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::vector<std::size_t> expected;
    cuda_memory_resource cuda;
    {
      rmm::mr::trace_resource_adaptor mr{&cuda, rmm::mr::trace_options{file}};
      std::vector<rmm::cuda_stream> streams(3);
      std::vector<std::pair<void*, std::size_t>> blocks;
      std::size_t live = 0;
      for (int i = 0; i < 500; ++i) {
        auto const& stream = streams[random() % streams.size()];
        if (blocks.empty() || random() % 2 == 0) {
          auto const bytes = 1 + random() % 100'000;
          blocks.emplace_back(mr.allocate(bytes, stream), bytes);
          live += bytes;
        } else {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          mr.deallocate(blocks.back().first, blocks.back().second, stream);
          live -= blocks.back().second;
          blocks.pop_back();
        }
        expected.push_back(live);
      }
      for (auto const& [ptr, bytes] : blocks) { cuda.deallocate(ptr, bytes); }
    }
    auto log = read_events(file);
    EXPECT_EQ(live_bytes(log.events), expected);
    rmm::recorded::allocation_history const history{std::move(log.events)};
    EXPECT_THAT(history.own_streams(), SizeIs(3));
    rmm::recorded::log_replay replay{history, cuda};
    EXPECT_TRUE(replay.play(0));
    std::vector<std::size_t> replayed;
    for (auto const& moment : replay.curve()) { replayed.push_back(moment.live); }
    EXPECT_EQ(replayed, expected);
  });
}

// A file of format 1 that a program wrote on the simulator: two threads, three streams, a tag and two stacks; one block of each
// thread. What reads today's traces has to read it.
TEST(KeptTrace, CanStillBeRead)
{
  auto const trace = rmm::recorded::trace_reader::read(rmm::test::trace_file("two-threads.rmmtrace"));
  EXPECT_FALSE(trace.cut_off_at.has_value());
  EXPECT_EQ(trace.lost, 0);
  EXPECT_THAT(trace.threads, SizeIs(2));
  EXPECT_THAT(trace.tags, ElementsAre("", "loader"));
  EXPECT_THAT(trace.stacks, SizeIs(2));
  ASSERT_THAT(trace.events, SizeIs(801));
  auto const events = rmm::recorded::events_of(trace).events;
  rmm::recorded::allocation_history const history{events};
  EXPECT_THAT(history.own_streams(), SizeIs(3));
  EXPECT_EQ(history.logged_failures(), 1);
  std::size_t sum = 0;
  for (auto const& event : events) { sum += event.act == action::ALLOCATE ? event.size : 0; }
  EXPECT_EQ(sum, 2 * 199 * 200 / 2 * 256);
}

}  // namespace
