// SPDX-License-Identifier: Apache-2.0
//
// Part of every test program. Starts a new process for each death test, because CUDA does not work in a forked one.

#include <gtest/gtest.h>

namespace {

struct death_test_style : ::testing::Environment {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Sets the flag in an environment, because the flag may not be constructed yet at the start of the program.
[[maybe_unused]] auto const* const registered = ::testing::AddGlobalTestEnvironment(new death_test_style);

}  // namespace
