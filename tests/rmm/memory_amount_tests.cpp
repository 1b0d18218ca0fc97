// SPDX-License-Identifier: Apache-2.0
#include <rmm/memory_amount.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using rmm::memory_amount;

constexpr auto most = std::numeric_limits<std::size_t>::max();

static_assert(memory_amount{}.bytes(1, 1) == 0);
static_assert(memory_amount{5} == memory_amount{5});
static_assert(memory_amount{5} != memory_amount{6});
static_assert(memory_amount{5}.is_absolute());

std::size_t bytes(std::string_view text) { return memory_amount::parse(text).bytes(0, 0); }

std::string failure(std::string_view text)
{
  try {
    return "parsed as " + memory_amount::parse(text).text();
  } catch (std::invalid_argument const& error) {
    return error.what();
  }
}

TEST(MemoryAmount, ReadsPlainNumbersAsBytes)
{
  EXPECT_EQ(bytes("0"), 0);
  EXPECT_EQ(bytes("512000000"), 512000000);
  EXPECT_EQ(bytes("007"), 7);
  EXPECT_EQ(bytes("18446744073709551615"), most);
}

TEST(MemoryAmount, ReadsDecimalAndBinaryUnits)
{
  EXPECT_EQ(bytes("3b"), 3);
  EXPECT_EQ(bytes("3kb"), 3000);
  EXPECT_EQ(bytes("3MB"), 3000000);
  EXPECT_EQ(bytes("3Gb"), 3000000000);
  EXPECT_EQ(bytes("3tb"), 3000000000000);
  EXPECT_EQ(bytes("3pB"), 3000000000000000);
  EXPECT_EQ(bytes("3KiB"), 3072);
  EXPECT_EQ(bytes("3mib"), 3145728);
  EXPECT_EQ(bytes("3GIB"), std::size_t{3} << 30U);
  EXPECT_EQ(bytes("3TiB"), std::size_t{3} << 40U);
  EXPECT_EQ(bytes("3PiB"), std::size_t{3} << 50U);
}

TEST(MemoryAmount, AllowsBlanksBeforeTheUnit)
{
  EXPECT_EQ(bytes("4 GiB"), std::size_t{4} << 30U);
  EXPECT_EQ(bytes("4\t  kb"), 4000);
}

TEST(MemoryAmount, ReadsFractionsExactlyAndRoundsDown)
{
  EXPECT_EQ(bytes("1.5KiB"), 1536);
  EXPECT_EQ(bytes(".5kb"), 500);
  EXPECT_EQ(bytes("1.kb"), 1000);
  EXPECT_EQ(bytes("1.001kb"), 1001);
  EXPECT_EQ(bytes("1.0019kb"), 1001);
  EXPECT_EQ(bytes("2.9"), 2);
  EXPECT_EQ(bytes("0.1PB"), 100000000000000);
  EXPECT_EQ(bytes("0.9999999999999999999999999999KiB"), 1023);
  EXPECT_EQ(bytes("15.999999999999999999999999999999PiB"), (std::size_t{16} << 50U) - 1);
}

TEST(MemoryAmount, ReadsShares)
{
  EXPECT_EQ(memory_amount::parse("80%").bytes(1000, 500), 800);
  EXPECT_EQ(memory_amount::parse("80 %free").bytes(1000, 500), 400);
  EXPECT_EQ(memory_amount::parse("80%FREE").bytes(1000, 500), 400);
  EXPECT_EQ(memory_amount::parse("12.5%").bytes(1000, 0), 125);
  EXPECT_EQ(memory_amount::parse("0.0001%").bytes(1999999, 0), 1);
  EXPECT_EQ(memory_amount::parse("0%").bytes(most, most), 0);
  EXPECT_EQ(memory_amount::parse("100%").bytes(most, 0), most);
  EXPECT_FALSE(memory_amount::parse("100%").is_absolute());
}

TEST(MemoryAmount, SharesOfAnythingDoNotWrap)
{
  EXPECT_EQ(memory_amount::parse("99.9999%").bytes(most, 0), most - most / 1000000 - 1);
}

TEST(MemoryAmount, RefusesTextThatIsNotASize)
{
  for (auto const* const text : {"",    " ",   "GiB",  "-1",       "+1",    " 1",  "1 ",  "1kb ", "1 k",   "1kbit",
                                 "1EB", "1e9", "0x10", "1,000",    "1_000", ".",   ".kb", "1..5", "1.5.5", "1kb1",
                                 "%",   "1%%", "1%f",  "1 % free", "\n1",   "1\n", "nan", "inf",  "١"}) {
    EXPECT_THROW(static_cast<void>(memory_amount::parse(text)), std::invalid_argument) << text;
  }
  EXPECT_THROW(static_cast<void>(memory_amount::parse(std::string_view{"1\0kb", 4})), std::invalid_argument);
}

TEST(MemoryAmount, RefusesMoreThanThereCanBe)
{
  EXPECT_EQ(bytes("16383.99PiB"), 18446732814710483189U);
  for (auto const* const text : {"18446744073709551616",
                                 "99999999999999999999999",
                                 "16384PiB",
                                 "18446744.1TB",
                                 "100.0001%",
                                 "101%",
                                 "99999999999999999999999%"}) {
    EXPECT_THROW(static_cast<void>(memory_amount::parse(text)), std::invalid_argument) << text;
  }
}

TEST(MemoryAmount, RefusesSharesThatItCannotKeepExactly)
{
  EXPECT_THROW(static_cast<void>(memory_amount::parse("1.00001%")), std::invalid_argument);
}

TEST(MemoryAmount, ShowsWhereTheErrorIs)
{
  EXPECT_EQ(failure("12 qb"),
            "Could not parse the size '12 qb': unknown unit 'qb'; units are B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, "
            "PiB, % and %free\n  12 qb\n     ^");
  EXPECT_EQ(failure("101%"), "Could not parse the size '101%': a share is at most 100%\n  101%\n  ^");
  EXPECT_EQ(failure(""), "Could not parse the size '': a number is missing\n  \n  ^");
  EXPECT_EQ(failure("16384PiB"), "Could not parse the size '16384PiB': too large\n  16384PiB\n  ^");
  EXPECT_EQ(failure("18446744073709551616"),
            "Could not parse the size '18446744073709551616': too large\n  18446744073709551616\n  ^");
  EXPECT_EQ(failure("1.00001%"),
            "Could not parse the size '1.00001%': a share has at most four decimals\n  1.00001%\n        ^");
  EXPECT_EQ(failure("12 "),
            "Could not parse the size '12 ': blanks at the end; units are B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, "
            "PiB, % and %free\n  12 \n    ^");
}

TEST(MemoryAmount, IsWrittenInTheLargestUnitThatFits)
{
  EXPECT_EQ(memory_amount{0}.text(), "0");
  EXPECT_EQ(memory_amount{1}.text(), "1");
  EXPECT_EQ(memory_amount{1024}.text(), "1KiB");
  EXPECT_EQ(memory_amount{1536}.text(), "1536");
  EXPECT_EQ(memory_amount{512000000}.text(), "512MB");
  EXPECT_EQ(memory_amount{51200}.text(), "50KiB");
  EXPECT_EQ(memory_amount{5000}.text(), "5KB");
  EXPECT_EQ(memory_amount{std::size_t{4} << 30U}.text(), "4GiB");
  EXPECT_EQ(memory_amount::parse("80%").text(), "80%");
  EXPECT_EQ(memory_amount::parse("12.50 %free").text(), "12.5%free");
  EXPECT_EQ(memory_amount::parse("0.0001%").text(), "0.0001%");
}

TEST(MemoryAmount, IsReadBackAsItWasWritten)
{
  std::mt19937_64 random{1};
  for (int i = 0; i < 1000; ++i) {
    memory_amount const amount{(random() >> (random() % 64)) << (random() % 64)};
    EXPECT_EQ(memory_amount::parse(amount.text()), amount) << amount.text();
    auto const millionths = random() % 1000001;
    auto const number = std::to_string(millionths / 10000) + "." + std::to_string(10000 + millionths % 10000).substr(1);
    for (auto const* const unit : {"%", "%free"}) {
      auto const share = memory_amount::parse(number + unit);
      EXPECT_EQ(memory_amount::parse(share.text()), share) << share.text();
      EXPECT_EQ(share.bytes(1000000, 1000000), millionths);
    }
  }
}

}  // namespace
