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

template <class Call>
std::string message_of(Call call)
{
  try {
    call();
  } catch (rmm::out_of_memory const& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CheckedSize, NamesTheRequestedSizeInAFailure)
{
  auto const begin =
    std::string{"std::bad_alloc: out_of_memory: Maximum allocation size exceeded (failed to allocate "};
  auto const end = std::string{"): no address space is that large"};
  EXPECT_EQ(message_of([] { static_cast<void>(checked_add(most, 1)); }),
            begin + "18446744073709551615 and 1 more bytes" + end);
  EXPECT_EQ(message_of([] { static_cast<void>(checked_multiply(most, 8)); }),
            begin + "18446744073709551615 times 8 bytes" + end);
  EXPECT_EQ(message_of([] { static_cast<void>(checked_align_up(most - 1, 256)); }),
            begin + "18446744073709551614 bytes, rounded up to a multiple of 256" + end);
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
