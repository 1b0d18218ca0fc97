// SPDX-License-Identifier: Apache-2.0
//
// The table of errors is complete and has no duplicates. tests/cuda tests the last error.

#include "support.hpp"

#include <set>
#include <string>

namespace cudasim_tests {
namespace {

/// All numbers that have a name.
std::vector<cudaError_t> known_errors()
{
  std::vector<cudaError_t> all;
  for (int number = 0; number < 1024; ++number) {
    auto const error = static_cast<cudaError_t>(number);
    if (std::string{cudaGetErrorName(error)} != "unrecognized error code") { all.push_back(error); }
  }
  return all;
}

TEST(ErrorTest, TheTableHasEveryError)
{
  EXPECT_EQ(known_errors().size(), 133U);  // of libcudart 13.0
}

TEST(ErrorTest, EveryErrorHasANameOfItsOwnAndADescription)
{
  std::set<std::string> names;
  for (auto const error : known_errors()) {
    std::string const name = cudaGetErrorName(error);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(name.compare(0, 4, "cuda"), 0) << name;
    EXPECT_STRNE(cudaGetErrorString(error), "") << name;
    EXPECT_STRNE(cudaGetErrorString(error), "unrecognized error code") << name;
  }
}

TEST(ErrorTest, TheTableIsInTheOrderOfTheNumbers)
{
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(0)), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(2)), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(400)), "cudaErrorInvalidResourceHandle");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(802)), "cudaErrorSystemNotReady");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(999)), "cudaErrorUnknown");
}

TEST(ErrorTest, AnErrorOfTheMachineBeforeIsForgotten)
{
  cudasim::reset({});
  EXPECT_EQ(cudaGetDevice(nullptr), cudaErrorInvalidValue);
  cudasim::reset({});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace cudasim_tests
