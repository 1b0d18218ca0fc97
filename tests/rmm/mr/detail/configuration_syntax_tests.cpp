// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/detail/configuration_syntax.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using rmm::mr::detail::configuration_parser;
using rmm::mr::detail::written_configuration;
using rmm::mr::detail::written_option;
using rmm::mr::detail::written_value;
using form = written_option::form;

written_configuration parse(std::string_view text) { return configuration_parser{text}.parse(); }

/// Returns the mark below the place of the error, and the first words of the message.
std::string failure(std::string_view text)
{
  try {
    static_cast<void>(parse(text));
    return "no failure";
  } catch (std::invalid_argument const& error) {
    std::string const message{error.what()};
    auto const begin = std::string{"Could not parse the resource configuration: "}.size();
    auto const mark  = message.rfind('\n');
    return message.substr(begin, message.find('\n') - begin) + " @" + std::to_string(message.size() - mark - 4);
  }
}

TEST(ConfigurationSyntax, ANameAloneIsAConfiguration)
{
  auto const found = parse("pool");
  EXPECT_EQ(found.name, "pool");
  EXPECT_EQ(found.place, 0);
  EXPECT_TRUE(found.options.empty());
}

TEST(ConfigurationSyntax, OptionsHaveValuesOrNone)
{
  auto const found = parse("pool,statistics,max=80%");
  ASSERT_EQ(found.options.size(), 2);
  EXPECT_EQ(found.options[0].name, "statistics");
  EXPECT_EQ(found.options[0].value, form::bare);
  EXPECT_EQ(found.options[0].place, 5);
  EXPECT_EQ(found.options[1].name, "max");
  EXPECT_EQ(found.options[1].value, form::text);
  EXPECT_EQ(found.options[1].text, "80%");
  EXPECT_EQ(found.options[1].place, 16);
  EXPECT_EQ(found.options[1].value_place, 20);
}

TEST(ConfigurationSyntax, IgnoresBlanksBetweenParts)
{
  auto const found = parse("\t pool ,\n max =  4 GiB , upstream = ( cuda ) , log = \" a \" ");
  ASSERT_EQ(found.options.size(), 3);
  EXPECT_EQ(found.name, "pool");
  EXPECT_EQ(found.options[0].text, "4 GiB");
  EXPECT_EQ(found.options[1].nested->name, "cuda");
  EXPECT_EQ(found.options[2].text, " a ");
}

TEST(ConfigurationSyntax, ParenthesesHoldAConfiguration)
{
  auto const found = parse("a,b=(c,d=(e,f=1),g)");
  ASSERT_EQ(found.options.size(), 1);
  auto const& c = *found.options[0].nested;
  EXPECT_EQ(c.name, "c");
  EXPECT_EQ(c.place, 5);
  ASSERT_EQ(c.options.size(), 2);
  EXPECT_EQ(c.options[0].nested->options[0].text, "1");
  EXPECT_EQ(c.options[1].name, "g");
}

TEST(ConfigurationSyntax, QuotedTextHoldsAnything)
{
  auto const found = parse(R"(pool,log="a, (b)=""c""",x)");
  ASSERT_EQ(found.options.size(), 2);
  EXPECT_EQ(found.options[0].text, R"(a, (b)="c")");
  EXPECT_EQ(parse(R"(pool,log="")").options[0].text, "");
}

TEST(ConfigurationSyntax, ReportsTheErrorAndItsPlace)
{
  EXPECT_EQ(failure(""), "expected the name of a resource @0");
  EXPECT_EQ(failure("  "), "expected the name of a resource @2");
  EXPECT_EQ(failure(",pool"), "expected the name of a resource @0");
  EXPECT_EQ(failure("pool,"), "expected the name of an option @5");
  EXPECT_EQ(failure("pool,,max=1"), "expected the name of an option @5");
  EXPECT_EQ(failure("pool max"), "expected a comma here @5");
  EXPECT_EQ(failure("pool-x"), "expected a comma here @4");
  EXPECT_EQ(failure("pool,max="), "expected a value @9");
  EXPECT_EQ(failure("pool,max= ,x"), "expected a value @10");
  EXPECT_EQ(failure("pool,max=1=2"), "expected a comma here @10");
  EXPECT_EQ(failure("pool,max=1\"2\""), "expected a comma here @10");
  EXPECT_EQ(failure("pool,log=\"a"), "the quoted text that begins here does not end @9");
  EXPECT_EQ(failure("pool,log=\"a\"\""), "the quoted text that begins here does not end @9");
  EXPECT_EQ(failure("pool,log=\"a\"b"), "expected a comma here @12");
  EXPECT_EQ(failure("pool,up=(cuda"), "the parenthesis that begins here is not closed @8");
  EXPECT_EQ(failure("pool,up=(cuda))"), "a parenthesis is closed that was not opened @14");
  EXPECT_EQ(failure("pool,up=()"), "expected the name of a resource @9");
  EXPECT_EQ(failure("pool,up=(cuda)x"), "expected a comma here @14");
}

TEST(ConfigurationSyntax, RefusesTextsThatAreTooLongOrNestedTooDeep)
{
  EXPECT_NO_THROW(static_cast<void>(parse("pool,x=" + std::string(4089, 'a'))));
  EXPECT_THROW(static_cast<void>(parse("pool,x=" + std::string(4090, 'a'))), std::invalid_argument);

  auto const nested = [](int depth) {
    std::string text;
    for (int i = 1; i < depth; ++i) { text += "a,b=("; }
    return text + "a" + std::string(static_cast<std::size_t>(depth - 1), ')');
  };
  EXPECT_NO_THROW(static_cast<void>(parse(nested(8))));
  EXPECT_THROW(static_cast<void>(parse(nested(9))), std::invalid_argument);
}

TEST(ConfigurationSyntax, WritesValuesInAFormThatItReads)
{
  EXPECT_EQ(written_value("trace.csv"), "trace.csv");
  EXPECT_EQ(written_value("a b"), "a b");
  EXPECT_EQ(written_value("a,b"), R"("a,b")");
  EXPECT_EQ(written_value("say \"a\""), R"("say ""a""")");
  for (auto const* const text : {"", " ", "a ", "\ta", "(", ")", "=", "\"", "\"\"", ",,", "a\nb", "a\n"}) {
    auto const found = parse(std::string{"x,y="} + written_value(text));
    EXPECT_EQ(found.options.at(0).text, text);
  }
}

TEST(ConfigurationSyntax, AnyTextIsReadOrRefused)
{
  std::mt19937 random{1};
  std::string_view const alphabet{"ab,,==()(\"\" \t%\0\xff", 16};
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto length = random() % 16; length != 0; --length) { text += alphabet[random() % alphabet.size()]; }
    try {
      static_cast<void>(parse(text));
      ++read;
    } catch (std::invalid_argument const&) {}
  }
  EXPECT_GT(read, 100);
}

}  // namespace
