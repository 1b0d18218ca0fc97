// SPDX-License-Identifier: Apache-2.0
#include <rmm/aligned.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace {

constexpr auto max_size = std::numeric_limits<std::size_t>::max();

TEST(Alignment, ConstantsHaveTheDocumentedValues)
{
  static_assert(rmm::CUDA_ALLOCATION_ALIGNMENT == 256);
  static_assert(rmm::RMM_DEFAULT_HOST_ALIGNMENT == alignof(std::max_align_t));
  std::size_t const* address = &rmm::CUDA_ALLOCATION_ALIGNMENT;  // it has an address, too
  EXPECT_EQ(*address, 256U);
}

TEST(Alignment, PowersOfTwoHaveExactlyOneBit)
{
  EXPECT_FALSE(rmm::is_pow2(0));
  for (unsigned bit = 0; bit < std::numeric_limits<std::size_t>::digits; ++bit) {
    auto const power = std::size_t{1} << bit;
    EXPECT_TRUE(rmm::is_pow2(power)) << power;
    if (bit > 0) { EXPECT_FALSE(rmm::is_pow2(power + 1)) << power; }
    if (bit > 1) { EXPECT_FALSE(rmm::is_pow2(power - 1)) << power; }
  }
}

TEST(Alignment, SupportedAlignmentsArePowersOfTwo)
{
  EXPECT_TRUE(rmm::is_supported_alignment(1));
  EXPECT_TRUE(rmm::is_supported_alignment(4096));
  EXPECT_FALSE(rmm::is_supported_alignment(0));
  EXPECT_FALSE(rmm::is_supported_alignment(24));
}

TEST(Alignment, AlignUpGivesTheSmallestMultipleNotBelow)
{
  EXPECT_EQ(rmm::align_up(0, 256), 0U);
  EXPECT_EQ(rmm::align_up(1, 256), 256U);
  EXPECT_EQ(rmm::align_up(255, 256), 256U);
  EXPECT_EQ(rmm::align_up(256, 256), 256U);
  EXPECT_EQ(rmm::align_up(257, 256), 512U);
  EXPECT_EQ(rmm::align_up(77, 1), 77U);
}

TEST(Alignment, AlignUpWrapsToZeroPastTheLastMultiple)
{
  EXPECT_EQ(rmm::align_up(max_size - 255, 256), max_size - 255);
  EXPECT_EQ(rmm::align_up(max_size - 254, 256), 0U);
}

TEST(Alignment, AlignDownGivesTheLargestMultipleNotAbove)
{
  EXPECT_EQ(rmm::align_down(0, 256), 0U);
  EXPECT_EQ(rmm::align_down(255, 256), 0U);
  EXPECT_EQ(rmm::align_down(256, 256), 256U);
  EXPECT_EQ(rmm::align_down(511, 256), 256U);
  EXPECT_EQ(rmm::align_down(max_size, 256), max_size - 255);
}

TEST(Alignment, IsAlignedAcceptsMultiplesOnly)
{
  EXPECT_TRUE(rmm::is_aligned(0, 16));
  EXPECT_TRUE(rmm::is_aligned(48, 16));
  EXPECT_FALSE(rmm::is_aligned(47, 16));
  EXPECT_FALSE(rmm::is_aligned(8, 16));
}

TEST(Alignment, FunctionsAreConstantExpressions)
{
  static_assert(rmm::is_pow2(64) && rmm::is_supported_alignment(64));
  static_assert(rmm::align_up(65, 64) == 128);
  static_assert(rmm::align_down(127, 64) == 64);
  static_assert(rmm::is_aligned(128, 64));
}

TEST(Alignment, PointersAreTestedByTheirAddress)
{
  alignas(512) std::array<char, 512> bytes{};
  EXPECT_TRUE(rmm::is_pointer_aligned(bytes.data()));
  EXPECT_TRUE(rmm::is_pointer_aligned(bytes.data(), 512));
  EXPECT_FALSE(rmm::is_pointer_aligned(bytes.data() + 1));
  EXPECT_FALSE(rmm::is_pointer_aligned(bytes.data() + 256, 512));
}

TEST(Alignment, PointersToConstAreAccepted)
{
  alignas(16) static constexpr std::array<char, 16> bytes{};
  void const* ptr = bytes.data();
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, 16));
}

#if RMM_ASSERTIONS_ENABLED
TEST(AlignmentDeathTest, AssertsThatAnAlignmentIsAPowerOfTwo)
{
  EXPECT_DEATH(static_cast<void>(rmm::align_up(1, 24)), "Assertion");
  EXPECT_DEATH(static_cast<void>(rmm::align_down(1, 0)), "Assertion");
  EXPECT_DEATH(static_cast<void>(rmm::is_aligned(1, 3)), "Assertion");
}
#endif

}  // namespace

// Users may have wrappers of these names in the global namespace, which must not be ambiguous.
static std::size_t align_up(std::size_t value) { return rmm::align_up(value, 32); }
static bool is_aligned(std::size_t value) { return rmm::is_aligned(value, 32); }

namespace {
TEST(Alignment, NamesDoNotCollideWithGlobalOnes)
{
  EXPECT_EQ(align_up(33), 64U);
  EXPECT_TRUE(is_aligned(64));
}
}  // namespace
