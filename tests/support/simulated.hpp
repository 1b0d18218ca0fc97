// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/device.hpp>

#include <cudasim/cudasim.h>

#include <gtest/gtest.h>

/// A test on a fresh simulated machine, which the environment describes. It fails if something is not given back, or is misused.
struct Simulated : ::testing::Test {
  void SetUp() override { cudasim::reset(); }

  /// Replaces the machine. The new one may have another number of devices, which the library asks for only once.
  static void start(cudasim::options const& machine)
  {
    cudasim::reset(machine);
    rmm::detail::known_device_count = 0;
  }

  void TearDown() override
  {
    cudasim::clear_faults();
    EXPECT_EQ(cudasim::leak_report(), "");
    for (auto const& violation : cudasim::violations()) { ADD_FAILURE() << violation.text; }
    cudasim::clear_violations();
  }
};

/// A Simulated whose machine is there before the members of tests that derive from it.
struct FreshMachine : Simulated {
  FreshMachine() { cudasim::reset(); }
  void SetUp() override {}
};
