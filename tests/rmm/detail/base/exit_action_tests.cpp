// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/exit_action.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace {

using rmm::detail::exit_action;

void say(void* text) noexcept { std::fputs(static_cast<char const*>(text), stderr); }

char first[]  = "first\n";
char second[] = "second\n";

TEST(ExitActionDeathTest, RunsWhenTheProgramEnds)
{
  auto const end = [] {
    new exit_action{say, first};
    new exit_action{say, second};
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "first\nsecond\n");
}

TEST(ExitActionDeathTest, DoesNotRunInAForkedChild)
{
  auto const end = [] {
    new exit_action{say, first};
    auto const child = ::fork();
    if (child != 0) { ::waitpid(child, nullptr, 0); }
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "^first\n$");
}

TEST(ExitActionDeathTest, DoesNotRunOnceDestroyed)
{
  auto const end = [] {
    {
      exit_action const gone{say, first};
    }
    new exit_action{say, second};
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "^second\n$");
}

}  // namespace
