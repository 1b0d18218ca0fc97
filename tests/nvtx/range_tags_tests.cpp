// SPDX-License-Identifier: Apache-2.0
#include <tools/nvtx/range_tags.hpp>

#include <tools/nvtx/range_names.hpp>

#include <rmm/detail/base/tag_table.hpp>
#include <rmm/tag_scope.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using rmm::tools::cut_between_characters;
using rmm::tools::narrow_name;
using rmm::tools::range_name;
using rmm::tools::range_tags;

[[nodiscard]] std::string name_of(std::uint32_t tag) { return rmm::tag::from_id(tag).name(); }

[[nodiscard]] std::unique_ptr<range_tags> make_tags(char const* wanted = nullptr)
{
  return std::make_unique<range_tags>(wanted);
}

TEST(RangeTags, AreCalledAsTheDomainAndTheRange)
{
  auto const tags   = make_tags();
  auto const domain = tags->domain("libdemo");
  EXPECT_EQ(name_of(tags->tag_of(domain, "sort")), "libdemo:sort");
  EXPECT_EQ(name_of(tags->tag_of(range_tags::default_domain, "sort")), "sort");
  EXPECT_EQ(tags->tag_of(domain, ""), 0U);
  EXPECT_EQ(tags->domain("libdemo"), domain);
  EXPECT_NE(tags->domain("libother"), domain);
}

TEST(RangeTags, AreThoseOfTheSameNameInTheProgram)
{
  EXPECT_EQ(make_tags()->tag_of(range_tags::default_domain, "of the program"), rmm::tag{"of the program"}.id());
}

TEST(RangeTags, TellNamesApartThatDifferInOneCharacterOrInLength)
{
  auto const tags = make_tags();
  std::vector<std::string> names;
  for (std::size_t length = 1; length <= range_tags::max_name_length; ++length) {
    names.emplace_back(length, 'a');
    for (auto const at : {std::size_t{0}, length / 2, length - 1}) {
      names.emplace_back(length, 'a');
      names.back()[at] = 'b';
    }
  }
  for (int round = 0; round != 2; ++round) {
    for (auto const& name : names) { EXPECT_EQ(name_of(tags->tag_of(range_tags::default_domain, name)), name); }
  }
}

TEST(RangeTags, HaveOneNameAfterTheLastThatHasItsOwn)
{
  auto const tags   = make_tags();
  auto const domain = tags->domain("numbers");
  for (std::uint32_t i = 0; i != range_tags::max_names; ++i) {
    auto const name = "request " + std::to_string(i);
    ASSERT_EQ(name_of(tags->tag_of(domain, name)), "numbers:" + name);
  }
  for (int i = 0; i != 30'000; ++i) {
    ASSERT_EQ(name_of(tags->tag_of(domain, "later " + std::to_string(i))), "(other ranges)");
  }
  EXPECT_EQ(name_of(tags->tag_of(domain, "request 4095")), "numbers:request 4095");
  EXPECT_EQ(rmm::tag{"the program's own"}.name(), std::string{"the program's own"});
}

TEST(RangeTags, AreThoseOfOthersIfTheProgramHasUsedAllTags)
{
  auto const use_all = [] {
    auto const tags = make_tags();
    for (std::uint32_t i = 0; i != rmm::detail::tag_names::max_tags; ++i) {
      static_cast<void>(rmm::tag{std::to_string(i)});
    }
    auto const first = name_of(tags->tag_of(range_tags::default_domain, "new"));
    auto const again = name_of(tags->tag_of(range_tags::default_domain, "new"));
    std::_Exit(first == "(other ranges)" && again == first ? 0 : 1);
  };
  EXPECT_EXIT(use_all(), ::testing::ExitedWithCode(0), "");
}

TEST(RangeTags, AreTheSameInAllThreads)
{
  auto const tags                 = make_tags();
  constexpr std::size_t per_round = 1000;
  std::vector<std::vector<std::uint32_t>> found(4, std::vector<std::uint32_t>(per_round));
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i != per_round; ++i) {
        mine[i] = tags->tag_of(range_tags::default_domain, "thread " + std::to_string(i));
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  for (auto const& each : found) { EXPECT_EQ(each, found.front()); }
  EXPECT_EQ(name_of(found.front().back()), "thread 999");
}

TEST(RangeDomains, CountAllButOurOwn)
{
  for (char const* all : {"", static_cast<char const*>(nullptr)}) {
    auto const tags = make_tags(all);
    EXPECT_FALSE(tags->is_ignored(range_tags::default_domain));
    EXPECT_FALSE(tags->is_ignored(tags->domain("libcudf")));
    EXPECT_TRUE(tags->is_ignored(tags->domain("librmm")));
  }
}

TEST(RangeDomains, CountThoseThatAreNamed)
{
  auto const tags = make_tags("libcudf,librmm,,libraft,");
  EXPECT_FALSE(tags->is_ignored(tags->domain("libcudf")));
  EXPECT_FALSE(tags->is_ignored(tags->domain("libraft")));
  EXPECT_FALSE(tags->is_ignored(tags->domain("librmm")));
  EXPECT_TRUE(tags->is_ignored(tags->domain("libcud")));
  EXPECT_TRUE(tags->is_ignored(tags->domain("libcudf,libraft")));
  EXPECT_TRUE(tags->is_ignored(range_tags::default_domain));
  EXPECT_FALSE(make_tags("libcudf,default")->is_ignored(range_tags::default_domain));
}

TEST(RangeDomains, AreIgnoredIfUnknown)
{
  auto const tags = make_tags();
  for (std::uint32_t const unknown : {1U, 255U, 256U, 0xFFFF'FFFFU}) { EXPECT_TRUE(tags->is_ignored(unknown)); }
}

TEST(RangeDomains, ShareTheLastNumber)
{
  auto const tags = make_tags();
  for (std::uint32_t i = 1; i != range_tags::max_domains; ++i) {
    ASSERT_EQ(tags->domain("domain " + std::to_string(i)), i);
  }
  EXPECT_EQ(tags->domain("one more"), range_tags::max_domains - 1);
  EXPECT_EQ(tags->domain("domain 7"), 7U);
}

TEST(RangeDomains, HaveNamesOfBoundedLength)
{
  auto const tags   = make_tags();
  auto const domain = tags->domain(std::string(1000, 'd'));
  EXPECT_EQ(tags->domain(std::string(1001, 'd')), domain);
  auto const name = std::string(range_tags::max_name_length, 'n');
  EXPECT_EQ(name_of(tags->tag_of(domain, name)), std::string(range_tags::max_domain_length, 'd') + ":" + name);
}

TEST(RangeName, EndsBeforeWhatPyTorchAppends)
{
  EXPECT_EQ(range_name("aten::add, seq = 7, op_id = 9"), "aten::add");
  EXPECT_EQ(range_name("aten::add, op_id = 9, sizes = [[2, 3], []]"), "aten::add");
  EXPECT_EQ(range_name("aten::add, sizes = [[2, 3], []]"), "aten::add");
  EXPECT_EQ(range_name("aten::add, input_op_ids = [(1,0)]"), "aten::add");
  EXPECT_EQ(range_name("f(a = 1, b = 2), seq = 7"), "f(a = 1, b = 2)");
  EXPECT_EQ(range_name("map<int, float>::operator=="), "map<int, float>::operator==");
  EXPECT_EQ(range_name("f, seq=7"), "f, seq=7");
  EXPECT_EQ(range_name("seq = 7"), "seq = 7");
  EXPECT_EQ(range_name(", seq = 7"), "");
  EXPECT_EQ(range_name("="), "=");
}

TEST(RangeName, HasABoundedLengthAndWholeCharacters)
{
  EXPECT_EQ(range_name(nullptr), "");
  EXPECT_EQ(range_name(""), "");
  std::string const longest(range_tags::max_name_length, 'x');
  EXPECT_EQ(range_name(longest.c_str()), longest);
  EXPECT_EQ(range_name((longest + std::string(100'000, 'y')).c_str()), longest);
  auto const all_but_one = longest.substr(1);
  EXPECT_EQ(range_name((all_but_one + "\xC3\xA9").c_str()), all_but_one);
  EXPECT_EQ(cut_between_characters("\xF0\x9F\x98\x80", 3), "");
  EXPECT_EQ(cut_between_characters("\x80\x80\x80", 2), "");
}

TEST(NarrowName, IsInUtf8)
{
  EXPECT_STREQ(narrow_name{nullptr}.c_str(), "");
  EXPECT_STREQ(narrow_name{L""}.c_str(), "");
  EXPECT_STREQ(narrow_name{L"caf\u00E9 \u20AC"}.c_str(), "caf\xC3\xA9 \xE2\x82\xAC");
  wchar_t const code_point[] = {0x1F600, 0};
  EXPECT_STREQ(narrow_name{code_point}.c_str(), "\xF0\x9F\x98\x80");
  wchar_t const pair[] = {0xD83D, 0xDE00, L'!', 0};
  EXPECT_STREQ(narrow_name{pair}.c_str(), "\xF0\x9F\x98\x80!");
}

TEST(NarrowName, ReplacesWhatIsNoCharacter)
{
  wchar_t const high_at_the_end[] = {L'a', 0xD83D, 0};
  EXPECT_STREQ(narrow_name{high_at_the_end}.c_str(), "a\xEF\xBF\xBD");
  wchar_t const low_first[] = {0xDE00, L'a', 0};
  EXPECT_STREQ(narrow_name{low_first}.c_str(), "\xEF\xBF\xBD\x61");
  wchar_t const two_high[] = {0xD83D, 0xD83D, 0xDE00, 0};
  EXPECT_STREQ(narrow_name{two_high}.c_str(), "\xEF\xBF\xBD\xF0\x9F\x98\x80");
  wchar_t const too_large[] = {0x110000, 0x7FFFFFFF, static_cast<wchar_t>(-1), 0};
  EXPECT_STREQ(narrow_name{too_large}.c_str(), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(NarrowName, EndsWhereANarrowOneDoes)
{
  std::wstring wide;
  std::string narrow;
  for (int i = 0; i != 1000; ++i) {
    wide += L'\u20AC';
    narrow += "\xE2\x82\xAC";
    ASSERT_EQ(range_name(narrow_name{wide.c_str()}.c_str()), range_name(narrow.c_str())) << i;
  }
}

}  // namespace
