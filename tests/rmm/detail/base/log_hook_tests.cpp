// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/logger_frontend.hpp>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::detail::is_logging;
using rmm::detail::log;
using rmm::detail::log_function;
using rmm::detail::log_hook;
using rmm::detail::log_level;

std::vector<std::pair<log_level, std::string>> messages;

void record(log_level level, char const* message) noexcept { messages.emplace_back(level, message); }

struct LogHook : ::testing::Test {
  void SetUp() override { messages.clear(); }
  void TearDown() override { log_hook.store(previous); }

  log_function previous{log_hook.exchange(nullptr)};
};

TEST_F(LogHook, DropsMessagesWithoutAListener)
{
  EXPECT_FALSE(is_logging());
  log(log_level::error, "unheard");
  EXPECT_TRUE(messages.empty());
}

TEST_F(LogHook, HandsLevelAndMessageToTheListener)
{
  log_hook.store(record);
  EXPECT_TRUE(is_logging());
  log(log_level::warn, "heard");
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].first, log_level::warn);
  EXPECT_EQ(messages[0].second, "heard");
}

/// Without spdlog, the macros call this.
TEST_F(LogHook, PassesStringMessagesAndFormats)
{
  using rmm::detail::log_message;
  log_message(log_level::info, std::string{"%d"}, 1);  // no hook is set
  log_hook.store(record);
  log_message(log_level::info, "100%");
  log_message(log_level::info, std::string{"100%"});
  log_message(log_level::info, "%d", 1);
  log_message(log_level::info, std::string{"%d %s"}, 1, std::string{"text"});
  log_message(log_level::info, std::string{"%s %d {}"}, 1);
  log_message(log_level::info, std::string{"100%% {}"}, 1);
  std::vector<std::string> texts;
  for (auto const& each : messages) { texts.push_back(each.second); }
  EXPECT_EQ(texts, (std::vector<std::string>{"100%", "100%", "1", "1 text", "%s %d {}", "100% {}"}));
}

TEST_F(LogHook, LevelsHaveTheNumbersOfTheMacros)
{
  static_assert(static_cast<int>(log_level::trace) == 0 && static_cast<int>(log_level::debug) == 1);
  static_assert(static_cast<int>(log_level::info) == 2 && static_cast<int>(log_level::warn) == 3);
  static_assert(static_cast<int>(log_level::error) == 4 && static_cast<int>(log_level::critical) == 5);
}

}  // namespace
