// SPDX-License-Identifier: Apache-2.0
#include <tools/audit/report.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace rmm::tools::audit;

TEST(AuditReport, SeparatesThousands)
{
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(18446744073709551615U), "18,446,744,073,709,551,615");
}

TEST(AuditReport, BeginsWithTheLibraryThatHeldMost)
{
  ledger known;
  auto const small = known.id_of("libsmall.so");
  auto const large = known.id_of("liblarge.so");
  static_cast<void>(known.id_of("libunused.so"));
  known.add(key_space::address, 1, 100, small, memory_kind::device);
  known.add(key_space::address, 2, 3000, large, memory_kind::async);
  known.remove(key_space::address, 2);
  known.refuse(small, memory_kind::managed, 77);
  EXPECT_EQ(
    make_table(known),
    "       calls           bytes in all         most at once             live now  kind             library\n"
    "           1                  3,000                3,000                    0  async            liblarge.so\n"
    "           1                    100                  100                  100  device           libsmall.so\n"
    "           0                      0                    0                    0  managed          libsmall.so "
    "(refused: 1 calls, 77 bytes)\n"
    "           2                  3,100                3,100                  100  in all           (device "
    "memory)\n");
}

}  // namespace
