// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/bits.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace {

using rmm::detail::highest_bit;

static_assert(rmm::detail::max_value<std::uint8_t> == std::numeric_limits<std::uint8_t>::max());
static_assert(rmm::detail::max_value<std::uint64_t> == std::numeric_limits<std::uint64_t>::max());
static_assert(highest_bit(1) == 0);
static_assert(highest_bit(std::numeric_limits<std::uint64_t>::max()) == 63);

TEST(HighestBit, IsThePositionOfTheHighestBitThatIsSet)
{
  for (unsigned position = 0; position != 64; ++position) {
    auto const power = std::uint64_t{1} << position;
    EXPECT_EQ(highest_bit(power), position);
    EXPECT_EQ(highest_bit(power | (power - 1)), position);
  }
}

}  // namespace
