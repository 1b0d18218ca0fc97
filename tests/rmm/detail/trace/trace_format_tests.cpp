// SPDX-License-Identifier: Apache-2.0
#include "../../../support/seeds.hpp"
#include "../../../support/temporary_folder.hpp"

#include <tools/recorded/trace_reader.hpp>

#include <rmm/detail/trace/format.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace rmm::detail::trace;
using rmm::recorded::bad_trace;
using rmm::recorded::event;
using rmm::recorded::no_stack;
using rmm::recorded::recorded_trace;
using rmm::recorded::trace_reader;
using rmm::test::temporary_folder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr std::size_t capacity = block_encoder::smallest_capacity;

std::string bytes_of(file_header const& header)
{
  return std::string(reinterpret_cast<char const*>(&header), sizeof header);
}

std::string finished(block_encoder& encoder)
{
  auto const [data, size] = encoder.finish();
  return std::string(reinterpret_cast<char const*>(data), size);
}

/// A block with this payload. Everything else in it is valid.
std::string block_of(std::string const& payload, std::uint32_t events)
{
  block_header header;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.events        = events;
  auto padded          = payload;
  padded.resize((payload.size() + 7) / 8 * 8);
  auto const sums    = checksum_of(header, padded.data());
  header.sum         = sums.sum();
  header.sum_of_sums = sums.sum_of_sums();
  return std::string(reinterpret_cast<char const*>(&header), sizeof header) + padded;
}

recorded_trace read(std::string const& content) { return trace_reader::read(content, "the file"); }

auto refuses(std::string const& content, std::string const& problem)
{
  EXPECT_THAT([&] { read(content); }, ThrowsMessage<bad_trace>(HasSubstr(problem)));
}

/// A trace of two threads with three events each.
std::string small_trace()
{
  file_header header;
  header.run          = 0x1122334455667788;
  header.process      = 4711;
  header.wall_time_ns = 1'700'000'000'000'000'000;
  header.clock_ns     = 5'000'000'000;
  auto text           = bytes_of(header);

  block_encoder encoder{capacity};
  encoder.begin(17, 1000, 0);
  encoder.define_tag(3, "loader");
  encoder.define_place(0, {1, 3, 0xab, 9});
  encoder.add(kind::allocate, 0, 1010, 256, 0x7f0000000000);
  encoder.add(kind::allocate_failure, 0, 1300, 1'000'000'000'000, 0);
  encoder.add(kind::free, 0, 2'000'000, 256, 0x7f0000000000);
  text += finished(encoder);

  encoder.begin(18, 1005, 2);
  encoder.define_place(0, {1, 0, 0, 0});
  encoder.define_frame(0x401000, "main from program");
  std::uint64_t const frames[] = {0x401000, 0x402000};
  encoder.add_stack(frames, 2);
  encoder.add(kind::allocate, 0, 1005, 0, 0x10);
  encoder.add(kind::allocate, 0, 1020, 70'000, 0x100010);
  encoder.add(kind::free, 0, 1030, 0, 0x10);
  return text + finished(encoder);
}

TEST(TraceFormat, MatchesItsDocumentation)
{
  block_encoder encoder{capacity};
  encoder.begin(17, 1000, 0);
  encoder.define_place(0, {1, 0, 0xab, 9});
  encoder.add(kind::allocate, 0, 1010, 256, 0x7000);
  encoder.add(kind::free, 0, 1300, 256, 0x7000);
  auto const block = finished(encoder);
  std::string text;
  for (char const byte : block) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += digits;
  }
  EXPECT_EQ(text.substr(0, 2 * 32),
            "54424c4b"            // TBLK
            "2c000000"            // bytes of payload
            "02000000"            // events
            "00000000"            // lost
            "1100000000000000"    // thread
            "e803000000000000");  // time
  EXPECT_EQ(text.substr(2 * 48),
            "03011900"  // a location, 25 bytes
            "00"
            "01000000"
            "00000000"
            "ab00000000000000"
            "0900000000000000"
            "10"
            "00"
            "0a"
            "0001"
            "00e0"  // allocation: 1 byte of time, 2 of size, 2 of address
            "15"
            "00"
            "2201"
            "0001"
            "0000"        // free: 2 bytes of time
            "00000000");  // padding to a multiple of 8
  std::uint64_t words[4];
  std::memcpy(words, block.data(), sizeof words);
  std::uint64_t sum{};
  std::uint64_t sum_of_sums{};
  for (std::size_t i = 0; i < block.size(); i += 8) {
    if (i >= 32 && i < 48) { continue; }
    std::uint64_t word{};
    std::memcpy(&word, block.data() + i, 8);
    sum += word;
    sum_of_sums += sum;
  }
  block_header header;
  std::memcpy(&header, block.data(), sizeof header);
  EXPECT_EQ(header.sum, sum);
  EXPECT_EQ(header.sum_of_sums, sum_of_sums);
}

TEST(TraceFormat, HasAHeaderOf64Bytes)
{
  auto const text = small_trace();
  EXPECT_EQ(text.substr(0, 8), "RMMTRACE");
  EXPECT_EQ(text.substr(8, 8), std::string("\x01\0\0\0\x40\0\0\0", 8));
  EXPECT_EQ(text.substr(64, 4), "TBLK");
}

TEST(TraceReader, ReadsWhatWasWritten)
{
  auto const trace = read(small_trace());
  EXPECT_EQ(trace.header.process, 4711);
  EXPECT_EQ(trace.header.wall_time_ns, 1'700'000'000'000'000'000);
  EXPECT_THAT(trace.threads, ElementsAre(17, 18));
  EXPECT_THAT(trace.tags, ElementsAre("", "loader"));
  ASSERT_THAT(trace.places, SizeIs(2));
  EXPECT_EQ(trace.places[0], (place{1, 1, 0xab, 9}));
  EXPECT_EQ(trace.places[1], (place{1, 0, 0, 0}));
  EXPECT_EQ(trace.lost, 2);
  EXPECT_FALSE(trace.cut_off_at.has_value());
  ASSERT_THAT(trace.events, SizeIs(6));
  auto const& failure = trace.events[4];
  EXPECT_EQ(failure.what, kind::allocate_failure);
  EXPECT_EQ(failure.bytes, 1'000'000'000'000);
  EXPECT_EQ(failure.address, 0);
  auto const& last = trace.events[5];
  EXPECT_EQ(last.what, kind::free);
  EXPECT_EQ(last.time_ns, 2'000'000);
  EXPECT_EQ(last.address, 0x7f0000000000);
  EXPECT_EQ(last.thread, 0);
}

TEST(TraceReader, PutsTheEventsOfAllThreadsInOrder)
{
  std::vector<std::uint64_t> times;
  for (auto const& event : read(small_trace()).events) { times.push_back(event.time_ns); }
  EXPECT_THAT(times, ElementsAre(1005, 1010, 1020, 1030, 1300, 2'000'000));
}

TEST(TraceReader, PutsFreesBeforeAllocationsOfTheSameTime)
{
  block_encoder encoder{capacity};
  auto text = bytes_of({});
  for (auto const what : {kind::allocate, kind::free}) {
    encoder.begin(static_cast<std::uint64_t>(what), 100, 0);
    encoder.define_place(0, {});
    encoder.add(what, 0, 100, 1, 0x100);
    text += finished(encoder);
  }
  auto const trace = read(text);
  ASSERT_THAT(trace.events, SizeIs(2));
  EXPECT_EQ(trace.events[0].what, kind::free);
}

TEST(TraceReader, ReadsStacks)
{
  auto const trace = read(small_trace());
  ASSERT_THAT(trace.stacks, SizeIs(1));
  EXPECT_THAT(trace.stacks[0], ElementsAre(0x401000, 0x402000));
  EXPECT_EQ(trace.frame_names.at(0x401000), "main from program");
  EXPECT_EQ(trace.events[0].stack, 0);
  EXPECT_EQ(trace.events[1].stack, no_stack);
}

TEST(TraceReader, ReadsATraceWithoutEvents) { EXPECT_THAT(read(bytes_of({})).events, IsEmpty()); }

TEST(TraceReader, ReadsNumbersOfEveryLength)
{
  block_encoder encoder{capacity};
  encoder.begin(1, 0, 0);
  encoder.define_place(255, {});
  std::vector<event> expected;
  std::uint64_t time = 0;
  for (unsigned bits = 0; bits < 64; ++bits) {
    auto const number = std::uint64_t{1} << bits;
    time += bits < 40 ? number : 1;
    expected.push_back({time, 0 - number, number - 1, 0, 0, no_stack, kind::allocate});
    encoder.add(kind::allocate, 255, time, number - 1, 0 - number);
  }
  auto const trace = read(bytes_of({}) + finished(encoder));
  ASSERT_EQ(trace.events.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(trace.events[i].time_ns, expected[i].time_ns);
    EXPECT_EQ(trace.events[i].bytes, expected[i].bytes);
    EXPECT_EQ(trace.events[i].address, expected[i].address);
  }
}

TEST(TraceReader, ReplacesATimeThatGoesBackByThePreviousTime)
{
  block_encoder encoder{capacity};
  encoder.begin(1, 100, 0);
  encoder.define_place(0, {});
  encoder.add(kind::allocate, 0, 200, 1, 1);
  encoder.add(kind::free, 0, 150, 1, 1);
  EXPECT_EQ(read(bytes_of({}) + finished(encoder)).events[1].time_ns, 200);
}

TEST(TraceReader, SkipsUnknownRecords)
{
  std::string const unknown("\x03\x63\x02\x00xy", 6);
  EXPECT_THAT(read(bytes_of({}) + block_of(unknown, 0)).events, IsEmpty());
}

TEST(TraceReader, ReadsATraceUpToATruncatedBlock)
{
  auto const whole = small_trace();
  auto const first = sizeof(file_header) + sizeof(block_header) + [&] {
    block_header header;
    std::memcpy(&header, whole.data() + sizeof(file_header), sizeof header);
    return (header.payload_bytes + 7U) / 8 * 8;
  }();
  for (auto size = sizeof(file_header); size < whole.size(); ++size) {
    auto const trace = read(whole.substr(0, size));
    EXPECT_EQ(trace.events.size(), size < first ? 0 : 3) << size;
    bool const is_whole = size == sizeof(file_header) || size == first;
    EXPECT_EQ(trace.cut_off_at.has_value(), !is_whole) << size;
  }
}

TEST(TraceReader, FindsEveryChangedBitOfABlock)
{
  auto const whole = small_trace();
  for (auto at = sizeof(file_header); at < whole.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      auto text = whole;
      text[at]  = static_cast<char>(text[at] ^ (1 << bit));
      try {
        EXPECT_TRUE(read(text).cut_off_at.has_value()) << at;  // the length exceeds the file
      } catch (bad_trace const& e) {
        EXPECT_LE(e.offset(), at);
      }
    }
  }
}

TEST(TraceReader, RefusesFilesThatAreNotTraces)
{
  refuses("", "the file: at byte 0: this is not a trace");
  refuses("Thread,Time,Action,Pointer,Size,Stream\n", "this is not a trace");
  refuses("RMMTRACE", "the header is cut off");
}

TEST(TraceReader, RefusesAnotherVersion)
{
  file_header header;
  header.version = 2;
  refuses(bytes_of(header), "at byte 8: version 2 of the format is not known");
}

TEST(TraceReader, RefusesAHeaderOfAWrongLength)
{
  file_header header;
  header.header_bytes = 32;
  refuses(bytes_of(header), "at byte 12: the header has a wrong length");
  header.header_bytes = 1U << 20U;
  refuses(bytes_of(header), "at byte 12: the header has a wrong length");
}

TEST(TraceReader, ReportsWhereABlockIsWrong)
{
  auto const header = bytes_of({});
  refuses(header + std::string(48, 'x'), "at byte 64: no block begins here");
  refuses(header + block_of(std::string("\x00\x05\x01\x01\x01\x01", 6), 1),
          "an event is at a place that the block does not define");
  refuses(header + block_of(std::string("\x07\x01\x00\x00", 4), 0), "at byte 114: a record is of an unknown kind");
  refuses(header + block_of(std::string("\x03\x01\xff\x00", 4), 0), "the block ends within a record");
  refuses(header + block_of(std::string("\x03\x01\x02\x00xy", 6), 0), "a record is too short");
  refuses(header + block_of(std::string("\x03\x02\x02\x00xy", 6), 0), "a record is too short");
  refuses(header + block_of(std::string("\x03\x03\x02\x00xy", 6), 0), "a stack has a wrong length");
  refuses(header + block_of(std::string("\x03\x02\x04\x00\0\0\0\0", 8), 0),
          "a tag has the number 0, which means no tag");
  refuses(header + block_of("", 1), "the number of events differs from that in the header of the block");
  auto place = std::string("\x03\x01\x19\x00", 4) + std::string(25, '\0');
  place[9]   = 7;
  refuses(header + block_of(place, 0), "a place has a tag that the block does not name");
  place    = std::string("\x03\x01\x19\x00", 4) + std::string(25, '\0');
  place[6] = 4;
  refuses(header + block_of(place, 0), "a place has an impossible device number");
  place[8] = '\xff';
  refuses(header + block_of(place, 0), "a place has an impossible device number");
}

TEST(TraceReader, SurvivesAnyPayload)
{
  rmm::test::for_each_seed(200, [](std::uint64_t seed) {
    std::mt19937_64 random{seed};
    for (int i = 0; i < 50; ++i) {
      auto payload = std::string("\x03\x01\x19\x00", 4) + std::string(25, '\0');  // makes some events valid
      for (auto bytes = random() % 200; bytes > 0; --bytes) {
        payload += static_cast<char>(random() % 4 == 0 ? 3 : random());
      }
      try {
        EXPECT_LE(read(bytes_of({}) + block_of(payload, static_cast<std::uint32_t>(random() % 8))).events.size(), 8);
      } catch (bad_trace const& e) {
        EXPECT_GE(e.offset(), 64 + 48);
        EXPECT_LE(e.offset(), 64 + 48 + payload.size());
      }
    }
  });
}

TEST(TraceReader, ReadsTheFilesOfARunTogether)
{
  temporary_folder const folder;
  auto const write = [&](std::string const& name, std::uint64_t run, std::uint32_t part, std::uint64_t size) {
    file_header header;
    header.run  = run;
    header.part = part;
    block_encoder encoder{capacity};
    encoder.begin(1, part, 0);
    encoder.define_place(0, {});
    encoder.add(kind::allocate, 0, part, size, 1);
    std::ofstream{folder / name, std::ios::binary} << bytes_of(header) << finished(encoder);
  };
  auto const sizes = [&](std::string const& name) {
    std::vector<std::uint64_t> result;
    for (auto const& event : trace_reader::read(folder / name).events) { result.push_back(event.bytes); }
    return result;
  };
  write("t", 5, 0, 100);
  write("t.1", 5, 1, 101);
  write("t.2", 5, 2, 102);
  write("t.10", 5, 10, 110);
  write("t.3", 4, 3, 103);  // of an earlier run
  write("t.x4", 5, 4, 104);
  std::ofstream{folder / "t.4"} << "something else";
  EXPECT_THAT(sizes("t"), ElementsAre(100, 101, 102, 110));
  EXPECT_THAT(sizes("t.2"), ElementsAre(102));
  std::filesystem::remove(folder / "t");
  std::filesystem::remove(folder / "t.1");
  EXPECT_THAT(sizes("t"), ElementsAre(102, 110));
}

TEST(TraceReader, ReportsWhyAFileCannotBeRead)
{
  EXPECT_THAT([] { static_cast<void>(trace_reader::read(std::string{"no/such/file"})); },
              ThrowsMessage<std::runtime_error>(HasSubstr("no/such/file: No such file")));
}

}  // namespace
