// SPDX-License-Identifier: Apache-2.0

// Tests the macros of a release build, independently of the build.
#undef RMM_ENABLE_ASSERTIONS
#undef RMM_ENABLE_EXPENSIVE_ASSERTIONS
#ifndef NDEBUG
#define NDEBUG
#endif
#include <rmm/detail/assert.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/logging_assert.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

namespace {

TEST(AssertionsOff, AreOff) { static_assert(RMM_ASSERTIONS_ENABLED == 0); }

TEST(AssertionsOff, DoNotEvaluateTheirConditions)
{
  [[maybe_unused]] int evaluations{0};
  RMM_ASSERT(++evaluations == 0);
  RMM_ASSERT_EXPENSIVE(++evaluations == 0);
  RMM_LOGGING_ASSERT(++evaluations == 0);
  EXPECT_EQ(evaluations, 0);
}

TEST(AssertionsOff, StillEvaluateCudaCallsAndIgnoreTheResult)
{
  int evaluations{0};
  RMM_ASSERT_CUDA_SUCCESS((++evaluations, cudaErrorUnknown));
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN((++evaluations, cudaErrorUnknown));
  EXPECT_EQ(evaluations, 2);
}

}  // namespace
