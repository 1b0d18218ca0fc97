// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/utilities/log_parser.hpp>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>

#include <tests/support/temporary_folder.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using rmm::detail::action;
using rmm::detail::event;
using rmm::detail::log_damage;
using rmm::detail::parse_csv;
using rmm::detail::parse_time;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

std::string const header = "Thread,Time,Action,Pointer,Size,Stream\n";

std::vector<event> parsed(std::string const& text)
{
  std::istringstream in{text};
  return parse_csv(in);
}

TEST(LogEvent, IsMadeOfBracedLists)
{
  int object{};
  void* const ptr = &object;
  auto const take = [](event const& e) { return e.pointer; };
  EXPECT_EQ(take({action::ALLOCATE, 100, ptr}), reinterpret_cast<std::uintptr_t>(ptr));
  EXPECT_EQ(take({action::FREE, 100, std::uintptr_t{77}}), 77);
  EXPECT_EQ(take({action::ALLOCATE_FAILURE, 100, nullptr}), 0);
  EXPECT_EQ(take({1, action::ALLOCATE, 100, ptr, 2, 3}), reinterpret_cast<std::uintptr_t>(ptr));
}

TEST(LogEvent, HoldsWhatItWasMadeOf)
{
  event const e{1, action::FREE, 100, std::uintptr_t{0x1000}, 2, 3};
  EXPECT_EQ(e.thread_id, 1);
  EXPECT_EQ(e.act, action::FREE);
  EXPECT_EQ(e.size, 100);
  EXPECT_EQ(e.pointer, 0x1000);
  EXPECT_EQ(e.stream, 2);
  EXPECT_EQ(e.index, 3);
}

TEST(LogEvent, IsCopiedAndMoved)
{
  static_assert(std::is_copy_constructible_v<event> && std::is_copy_assignable_v<event>);
  static_assert(std::is_move_constructible_v<event> && std::is_move_assignable_v<event>);
  static_assert(std::is_default_constructible_v<event>);
}

TEST(LogEvent, IsPrinted)
{
  std::ostringstream out;
  out << event{1, action::FREE, 100, std::uintptr_t{0x1000}, 2, 3} << ' ' << 10;
  EXPECT_EQ(out.str(), "event 3: thread 1, free, 100 bytes at 0x1000, stream 0x2 10");
}

TEST(LogParser, ReadsEveryColumn)
{
  auto const events = parsed(header + "17,10:00:00.5,allocate,0x1000,256,0xab\n");
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].thread_id, 17);
  EXPECT_EQ(events[0].act, action::ALLOCATE);
  EXPECT_EQ(events[0].pointer, 0x1000);
  EXPECT_EQ(events[0].size, 256);
  EXPECT_EQ(events[0].stream, 0xab);
  EXPECT_EQ(events[0].index, 0);
}

TEST(LogParser, NumbersTheRows)
{
  auto const events = parsed(header + "1,t,allocate,0x1,1,0\n1,t,free,0x1,1,0\n1,t,allocate failure,0x0,9,0\n");
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[2].index, 2);
  EXPECT_EQ(events[2].act, action::ALLOCATE_FAILURE);
}

TEST(LogParser, FindsColumnsByName)
{
  auto const events = parsed("Size,Stream,Pointer,Extra,Action,Time,Thread\n256,0x2,0x1000,what,free,t,5\n");
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].thread_id, 5);
  EXPECT_EQ(events[0].size, 256);
  EXPECT_EQ(events[0].stream, 2);
}

TEST(LogParser, TakesLogsWithoutThreads)
{
  auto const events = parsed(
    "Time,Action,Pointer,Size,Stream\n10:00:00:000001,allocate,0x1000,256,0x2\n"
    "10:00:00:000003,free,0x1000,256,0x2\n");
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[1].thread_id, 0);
  EXPECT_EQ(events[1].act, action::FREE);
  EXPECT_EQ(events[1].pointer, 0x1000);
  EXPECT_EQ(events[1].size, 256);
  EXPECT_EQ(events[1].stream, 2);
  EXPECT_EQ(events[1].time_ns, 2000);
}

TEST(LogParser, ReadsPointersWithAndWithoutPrefixAndNil)
{
  auto const events = parsed(header + "1,t,allocate,0xFf,1,(nil)\n1,t,allocate,ff,1,1f\n1,t,allocate,(nil),0,0\n");
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].pointer, 255);
  EXPECT_EQ(events[0].stream, 0);
  EXPECT_EQ(events[1].pointer, 255);
  EXPECT_EQ(events[1].stream, 31);
  EXPECT_EQ(events[2].pointer, 0);
}

TEST(LogParser, DoesNotInterpretTheTime) { EXPECT_THAT(parsed(header + "1,,allocate,0x1,1,0\n"), SizeIs(1)); }

TEST(LogParser, ReadsLinesOfOtherSystems) { EXPECT_EQ(parsed(header + "1,t,free,0x1,1,0xc\r\n")[0].stream, 12); }

TEST(LogParser, ReadsAnEmptyLog) { EXPECT_THAT(parsed(header), IsEmpty()); }

TEST(LogParser, RefusesAnUnknownAction)
{
  EXPECT_THAT([] { parsed(header + "1,t,reallocate,0x1,1,0\n"); },
              ThrowsMessage<rmm::logic_error>(HasSubstr("'reallocate' is not an action of the log")));
}

TEST(LogParser, RefusesColumnsOfUnequalLength)
{
  EXPECT_THAT([] { parsed(header + "1,t,allocate,0x1,1,0\n1,t,free,0x1\n"); },
              ThrowsMessage<rmm::logic_error>(HasSubstr("the row has 4 fields, but the log has 6 columns.")));
}

TEST(LogParser, RefusesMoreFieldsThanThereAreColumns)
{
  EXPECT_THAT([] { parsed(header + "1,t,allocate,0x1,1,0,3\n"); },
              ThrowsMessage<rmm::logic_error>("line 2: the row has 7 fields, but the log has 6 columns."));
}

TEST(LogParser, LeavesOutALastRowThatWasNotFinished)
{
  auto const row = std::string{"1,t,allocate,0x1,1,0\n"};
  log_damage damage;
  auto const cut = [&](std::string const& text) {
    std::istringstream in{text};
    damage = {};
    return parse_csv(in, &damage);
  };
  EXPECT_THAT(cut(header + row + "1,t,free,0x1"), SizeIs(1));
  EXPECT_EQ(damage.cut_off_at, header.size() + row.size());
  EXPECT_THAT(cut(header + row + row.substr(0, row.size() - 1)), SizeIs(2));  // only the end of the line lacks
  EXPECT_FALSE(damage.cut_off_at.has_value());
  EXPECT_THROW(cut(header + "1,t,free,0x1\n" + row), rmm::logic_error);
  EXPECT_THROW(cut(header + row + "1,t,free,0x1\n"), rmm::logic_error);
}

TEST(LogParser, CountsRowsWhoseTimeItCannotRead)
{
  std::string text{header};
  for (auto const* const time : {"10:00:00.000001", "nan", "hello", "", "10:00:00.000003", "25:00:00"}) {
    text += std::string{"1,"} + time + ",allocate,0x1,1,0\n";
  }
  std::istringstream in{text};
  log_damage damage;
  auto const events = parse_csv(in, &damage);
  EXPECT_EQ(damage.without_time, 4);
  EXPECT_EQ(events[3].time_ns, 0);
  EXPECT_EQ(events[5].time_ns, 2000);
}

TEST(LogParser, QuotesFieldsAsShortPrintableText)
{
  auto const hostile = "\x1B]0;title\x07\x1B[31m\xC2\x9B" + std::string(5'000'000, '0');
  auto const zeros   = std::string(5'000'000, '0') + "1024";
  for (auto const& row : {hostile + ",0,allocate,0x1,1,0,0",
                          "1,0," + hostile + ",0x1,1,0,0",
                          "1,0,allocate," + hostile + ",1,0,0",
                          "1,0,allocate,0x1," + hostile + ",0,0",
                          "1,0,allocate,0x1,1," + hostile + ",0",
                          "1,0,allocate,0x1,1,0," + hostile,
                          "1,0,allocate,0x1,1,0," + zeros}) {
    try {
      parsed("Thread,Time,Action,Pointer,Size,Stream,Device\n" + row + "\n");
      ADD_FAILURE() << "the row was read";
    } catch (rmm::logic_error const& error) {
      std::string const what{error.what()};
      EXPECT_LT(what.size(), 200);
      EXPECT_TRUE(std::all_of(what.begin(), what.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    }
  }
  EXPECT_THAT([&] { static_cast<void>(parse_time(hostile)); },
              ThrowsMessage<rmm::logic_error>(HasSubstr("'?]0;title??[31m??000")));
}

TEST(LogParser, RefusesAMissingColumn)
{
  EXPECT_THAT([] { parsed("Thread,Time,Action,Pointer,Size\n1,t,free,0x1,1\n"); },
              ThrowsMessage<rmm::logic_error>(HasSubstr("Stream")));
}

TEST(LogParser, RefusesTextThatIsNotANumber)
{
  EXPECT_THROW(parsed(header + "x,t,free,0x1,1,0\n"), rmm::logic_error);
  EXPECT_THROW(parsed(header + "1,t,free,0x1g,1,0\n"), rmm::logic_error);
  EXPECT_THROW(parsed(header + "1,t,free,0x1,-1,0\n"), rmm::logic_error);
  EXPECT_THROW(parsed(header + "1,t,free,0x,1,0\n"), rmm::logic_error);
}

TEST(LogParser, RefusesDevicesThatCannotBe)
{
  auto const with_device = [](std::string const& device) {
    return parsed("Thread,Time,Action,Pointer,Size,Stream,Device\n1,t,free,0x1,1,0," + device + "\n");
  };
  EXPECT_EQ(with_device("1023")[0].device, 1023);
  EXPECT_THROW(with_device("1024"), rmm::logic_error);
  EXPECT_THROW(with_device("-1"), rmm::logic_error);
}

TEST(LogParser, TellsTheLineThatIsWrong)
{
  auto const good = "1,t,free,0x1,1,0\n";
  EXPECT_THAT([&] { parsed(header + good + "\n" + good + "1,t,free,zz,1,0\n"); },
              ThrowsMessage<rmm::logic_error>("line 5: 'zz' is not a number of the log."));
  EXPECT_THAT([] { parsed("nothing\n"); }, ThrowsMessage<rmm::logic_error>(HasSubstr("line 1: ")));
}

TEST(LogParser, RefusesAFileThatIsNotThere) { EXPECT_THROW(parse_csv(std::string{"no such file"}), rmm::logic_error); }

TEST(LogParser, ReadsWhatTheLoggingAdaptorWrites)
{
  rmm::test::temporary_folder const folder;
  auto const path = folder / "log.csv";
  rmm::mr::cuda_memory_resource cuda;
  void* ptr{};
  {
    rmm::mr::logging_resource_adaptor<rmm::mr::cuda_memory_resource> logging{&cuda, path, true};
    ptr = logging.allocate(1000, rmm::cuda_stream_legacy);
    logging.deallocate(ptr, 1000, rmm::cuda_stream_per_thread);
  }
  auto const events = parse_csv(path);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].act, action::ALLOCATE);
  EXPECT_EQ(events[0].pointer, reinterpret_cast<std::uintptr_t>(ptr));
  EXPECT_EQ(events[0].size, 1000);
  EXPECT_EQ(events[0].stream, 1);
  EXPECT_EQ(events[1].act, action::FREE);
  EXPECT_EQ(events[1].stream, 2);
}

TEST(LogEvent, IsPrintedWithItsDeviceUnlessThatIsTheFirst)
{
  event row{7, action::FREE, 4660, std::uintptr_t{0xABC0}, 0x55, 30};
  std::ostringstream first;
  first << row << '.' << 16;
  EXPECT_EQ(first.str(), "event 30: thread 7, free, 4660 bytes at 0xabc0, stream 0x55.16");
  row.device = 12;
  std::ostringstream other;
  other << row << '.' << 16;
  EXPECT_EQ(other.str(), "event 30: thread 7, free, 4660 bytes at 0xabc0, stream 0x55, device 12.16");
}

TEST(LogTime, CountsMicroseconds)
{
  EXPECT_EQ(parse_time("10:20:31.000007") - parse_time("10:20:30.000000"), std::chrono::microseconds{1'000'007});
  EXPECT_EQ(parse_time("10:20:30:000007"), parse_time("10:20:30.000007"));
  EXPECT_EQ(parse_time("10:20:30"), parse_time("10:20:30.000000"));
}

TEST(LogTime, IsAMomentOfToday)
{
  auto const noon = parse_time("12:00:00");
  auto const now  = std::chrono::system_clock::now();
  EXPECT_LT(noon, now + std::chrono::hours{14});
  EXPECT_GT(noon, now - std::chrono::hours{14});
}

TEST(LogTime, KnowsThatTheClockIsSetBackToday)
{
  auto const now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  auto const* const before = std::getenv("TZ");
  auto const old           = before != nullptr ? std::optional<std::string>{before} : std::nullopt;
  // Summer time began 100 days ago, and ends today at noon.
  auto const zone =
    "XXX0YYY," + std::to_string((day.tm_yday + 265) % 365) + "/12," + std::to_string(day.tm_yday) + "/12";
  ASSERT_EQ(::setenv("TZ", zone.c_str(), 1), 0);
  ::tzset();
  EXPECT_EQ(parse_time("20:00:00") - parse_time("10:00:00"), std::chrono::hours{11});
  EXPECT_EQ(parse_time("10:00:00") - parse_time("09:00:00"), std::chrono::hours{1});
  EXPECT_EQ(parse_time("21:00:00") - parse_time("20:00:00"), std::chrono::hours{1});
  EXPECT_EQ(old ? ::setenv("TZ", old->c_str(), 1) : ::unsetenv("TZ"), 0);
  ::tzset();
}

TEST(LogTime, RefusesInvalidTimes)
{
  EXPECT_THROW(parse_time(""), rmm::logic_error);
  EXPECT_THROW(parse_time("10:20"), rmm::logic_error);
  EXPECT_THROW(parse_time("24:00:00.0"), rmm::logic_error);
  EXPECT_THROW(parse_time("10:20:30.1 "), rmm::logic_error);
}

}  // namespace
