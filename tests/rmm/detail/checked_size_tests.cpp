// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/checked_size.hpp>
#include <rmm/error.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>

namespace {

using rmm::detail::checked_add;
using rmm::detail::checked_align_up;
using rmm::detail::checked_multiply;

constexpr auto most = std::numeric_limits<std::size_t>::max();

TEST(CheckedSize, AddsUpToTheLargestSize)
{
  static_assert(checked_add(2, 3) == 5);
  EXPECT_EQ(checked_add(most - 1, 1), most);
  EXPECT_EQ(checked_add(0, most), most);
  EXPECT_THROW(static_cast<void>(checked_add(most, 1)), rmm::out_of_memory);
  EXPECT_THROW(static_cast<void>(checked_add(1, most)), rmm::out_of_memory);
}

TEST(CheckedSize, FailsInTheWordsOfAllocationsThatAreTooLarge)
{
  try {
    static_cast<void>(checked_add(most, 1));
    FAIL();
  } catch (rmm::out_of_memory const& error) {
    EXPECT_NE(std::string{error.what()}.find("Maximum allocation size exceeded"), std::string::npos);
  }
}

TEST(CheckedSize, MultipliesUpToTheLargestSize)
{
  static_assert(checked_multiply(6, 7) == 42);
  EXPECT_EQ(checked_multiply(0, most), 0U);
  EXPECT_EQ(checked_multiply(most, 0), 0U);
  EXPECT_EQ(checked_multiply(most / 8, 8), most - 7);
  EXPECT_THROW(static_cast<void>(checked_multiply(most / 8 + 1, 8)), rmm::out_of_memory);
  EXPECT_THROW(static_cast<void>(checked_multiply(8, most / 8 + 1)), rmm::out_of_memory);
}

TEST(CheckedSize, AlignsUpToTheLastMultiple)
{
  static_assert(checked_align_up(257, 256) == 512);
  EXPECT_EQ(checked_align_up(0, 256), 0U);
  EXPECT_EQ(checked_align_up(256, 256), 256U);
  EXPECT_EQ(checked_align_up(most - 255, 256), most - 255);
  EXPECT_THROW(static_cast<void>(checked_align_up(most - 254, 256)), rmm::out_of_memory);
  EXPECT_THROW(static_cast<void>(checked_align_up(most, 2)), rmm::out_of_memory);
  EXPECT_EQ(checked_align_up(most, 1), most);
}

}  // namespace
