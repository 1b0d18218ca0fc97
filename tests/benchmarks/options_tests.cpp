// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/utilities/options.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using rmm::benchmarks::options;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

options parsed(std::initializer_list<char const*> words)
{
  options result{"program", "purpose"};
  result.value('n', "number", "a number").flag('p', "profile", "a flag").value(0, "only-long", "no letter");
  std::vector<char const*> arguments{"program"};
  arguments.insert(arguments.end(), words);
  result.parse(static_cast<int>(arguments.size()), arguments.data());
  return result;
}

TEST(Options, TakeAValueInEachForm)
{
  EXPECT_EQ(parsed({"--number", "7"}).get("number", 0), 7);
  EXPECT_EQ(parsed({"--number=7"}).get("number", 0), 7);
  EXPECT_EQ(parsed({"-n", "7"}).get("number", 0), 7);
  EXPECT_EQ(parsed({"-n7"}).get("number", 0), 7);
}

TEST(Options, HaveDefaults)
{
  EXPECT_EQ(parsed({}).get("number", 3), 3);
  EXPECT_FALSE(parsed({}).has("number"));
}

TEST(Options, AreFlags)
{
  EXPECT_TRUE(parsed({"-p"}).is_set("profile"));
  EXPECT_TRUE(parsed({"--profile"}).is_set("profile"));
  EXPECT_FALSE(parsed({"--profile=false"}).is_set("profile"));
  EXPECT_FALSE(parsed({}).is_set("profile"));
}

TEST(Options, KeepTheLastValueAndAllOfThem)
{
  auto const both = parsed({"-n", "1", "--number=2"});
  EXPECT_EQ(both.get("number", 0), 2);
  EXPECT_THAT(both.all("number"), ElementsAre("1", "2"));
  EXPECT_THAT(both.all("only-long"), IsEmpty());
}

TEST(Options, AskForHelpInTwoWays)
{
  auto const is_help = [](std::vector<char const*> words) {
    words.insert(words.begin(), "program");
    return options::is_help(static_cast<int>(words.size()), words.data());
  };
  EXPECT_TRUE(is_help({"--help"}));
  EXPECT_TRUE(is_help({"-p", "-h"}));
  EXPECT_FALSE(is_help({"-p", "--number=7"}));
  EXPECT_FALSE(is_help({}));
}

TEST(Options, RefuseUndeclaredOptions)
{
  EXPECT_THROW(parsed({"--other"}), std::invalid_argument);
  EXPECT_THROW(parsed({"-x"}), std::invalid_argument);
  EXPECT_THROW(parsed({"word"}), std::invalid_argument);
  EXPECT_THROW(parsed({"-"}), std::invalid_argument);
}

TEST(Options, RefuseAMissingValue) { EXPECT_THROW(parsed({"--number"}), std::invalid_argument); }

TEST(Options, RefuseAFlagWithAWordAttached) { EXPECT_THROW(parsed({"-p7"}), std::invalid_argument); }

TEST(Options, RefuseTextThatIsNotANumber)
{
  EXPECT_THROW(static_cast<void>(parsed({"-n", "7x"}).get("number", 0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(parsed({"-n", "x"}).get("number", 0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(parsed({"-n", "-7"}).get("number", 0U)), std::invalid_argument);
}

TEST(Options, TakeANegativeNumberWhereThereIsASign) { EXPECT_EQ(parsed({"-n", "-7"}).get("number", 0), -7); }

TEST(Options, NameEachInTheHelp)
{
  EXPECT_THAT(parsed({}).help(), HasSubstr("-n, --number arg"));
  EXPECT_THAT(parsed({}).help(), HasSubstr("-p, --profile "));
  EXPECT_THAT(parsed({}).help(), HasSubstr("    --only-long arg"));
}

}  // namespace
