// SPDX-License-Identifier: Apache-2.0
#include <rmm/tag_scope.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using rmm::tag;
using rmm::tag_scope;

TEST(TagScope, NoTagIsSetInitially)
{
  EXPECT_EQ(tag::current(), tag{});
  EXPECT_FALSE(tag::current());
  EXPECT_STREQ(tag::current().name(), "");
}

TEST(TagScope, TheInnermostTagCountsAndTheOuterComesBack)
{
  {
    tag_scope const outer{"outer"};
    EXPECT_STREQ(tag::current().name(), "outer");
    {
      tag_scope const inner{"inner"};
      EXPECT_STREQ(tag::current().name(), "inner");
    }
    EXPECT_STREQ(tag::current().name(), "outer");
  }
  EXPECT_FALSE(tag::current());
}

TEST(TagScope, TheInnermostTagMayBeEmpty)
{
  tag_scope const outer{"outer"};
  tag_scope const inner{tag{}};
  EXPECT_FALSE(tag::current());
}

TEST(TagScope, BelongsToTheThread)
{
  tag_scope const mine{"mine"};
  std::thread{[] {
    EXPECT_FALSE(tag::current());
    tag_scope const its{"its"};
    EXPECT_STREQ(tag::current().name(), "its");
  }}.join();
  EXPECT_STREQ(tag::current().name(), "mine");
}

TEST(Tag, ANameHasOneNumberInAllThreads)
{
  tag const first{"the same name"};
  EXPECT_TRUE(first);
  tag second;
  std::thread{[&] { second = tag{std::string{"the same "} + "name"}; }}.join();
  EXPECT_EQ(first, second);
  EXPECT_EQ(tag::from_id(first.id()), first);
  EXPECT_NE(first, tag{"another name"});
}

TEST(Tag, AnEmptyNameMakesNoTag) { EXPECT_EQ(tag{""}, tag{}); }

TEST(Tag, AnUnknownNumberHasNoName) { EXPECT_STREQ(tag::from_id(4'000'000'000U).name(), ""); }

TEST(Tag, NamesStayWhereTheyAre)
{
  tag const early{"early"};
  char const* const name = early.name();
  for (int i = 0; i < 1000; ++i) { EXPECT_TRUE(tag{"filler " + std::to_string(i)}); }
  EXPECT_EQ(early.name(), name);
  EXPECT_STREQ(name, "early");
}

TEST(Tag, ThreadsMayMakeThemConcurrently)
{
  std::vector<std::thread> threads;
  std::vector<std::vector<tag>> made(4, std::vector<tag>(100));
  for (auto& mine : made) {
    threads.emplace_back([&mine] {
      for (std::size_t i = 0; i < mine.size(); ++i) { mine[i] = tag{"shared " + std::to_string(i)}; }
    });
  }
  for (auto& each : threads) { each.join(); }
  for (auto const& its : made) { EXPECT_EQ(its, made.front()); }
  EXPECT_STREQ(made.front()[42].name(), "shared 42");
}

// Runs in a process of its own, because it uses up all numbers.
TEST(TagsThatAreTooManyDeathTest, ShareOne)
{
  auto const use_up = [] {
    tag const known{"known before"};
    for (int i = 0; i < 70'000; ++i) { static_cast<void>(tag{"many " + std::to_string(i)}); }
    tag const a{"one too many"};
    tag const b{"two too many"};
    EXPECT_EQ(a, b);
    EXPECT_STREQ(a.name(), "(other tags)");
    EXPECT_EQ(tag{"known before"}, known);
    std::exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(use_up(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
