// SPDX-License-Identifier: Apache-2.0

// Tests the macros with expensive assertions, independently of the build.
#ifndef RMM_ENABLE_EXPENSIVE_ASSERTIONS
#define RMM_ENABLE_EXPENSIVE_ASSERTIONS
#endif
#include <rmm/detail/assert.hpp>

#include <gtest/gtest.h>

namespace {

TEST(ExpensiveAssertionsOn, BringTheCheapOnes) { static_assert(RMM_ASSERTIONS_ENABLED == 1); }

TEST(ExpensiveAssertionsOn, LetTrueConditionsPass)
{
  int evaluations{0};
  RMM_ASSERT_EXPENSIVE(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

TEST(ExpensiveAssertionsOnDeathTest, AFalseConditionEndsTheProgram)
{
  EXPECT_DEATH(RMM_ASSERT_EXPENSIVE(3 < 2), "Assertion `3 < 2' failed");
}

}  // namespace
