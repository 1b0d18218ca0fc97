// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/format.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <sstream>
#include <string>

namespace {

using rmm::detail::format_bytes;
using rmm::detail::format_stream;
using rmm::detail::formatted_log;
using rmm::detail::printf_arguments_taken;
using rmm::detail::printf_reader;

TEST(FormatBytes, UsesTheLargestUnitThatFits)
{
  EXPECT_EQ(format_bytes(0), "0.000000 B");
  EXPECT_EQ(format_bytes(1), "1.000000 B");
  EXPECT_EQ(format_bytes(1023), "1023.000000 B");
  EXPECT_EQ(format_bytes(1024), "1.000000 KiB");
  EXPECT_EQ(format_bytes(1536), "1.500000 KiB");
  EXPECT_EQ(format_bytes(std::size_t{1} << 20U), "1.000000 MiB");
  EXPECT_EQ(format_bytes(std::size_t{1} << 30U), "1.000000 GiB");
  EXPECT_EQ(format_bytes(std::size_t{1} << 40U), "1.000000 TiB");
  EXPECT_EQ(format_bytes(std::size_t{1} << 50U), "1.000000 PiB");
  EXPECT_EQ(format_bytes(std::size_t{1} << 60U), "1.000000 EiB");
}

TEST(FormatBytes, TakesTheLargestSize)
{
  EXPECT_EQ(format_bytes(std::numeric_limits<std::size_t>::max()), "16.000000 EiB");
}

TEST(FormatStream, MatchesAStringStream)
{
  EXPECT_EQ(format_stream(rmm::cuda_stream_default), "0");
  EXPECT_EQ(format_stream(rmm::cuda_stream_legacy), "0x1");
  int object{};
  rmm::cuda_stream_view const any{reinterpret_cast<cudaStream_t>(&object)};
  std::ostringstream expected;
  expected << any;
  EXPECT_EQ(format_stream(any), expected.str());
}

TEST(FormattedLog, FormatsLikePrintf)
{
  EXPECT_EQ(formatted_log("nothing to insert"), "nothing to insert");
  EXPECT_EQ(formatted_log("100 %%"), "100 %");
  EXPECT_EQ(formatted_log("%d %5.2f %s|%c", 7, 1.5, "text", 'x'), "7  1.50 text|x");
  EXPECT_EQ(formatted_log("%zu", std::numeric_limits<std::size_t>::max()),
            std::to_string(std::numeric_limits<std::size_t>::max()));
}

TEST(FormattedLog, TakesStrings)
{
  std::string const name{"a name"};
  EXPECT_EQ(formatted_log("<%s> <%s>", name, std::string{"temporary"}), "<a name> <temporary>");
}

TEST(FormattedLog, GivesAnEmptyTextForAnEmptyFormat)
{
  std::string const empty;
  EXPECT_EQ(formatted_log(empty.c_str()), "");
  EXPECT_EQ(formatted_log("%s", ""), "");
}

TEST(FormattedLog, HasNoLimitOfLength)
{
  std::string const lengthy(100'000, 'x');
  EXPECT_EQ(formatted_log("%s!", lengthy), lengthy + "!");
}

TEST(PrintfArguments, AreCountedIfTheyFit)
{
  enum plain { one };
  enum class scoped : char { two };
  EXPECT_EQ(printf_arguments_taken<>("%%, 100%%"), 0U);
  EXPECT_EQ((printf_arguments_taken<int, char, bool, plain, scoped>("%d%c%u%x%i")), 5U);
  EXPECT_EQ((printf_arguments_taken<std::string, char const*, char*, char[4]>("%s%-5s%.3s%s")), 4U);
  EXPECT_EQ((printf_arguments_taken<float, double, long double>("%f%+5.1e%'Lg")), 3U);
  EXPECT_EQ((printf_arguments_taken<int*, std::nullptr_t, void const*>("%p%p%p")), 3U);
  EXPECT_EQ((printf_arguments_taken<int, unsigned, std::size_t>("%*.*zu")), 3U);
  EXPECT_EQ((printf_arguments_taken<int, int>("%d")), 1U);
}

TEST(PrintfArguments, DoNotMatchIfTooFewOrOfAnotherType)
{
  struct other {};
  constexpr auto never = printf_reader::does_not_fit;
  for (auto const* const format :
       {"%d%d", "%*d", "%.*d", "%s", "%f", "%p", "%n", "%ls", "%m", "%1$d", "%y", "%", "%-", "%l"}) {
    EXPECT_EQ(printf_arguments_taken<int>(format), never) << format;
  }
  EXPECT_EQ(printf_arguments_taken<>("%d"), never);
  EXPECT_EQ(printf_arguments_taken<double>("%Lf"), never);
  EXPECT_EQ(printf_arguments_taken<long double>("%f"), never);
  EXPECT_EQ(printf_arguments_taken<std::string>("%d"), never);
  EXPECT_EQ(printf_arguments_taken<std::string>("%ls"), never);
  EXPECT_EQ(printf_arguments_taken<int*>("%s"), never);
  EXPECT_EQ(printf_arguments_taken<int*>("%n"), never);
  EXPECT_EQ(printf_arguments_taken<other>("%d"), never);
}

}  // namespace
