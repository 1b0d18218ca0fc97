// SPDX-License-Identifier: Apache-2.0
#include "../support/recycling_upstream.hpp"
#include "../support/temporary_folder.hpp"

#include <rapids_logger/logger.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>

namespace {

using rapids_logger::level_enum;
using rapids_logger::logger;
using rapids_logger::ostream_sink_mt;
using ::testing::MatchesRegex;

struct RapidsLogger : ::testing::Test {
  std::ostringstream out;
  logger log{"test", out};

  void SetUp() override { log.set_pattern("%l: %v"); }
};

TEST_F(RapidsLogger, FormatsAsPrintfDoes)
{
  log.info("%d and %s", 5, std::string{"text"});
  EXPECT_EQ(out.str(), "info: 5 and text\n");
}

TEST_F(RapidsLogger, TakesAMessageAloneAsItIs)
{
  log.info("100% {}");
  EXPECT_EQ(out.str(), "info: 100% {}\n");
}

TEST_F(RapidsLogger, WritesTheLevelOfEachFunction)
{
  log.set_level(level_enum::trace);
  log.trace("a");
  log.debug("b");
  log.info("c");
  log.warn("d");
  log.error("e");
  log.critical("f");
  log.log(level_enum::warn, "g");
  EXPECT_EQ(out.str(), "trace: a\ndebug: b\ninfo: c\nwarning: d\nerror: e\ncritical: f\nwarning: g\n");
}

TEST_F(RapidsLogger, DropsWhatIsBelowItsLevel)
{
  EXPECT_EQ(log.level(), level_enum::info);
  log.debug("dropped");
  log.set_level(level_enum::error);
  log.warn("dropped");
  EXPECT_FALSE(log.should_log(level_enum::warn));
  EXPECT_TRUE(log.should_log(level_enum::error));
  log.set_level(level_enum::off);
  log.critical("dropped");
  EXPECT_FALSE(log.should_log(level_enum::critical));
  EXPECT_EQ(out.str(), "");
}

TEST_F(RapidsLogger, WritesThreadTimeAndLevelByDefault)
{
  logger fresh{"test", out};
  fresh.info("message");
  EXPECT_THAT(
    out.str(),
    MatchesRegex(
      "\\[ *[0-9]+\\]\\[[0-9][0-9]:[0-9][0-9]:[0-9][0-9]:[0-9][0-9][0-9][0-9][0-9][0-9]\\]\\[info  \\] message\n"));
}

TEST_F(RapidsLogger, PadsFields)
{
  log.set_pattern("<%6l|%-6l|%n|%%|%q>%v");
  log.info("m");
  EXPECT_EQ(out.str(), "<  info|info  |test|%|%q>m\n");
}

TEST_F(RapidsLogger, AddsAndRemovesSinks)
{
  std::ostringstream second;
  log.sinks().push_back(std::make_shared<ostream_sink_mt>(second));
  EXPECT_EQ(log.sinks().size(), 2U);
  log.info("both");
  log.sinks().pop_back();
  log.info("one");
  EXPECT_EQ(second.str(), "info: both\n");
  EXPECT_EQ(out.str(), "info: both\ninfo: one\n");
  log.sinks().clear();
  log.info("none");
  EXPECT_TRUE(log.sinks().empty());
}

TEST_F(RapidsLogger, IsMadeFromAListOfSinks)
{
  logger made{"test", {std::make_shared<ostream_sink_mt>(out), std::make_shared<ostream_sink_mt>(out)}};
  made.set_pattern("%v");
  made.info("x");
  EXPECT_EQ(out.str(), "x\nx\n");
}

TEST_F(RapidsLogger, SurvivesAMove)
{
  logger moved = std::move(log);
  moved.info("x");
  EXPECT_EQ(out.str(), "info: x\n");
}

TEST_F(RapidsLogger, AppendsToAFileAndFlushesAtALevel)
{
  rmm::test::temporary_folder const folder;
  auto const name = folder / "log";
  logger file{"test", name};
  file.set_pattern("%v");
  EXPECT_EQ(file.flush_level(), level_enum::off);
  file.flush_on(level_enum::warn);
  file.info("one");
  EXPECT_EQ(rmm::test::contents_of(name), "");
  file.warn("two");
  EXPECT_EQ(rmm::test::contents_of(name), "one\ntwo\n");
}

std::string called_with;
int flushes{0};

TEST_F(RapidsLogger, HandsLinesToAFunction)
{
  rapids_logger::sink_vector& sinks = log.sinks();
  sinks.push_back(std::make_shared<rapids_logger::callback_sink_mt>(
    [](int level, char const* line) { called_with = std::to_string(level) + " " + line; }, [] { ++flushes; }));
  log.warn("x");
  log.flush();
  EXPECT_EQ(called_with, "3 warning: x\n");
  EXPECT_EQ(flushes, 1);
}

TEST_F(RapidsLogger, WritesToStandardError)
{
  ::testing::internal::CaptureStderr();
  logger made{"test", {std::make_shared<rapids_logger::stderr_sink_mt>()}};
  made.set_pattern("%v");
  made.info("x");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "x\n");
}

TEST_F(RapidsLogger, KeepsLinesOfThreadsWhole)
{
  rmm::test::run_on_threads(4, [&](int number) {
    for (int i = 0; i < 500; ++i) { log.info("%s", std::string(40, static_cast<char>('a' + number))); }
  });
  std::istringstream lines{out.str()};
  int count{0};
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_EQ(line, "info: " + std::string(40, line.back()));
  }
  EXPECT_EQ(count, 2000);
}

}  // namespace
