// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudasim.h>

#include <gtest/gtest.h>

/// A test on a fresh simulated machine, as the environment describes it, that gives everything back
/// and misuses nothing.
struct Simulated : ::testing::Test {
  void SetUp() override { cudasim::reset(); }

  void TearDown() override
  {
    cudasim::clear_faults();
    EXPECT_EQ(cudasim::leak_report(), "");
    for (auto const& violation : cudasim::violations()) { ADD_FAILURE() << violation.text; }
    cudasim::clear_violations();
  }
};
