// SPDX-License-Identifier: Apache-2.0

// Tests the macros with assertions, independently of the build.
#ifndef RMM_ENABLE_ASSERTIONS
#define RMM_ENABLE_ASSERTIONS
#endif
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/logging_assert.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstdio>

namespace {

TEST(AssertionsOn, AreOn) { static_assert(RMM_ASSERTIONS_ENABLED == 1); }

TEST(AssertionsOn, LetTrueConditionsPassAndEvaluateThemOnce)
{
  int evaluations{0};
  RMM_ASSERT(++evaluations == 1);
  RMM_LOGGING_ASSERT(++evaluations == 2);
  EXPECT_EQ(evaluations, 2);
}

TEST(AssertionsOn, EvaluateCudaCallsOnce)
{
  int evaluations{0};
  RMM_ASSERT_CUDA_SUCCESS((++evaluations, cudaSuccess));
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN((++evaluations, cudaSuccess));
  EXPECT_EQ(evaluations, 2);
}

constexpr int half(int value) { return RMM_ASSERT(value % 2 == 0), value / 2; }
static_assert(half(4) == 2, "usable in constant expressions");

TEST(AssertionsOnDeathTest, AFalseConditionEndsTheProgramWithItsTextAndPlace)
{
  EXPECT_DEATH(RMM_ASSERT(1 == 2), "assert_on_tests.cpp:[0-9]+: Assertion `1 == 2' failed");
}

TEST(AssertionsOnDeathTest, ConditionsMayHaveCommas)
{
  EXPECT_DEATH(RMM_ASSERT(std::is_same_v<int, long>), "Assertion `std::is_same_v<int, ?long>' failed");
}

TEST(AssertionsOnDeathTest, AFailedCudaCallEndsTheProgramWithTheError)
{
  EXPECT_DEATH(RMM_ASSERT_CUDA_SUCCESS(cudaErrorInvalidValue),
               "CUDA Error detected. cudaErrorInvalidValue invalid argument(.|\n)*Assertion "
               "`cudaErrorInvalidValue'");
}

TEST(AssertionsOnDeathTest, AnUnloadingRuntimeIsAFailure)
{
  EXPECT_DEATH(RMM_ASSERT_CUDA_SUCCESS(cudaErrorCudartUnloading), "cudaErrorCudartUnloading(.|\n)*Assertion");
}

TEST(AssertionsOnDeathTest, AnInitializationErrorIsAFailure)
{
  EXPECT_DEATH(RMM_ASSERT_CUDA_SUCCESS(cudaErrorInitializationError), "cudaErrorInitializationError(.|\n)*Assertion");
}

TEST(AssertionsOn, ToleratesAnInitializationErrorWhereShutdownIsSafe)
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaErrorInitializationError);
}

TEST(AssertionsOn, ToleratesAnUnloadingRuntimeWhereShutdownIsSafe)
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaErrorCudartUnloading);
}

TEST(AssertionsOn, ToleratesAMissingDeviceWhereShutdownIsSafe)
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaErrorNoDevice);
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaErrorInsufficientDriver);
}

TEST(AssertionsOnDeathTest, AssertsAMissingDeviceWhereShutdownIsNotSafe)
{
  EXPECT_DEATH(RMM_ASSERT_CUDA_SUCCESS(cudaErrorNoDevice), "cudaErrorNoDevice(.|\n)*Assertion");
}

TEST(AssertionsOnDeathTest, OtherErrorsAreFailuresWhereShutdownIsSafe)
{
  EXPECT_DEATH(RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaErrorUnknown), "cudaErrorUnknown(.|\n)*Assertion");
}

void print_log(rmm::detail::log_level level, char const* message) noexcept
{
  std::fprintf(stderr, "log(%d): %s\n", static_cast<int>(level), message);
}

TEST(AssertionsOnDeathTest, ALoggingAssertionIsLoggedFirst)
{
  EXPECT_DEATH(
    {
      rmm::detail::log_hook.store(print_log);
      RMM_LOGGING_ASSERT(2 < 1);
    },
    "log\\(5\\): \\[.*assert_on_tests.cpp:[0-9]+\\] Assertion 2 < 1 failed.\n(.|\n)*Assertion `2 < "
    "1' failed");
}

TEST(AssertionsOnDeathTest, ALoggingAssertionNeedsNoLog)
{
  EXPECT_DEATH(
    {
      rmm::detail::log_hook.store(nullptr);
      RMM_LOGGING_ASSERT(false);
    },
    "Assertion `false' failed");
}

}  // namespace
