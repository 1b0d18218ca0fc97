// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/heap/size_classes.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace {

using rmm::detail::class_bytes;
using rmm::detail::heap_granule;
using rmm::detail::highest_bit;
using rmm::detail::largest_small_size;
using rmm::detail::round_up_to_class;
using rmm::detail::small_class_count;
using rmm::detail::small_class_of;

TEST(SizeClasses, AreMultiplesOfTheGranuleThatGrow)
{
  for (std::size_t index = 0; index != small_class_count; ++index) {
    EXPECT_EQ(class_bytes(index) % heap_granule, 0U);
    if (index != 0) { EXPECT_GT(class_bytes(index), class_bytes(index - 1)); }
  }
}

TEST(SizeClasses, AreAGranuleApartUpTo2KiB)
{
  for (std::size_t index = 0; index != 8; ++index) { EXPECT_EQ(class_bytes(index), (index + 1) * 256); }
}

TEST(SizeClasses, AreEightToADoublingFrom2KiBOn)
{
  for (std::size_t index = 7; index + 8 < small_class_count; ++index) {
    EXPECT_EQ(class_bytes(index + 8), 2 * class_bytes(index)) << index;
  }
}

TEST(SizeClasses, EndWithTheLargestSmallSize) { EXPECT_EQ(class_bytes(small_class_count - 1), largest_small_size); }

TEST(SizeClasses, TheClassOfASizeIsTheFirstThatHoldsIt)
{
  std::size_t expected = 0;
  for (std::size_t bytes = 1; bytes <= largest_small_size; ++bytes) {
    if (bytes > class_bytes(expected)) { ++expected; }
    ASSERT_EQ(small_class_of(bytes), expected) << bytes;
  }
}

TEST(SizeClasses, RoundingLosesLessThanAnEighthAbove2KiBAndLessThanAGranuleBelow)
{
  for (std::size_t bytes = 1; bytes <= largest_small_size; ++bytes) {
    auto const lost = round_up_to_class(bytes) - bytes;
    ASSERT_LT(lost, bytes <= 2048 ? heap_granule : bytes / 8 + 1) << bytes;
  }
}

TEST(HighestBit, IsThePositionOfTheFirstOne)
{
  for (unsigned bit = 0; bit != 64; ++bit) {
    EXPECT_EQ(highest_bit(std::uint64_t{1} << bit), bit);
    EXPECT_EQ(highest_bit(~std::uint64_t{0} >> (63 - bit)), bit);
  }
}

}  // namespace
