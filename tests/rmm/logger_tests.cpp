// SPDX-License-Identifier: Apache-2.0
#include "../support/mock_resource.hpp"
#include "../support/temporary_folder.hpp"

#include <rmm/detail/base/log_hook.hpp>
#include <rmm/logger.hpp>
#include <rmm/logger_macros.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ostream_sink.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>

namespace {

using namespace rmm::test;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// The log of this process is a file in a temporary folder.
struct log_file {
  temporary_folder folder;
  std::string name{folder / "debug.txt"};
  log_file() { ::setenv("RMM_DEBUG_LOG_FILE", name.c_str(), 1); }
};
log_file const debug_log;

// Records the lines that are logged while the object exists.
struct DebugLog : ::testing::Test {
  std::ostringstream out;
  spdlog::level::level_enum old_level{rmm::logger().level()};

  void SetUp() override
  {
    rmm::logger().sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_st>(out));
    rmm::logger().sinks().back()->set_pattern("%l: %v");
  }
  void TearDown() override
  {
    rmm::logger().sinks().pop_back();
    rmm::logger().set_level(old_level);
  }
};

TEST_F(DebugLog, IsOneLoggerNamedRmm)
{
  EXPECT_EQ(&rmm::logger(), &rmm::logger());
  EXPECT_EQ(&rmm::logger(), &rmm::detail::logger());
  EXPECT_EQ(rmm::logger().name(), "RMM");
  EXPECT_EQ(rmm::logger().flush_level(), spdlog::level::warn);
}

TEST_F(DebugLog, GoesToTheFileThatTheEnvironmentNames)
{
  EXPECT_EQ(rmm::detail::default_log_filename(), debug_log.name);
  EXPECT_THAT(contents_of(debug_log.name),
              MatchesRegex("\\[ *[0-9]+\\]\\[[0-9:]+\\]\\[info  \\] ----- RMM LOG BEGIN "
                           "\\[PTDS (DISABLED|ENABLED)\\] -----\n(.|\n)*"));
}

TEST_F(DebugLog, HasADefaultFile)
{
  environment_variable const variable{"RMM_DEBUG_LOG_FILE"};
  variable.unset();
  EXPECT_EQ(rmm::detail::default_log_filename(), "rmm_log.txt");
  variable.set("");
  EXPECT_EQ(rmm::detail::default_log_filename(), "rmm_log.txt");
}

TEST_F(DebugLog, TakesPlainMessages)
{
  RMM_LOG_INFO("100% {} of it");
  RMM_LOG_WARN(std::string{"a string"});
  EXPECT_EQ(out.str(), "info: 100% {} of it\nwarning: a string\n");
}

TEST_F(DebugLog, TakesPlaceholdersOfFmt)
{
  int number{7};
  RMM_LOG_INFO("{} and {:04x} of {}", std::string{"text"}, 255, static_cast<void*>(nullptr));
  RMM_LOG_INFO("{0}, {0}", "twice");
  RMM_LOG_INFO("{}", &number);
  EXPECT_THAT(out.str(), MatchesRegex("info: text and 00ff of 0x0\ninfo: twice, twice\ninfo: 0x[0-9a-f]+\n"));
}

TEST_F(DebugLog, TakesFormatsOfPrintf)
{
  RMM_LOG_ERROR("%s and %04x of {%zu}", std::string{"text"}, 255U, sizeof(char));
  EXPECT_EQ(out.str(), "error: text and 00ff of {1}\n");
}

TEST_F(DebugLog, TakesFormatsThatAreStrings)
{
  std::string const number{"%d of %-3zu|"};
  std::string text{"%s"};
  RMM_LOG_INFO(number, 5, sizeof(char));
  RMM_LOG_WARN(text + ": %.*f, %p, %c, %5.1Lf%%", "x", 2, 0.5, static_cast<void*>(nullptr), 'c', 1.0L);
  RMM_LOG_INFO(std::string{"{} and {:04x}"}, std::string{"text"}, 255);
  RMM_LOG_INFO(std::string{"of {}: %d"}, 5);  // the text is fmt's, but the arguments are formatted by printf
  EXPECT_EQ(out.str(), "info: 5 of 1  |\nwarning: x: 0.50, (nil), c,   1.0%\ninfo: text and 00ff\ninfo: of {}: 5\n");
}

TEST_F(DebugLog, TakesAStringAsItIsIfTheArgumentsDoNotFit)
{
  int written{7};
  RMM_LOG_INFO(std::string{"%s"});  // without arguments
  for (auto const* const format : {"%s", "%d %d", "%n", "%f", "%ls", "%Lf", "%", "%1$d", "%", "{1}", "{:s} %"}) {
    out.str("");
    RMM_LOG_INFO(std::string{format}, 5);
    EXPECT_EQ(out.str(), std::string{"info: "} + format + "\n");
  }
  out.str("");
  RMM_LOG_INFO(std::string{"%d%n"}, 5, &written);
  RMM_LOG_INFO(std::string{"%d"}, std::string{"text"});
  RMM_LOG_INFO(std::string{"%*d"}, "x", 5);
  RMM_LOG_INFO(std::string{"%d, 100%%"}, 5, "not used");
  EXPECT_EQ(out.str(), "info: %d%n\ninfo: %d\ninfo: %*d\ninfo: 5, 100%\n");
  EXPECT_EQ(written, 7);
}

TEST_F(DebugLog, TakesWhatConvertsToAString)
{
  struct name {
    operator std::string() const { return "%d"; }
  };
  RMM_LOG_INFO(name{});
  RMM_LOG_INFO(name{}, 5);
  EXPECT_EQ(out.str(), "info: %d\ninfo: 5\n");
}

TEST_F(DebugLog, PrintsSizes)
{
  using rmm::detail::bytes;
  std::ostringstream text;
  text << bytes{1024} << ", " << bytes{1536} << ", " << bytes{std::size_t{3} << 30};
  EXPECT_EQ(text.str(), "1024 B, 1.5 KiB, 3 GiB");
  RMM_LOG_INFO("{}", bytes{1536});
  EXPECT_EQ(out.str(), "info: 1.5 KiB\n");
}

TEST_F(DebugLog, DropsWhatIsBelowItsLevelAtRunTime)
{
  rmm::logger().set_level(spdlog::level::err);
  RMM_LOG_WARN("dropped");
  RMM_LOG_ERROR("kept");
  EXPECT_EQ(out.str(), "error: kept\n");
}

TEST_F(DebugLog, DoesNotEvaluateWhatIsBelowTheLevelOfTheBuild)
{
  int evaluated{0};
  rmm::logger().set_level(spdlog::level::trace);
  RMM_LOG_TRACE("%d", ++evaluated);
  EXPECT_EQ(evaluated, RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_TRACE ? 1 : 0);
}

TEST_F(DebugLog, NumbersTheLevelsAlikeUnderAllNames)
{
  static_assert(RMM_LOG_LEVEL_TRACE == 0 && RMM_LOG_LEVEL_OFF == 6);
  static_assert(RMM_LOG_LEVEL_WARN == RAPIDS_LOGGER_LOG_LEVEL_WARN && RMM_LOG_LEVEL_WARN == SPDLOG_LEVEL_WARN);
  static_assert(static_cast<int>(rmm::level_enum::critical) == RMM_LOG_LEVEL_CRITICAL);
}

TEST_F(DebugLog, ReceivesMessagesOfHeadersWithoutSpdlog)
{
  rmm::detail::log(rmm::detail::log_level::error, "from afar");
  EXPECT_EQ(out.str(), "error: from afar\n");
}

TEST_F(DebugLog, ReceivesUnknownDeallocationsOfTheTrackingAdaptor)
{
  ::testing::NiceMock<mock_resource> mock;
  rmm::mr::tracking_resource_adaptor mr{&mock};
  mr.deallocate(address(0x1000), 10);
  EXPECT_THAT(out.str(), HasSubstr("error: Deallocating 10 bytes at 0x1000"));
}

TEST_F(DebugLog, ListsOutstandingAllocationsAtLevelDebug)
{
  ::testing::NiceMock<mock_resource> mock;
  EXPECT_CALL(mock, do_allocate).WillOnce(::testing::Return(address(0x1000)));
  rmm::mr::tracking_resource_adaptor mr{&mock};
  rmm::logger().set_level(spdlog::level::debug);
  mr.allocate(10);
  mr.log_outstanding_allocations();
  EXPECT_EQ(out.str(),
            RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_DEBUG ? "debug: Outstanding Allocations: 0x1000: 10 B\n\n" : "");
}

// The names of 25.02 and later.

TEST_F(DebugLog, IsTheSameUnderItsLaterName)
{
  rmm::default_logger().info("%d", 5);
  EXPECT_EQ(out.str(), "info: 5\n");
  rmm::default_logger().set_level(rmm::level_enum::error);
  EXPECT_EQ(rmm::logger().level(), spdlog::level::err);
  rmm::logger().set_level(spdlog::level::trace);
  EXPECT_EQ(rmm::default_logger().level(), rmm::level_enum::trace);
  EXPECT_EQ(rmm::default_logger().flush_level(), rmm::level_enum::warn);
}

TEST_F(DebugLog, WritesToSinksOfItsLaterName)
{
  std::ostringstream later;
  rmm::default_logger().sinks().push_back(std::make_shared<rmm::ostream_sink_mt>(later));
  RMM_LOG_INFO("%s", "x");
  rmm::default_logger().sinks().pop_back();
  RMM_LOG_INFO("not there");
  EXPECT_THAT(later.str(), MatchesRegex("\\[ *[0-9]+\\]\\[[0-9:]+\\]\\[info  \\] x\n"));
}

TEST_F(DebugLog, LendsItsFileToOtherLoggers)
{
  rapids_logger::logger other{"other", {rmm::default_sink()}};
  other.info("from another");
  other.flush();
  EXPECT_THAT(contents_of(debug_log.name), EndsWith("[info  ] from another\n"));
  EXPECT_EQ(rmm::default_pattern(), "[%6t][%H:%M:%S:%f][%-6l] %v");
}

// The allocation log with spdlog sinks.

TEST(AllocationLog, WritesToSinksOfSpdlog)
{
  temporary_folder const folder;
  ::testing::NiceMock<mock_resource> mock;
  std::ostringstream out;
  {
    auto const to_stream = std::make_shared<spdlog::sinks::ostream_sink_mt>(out);
    auto const to_file   = std::make_shared<spdlog::sinks::basic_file_sink_mt>(folder / "log.csv");
    rmm::mr::logging_resource_adaptor<mock_resource> mr{&mock, {to_stream, to_file}};
    mr.allocate(10);
  }
  EXPECT_THAT(out.str(), MatchesRegex("Thread,Time,Action,Pointer,Size,Stream\n[0-9]+,[0-9:.]+,allocate,0x0,10,0x0\n"));
  EXPECT_EQ(contents_of(folder / "log.csv"), out.str());
}

}  // namespace
