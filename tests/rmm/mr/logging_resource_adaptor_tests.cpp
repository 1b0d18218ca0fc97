// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/mock_resource.hpp"
#include "../../support/recycling_upstream.hpp"
#include "../../support/temporary_folder.hpp"

#include <rmm/detail/base/log_time.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>

#include <rapids_logger/logger.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <iostream>
#include <memory>
#include <new>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::mr::logging_resource_adaptor;
using rmm::mr::make_logging_adaptor;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Return;
using ::testing::StartsWith;
using ::testing::Throw;

std::string const header{"Thread,Time,Action,Pointer,Size,Stream\n"};

// Returns one line of the log as a POSIX extended regular expression.
std::string row(std::string const& action, std::string const& ptr, std::string const& size, std::string const& stream)
{
  return std::to_string(rmm::detail::thread_number()) +
         ",[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9][0-9][0-9][0-9][0-9][0-9]," + action + "," + ptr + "," + size + "," +
         stream + "\n";
}

struct Logging : ::testing::Test {
  ::testing::StrictMock<mock_resource> mock;
  std::ostringstream out;
  temporary_folder folder;
};

TEST_F(Logging, BeginsWithTheHeader)
{
  logging_resource_adaptor mr{&mock, out};
  EXPECT_EQ(out.str(), header);
  EXPECT_EQ(mr.header() + "\n", header);
}

TEST_F(Logging, WritesARowForEachAllocationAndDeallocation)
{
  logging_resource_adaptor mr{&mock, out};
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(address(0x7fab00001200)));
  EXPECT_CALL(mock, do_deallocate);
  mr.deallocate(mr.allocate(100, stream_handle(0x55c0ffee)), 100);
  EXPECT_THAT(out.str(),
              MatchesRegex(header + row("allocate", "0x7fab00001200", "100", "0x55c0ffee") +
                           row("free", "0x7fab00001200", "100", "0x0")));
}

TEST_F(Logging, WritesNullAsAZero)
{
  logging_resource_adaptor mr{&mock, out};
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(nullptr));
  mr.allocate(0);
  EXPECT_THAT(out.str(), MatchesRegex(header + row("allocate", "0x0", "0", "0x0")));
}

TEST_F(Logging, WritesTheLargestNumbers)
{
  logging_resource_adaptor mr{&mock, out};
  EXPECT_CALL(mock, do_deallocate);
  mr.deallocate(address(UINTPTR_MAX), SIZE_MAX - 1023, stream_handle(UINTPTR_MAX));
  EXPECT_THAT(out.str(),
              MatchesRegex(header + row("free", "0xffffffffffffffff", "18446744073709550592", "0xffffffffffffffff")));
}

TEST_F(Logging, WritesARowForAnAllocationThatFails)
{
  logging_resource_adaptor mr{&mock, out};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::out_of_memory{"full"})).WillOnce(Throw(7));
  EXPECT_THROW(mr.allocate(100), rmm::out_of_memory);
  EXPECT_THROW(mr.allocate(50, stream_handle(2)), int);
  EXPECT_THAT(
    out.str(),
    MatchesRegex(header + row("allocate failure", "0x0", "100", "0x0") + row("allocate failure", "0x0", "50", "0x2")));
}

TEST_F(Logging, WritesTheDeallocationBeforeUpstreamGetsTheMemoryBack)
{
  logging_resource_adaptor mr{&mock, out};
  EXPECT_CALL(mock, do_deallocate).WillOnce([&](auto&&...) { EXPECT_THAT(out.str(), HasSubstr(",free,0x1000,")); });
  mr.deallocate(address(0x1000), 10);
}

TEST_F(Logging, EmptiesTheFileOfItsName)
{
  auto const name = folder / "log.csv";
  {
    logging_resource_adaptor mr{&mock, name};
  }
  EXPECT_EQ(contents_of(name), header);
  {
    logging_resource_adaptor mr{&mock, name.c_str()};
  }
  EXPECT_EQ(contents_of(name), header);
}

TEST_F(Logging, WritesToAFileWhenFlushedAndAtTheEnd)
{
  auto const name = folder / "log.csv";
  {
    logging_resource_adaptor mr{&mock, name};
    EXPECT_EQ(contents_of(name), "");
    mr.flush();
    EXPECT_EQ(contents_of(name), header);
    EXPECT_CALL(mock, do_allocate).WillOnce(Return(nullptr));
    mr.allocate(0);
    EXPECT_EQ(contents_of(name), header);
  }
  EXPECT_THAT(contents_of(name), HasSubstr(",allocate,"));
}

TEST_F(Logging, FlushesNothingByItselfIfItComesFromAFactory)
{
  auto const name = folder / "log.csv";
  auto mr         = make_logging_adaptor(&mock, name);
  EXPECT_EQ(contents_of(name), "");
  mr.flush();
  EXPECT_EQ(contents_of(name), header);
}

TEST_F(Logging, FlushesEachLineIfAsked)
{
  auto const name = folder / "log.csv";
  logging_resource_adaptor mr{&mock, name, true};
  EXPECT_EQ(contents_of(name), header);
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(nullptr));
  mr.allocate(0);
  EXPECT_THAT(contents_of(name), HasSubstr(",allocate,"));
}

TEST_F(Logging, SaysThatTheFileCannotBeOpened)
{
  EXPECT_THROW((logging_resource_adaptor{&mock, folder / ""}), std::runtime_error);
}

TEST_F(Logging, LeavesTheFileAloneWhenUpstreamIsNull)
{
  auto const name = folder / "log.csv";
  {
    logging_resource_adaptor mr{&mock, name};
  }
  EXPECT_THROW((logging_resource_adaptor<mock_resource>{nullptr, name}), rmm::logic_error);
  EXPECT_EQ(contents_of(name), header);
}

TEST_F(Logging, TakesTheFileNameFromTheEnvironment)
{
  environment_variable const variable{"RMM_LOG_FILE"};
  auto const name = folder / "from_environment.csv";
  variable.set(name.c_str());
  EXPECT_EQ(logging_resource_adaptor<mock_resource>::get_default_filename(), name);
  {
    logging_resource_adaptor mr{&mock};
  }
  EXPECT_EQ(contents_of(name), header);
}

TEST_F(Logging, SaysThatNoFileNameIsKnown)
{
  environment_variable const variable{"RMM_LOG_FILE"};
  variable.unset();
  EXPECT_THROW(logging_resource_adaptor{&mock}, rmm::logic_error);
  EXPECT_THROW(static_cast<void>(make_logging_adaptor(&mock)), rmm::logic_error);
  try {
    static_cast<void>(logging_resource_adaptor<mock_resource>::get_default_filename());
    FAIL();
  } catch (rmm::logic_error const& e) {
    EXPECT_THAT(e.what(), HasSubstr("log file name is missing"));
  }
}

TEST_F(Logging, ComesFromFactories)
{
  auto const name = folder / "log.csv";
  {
    auto mr = make_logging_adaptor(&mock, name);
  }
  EXPECT_EQ(contents_of(name), header);
  auto mr = make_logging_adaptor(&mock, out);
  EXPECT_EQ(mr.get_upstream(), &mock);
  EXPECT_EQ(out.str(), header);
}

TEST_F(Logging, ShowsInCapturedStandardOutput)
{
  ::testing::internal::CaptureStdout();
  logging_resource_adaptor mr{&mock, std::cout};
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), header);
}

TEST_F(Logging, SurvivesAMove)
{
  logging_resource_adaptor<mock_resource> first{&mock, out};
  auto second = std::move(first);
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(nullptr));
  second.allocate(0);
  EXPECT_THAT(out.str(), MatchesRegex(header + row("allocate", "0x0", "0", "0x0")));
}

TEST_F(Logging, WritesToSeveralSinks)
{
  auto const name = folder / "log.csv";
  {
    auto const to_stream = std::make_shared<rapids_logger::ostream_sink_mt>(out);
    auto const to_file   = std::make_shared<rapids_logger::basic_file_sink_mt>(name, true);
    logging_resource_adaptor mr{&mock, {to_stream, to_file}};
    EXPECT_CALL(mock, do_allocate).WillOnce(Return(nullptr));
    mr.allocate(0);
  }
  EXPECT_THAT(out.str(), MatchesRegex(header + row("allocate", "0x0", "0", "0x0")));
  EXPECT_EQ(contents_of(name), out.str());
}

TEST_F(Logging, TakesAReferenceWithEachDestination)
{
  rmm::device_async_resource_ref const ref{mock};
  auto const name = folder / "log.csv";
  {
    logging_resource_adaptor mr{ref, name};
  }
  EXPECT_EQ(contents_of(name), header);
  logging_resource_adaptor to_stream{ref, out, true};
  logging_resource_adaptor to_sinks{ref, {std::make_shared<rapids_logger::ostream_sink_mt>(out)}};
  EXPECT_EQ(out.str(), header + header);
}

// A stream that throws on every write after the header.
struct broken_buffer : std::stringbuf {
  bool broken{false};
  std::streamsize xsputn(char const* text, std::streamsize size) override
  {
    if (broken) { throw std::runtime_error{"disk full"}; }
    return std::stringbuf::xsputn(text, size);
  }
};

TEST_F(Logging, DropsRowsInsteadOfLeakingMemory)
{
  counting_upstream upstream;
  broken_buffer buffer;
  std::ostream stream{&buffer};
  stream.exceptions(std::ios::badbit);
  {
    logging_resource_adaptor mr{&upstream, stream};
    buffer.broken = true;
    void* ptr{};
    EXPECT_NO_THROW(ptr = mr.allocate(100));
    EXPECT_NO_THROW(mr.deallocate(ptr, 100));
  }
  EXPECT_EQ(upstream.live_count(), 0U);
}

TEST_F(Logging, WritesWholeRowsOfAllThreadsInTheOrderOfTheirTimes)
{
  recycling_upstream upstream;
  logging_resource_adaptor mr{&upstream, out};
  run_on_threads(8, [&](int) {
    for (int i = 0; i < 500; ++i) { mr.deallocate(mr.allocate(100), 100); }
  });
  std::istringstream lines{out.str()};
  std::string line;
  std::getline(lines, line);
  std::string last_time;
  int count{0};
  for (; std::getline(lines, line); ++count) {
    std::vector<std::string> fields;
    std::istringstream columns{line};
    for (std::string field; std::getline(columns, field, ',');) { fields.push_back(field); }
    ASSERT_EQ(fields.size(), 6U) << line;
    bool const is_midnight = last_time.rfind("23:", 0) == 0 && fields[1].rfind("00:", 0) == 0;
    if (!is_midnight) { EXPECT_GE(fields[1], last_time); }
    last_time = fields[1];
  }
  EXPECT_EQ(count, 8 * 500 * 2);
}

}  // namespace
