// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/text_failure.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

std::string message(std::string_view text, std::size_t place)
{
  try {
    rmm::detail::throw_text_failure("wrong", text, place);
  } catch (std::invalid_argument const& error) {
    return error.what();
  }
}

TEST(TextFailure, MarksThePlace)
{
  EXPECT_EQ(message("12 qb", 3), "wrong\n  12 qb\n     ^");
  EXPECT_EQ(message("12 qb", 5), "wrong\n  12 qb\n       ^");
  EXPECT_EQ(message("", 0), "wrong\n  \n  ^");
}

TEST(TextFailure, ShowsOnlyTheTextNearThePlace)
{
  auto const text  = std::string(100, 'a') + "b" + std::string(100, 'c');
  auto const shown = "..." + std::string(48, 'a') + "b" + std::string(23, 'c') + "...";
  EXPECT_EQ(message(text, 100), "wrong\n  " + shown + "\n  " + std::string(51, ' ') + "^");
}

TEST(TextFailure, ShowsNoControlCharacters)
{
  EXPECT_EQ(message("a\x1b[2J\n\xff", 1),
            "wrong\n  a?[2J?"
            "?\n   ^");
  EXPECT_EQ(rmm::detail::quoted("a\x1b\n"),
            "'a?"
            "?'");
}

TEST(TextFailure, QuotesAtMostFortyCharacters)
{
  EXPECT_EQ(rmm::detail::quoted(std::string(40, 'a')), "'" + std::string(40, 'a') + "'");
  EXPECT_EQ(rmm::detail::quoted(std::string(41, 'a')), "'" + std::string(40, 'a') + "...'");
}

}  // namespace
