// SPDX-License-Identifier: Apache-2.0
//
// Part of every test program. The process of a death test has to start anew: CUDA does not work in one that is merely forked.

#include <gtest/gtest.h>

namespace {

struct death_test_style : ::testing::Environment {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// At the start of the program the flag itself may not be there yet.
[[maybe_unused]] auto const* const registered = ::testing::AddGlobalTestEnvironment(new death_test_style);

}  // namespace
