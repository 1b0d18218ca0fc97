// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/device.hpp>

#include <cudasim/cudasim.h>

#include <gtest/gtest.h>

/// A test on a new simulated machine, which the environment describes. Fails if anything is leaked or misused.
struct Simulated : ::testing::Test {
  void SetUp() override { cudasim::reset(); }

  /// Replaces the machine. The number of devices, which the library asks for only once, may change. Devices have the memory that the
  /// environment sets, unless `machine` has an amount of its own.
  static void start(cudasim::options machine)
  {
    if (machine.memory_bytes == cudasim::options{}.memory_bytes) {
      machine.memory_bytes = cudasim::environment_options().memory_bytes;
    }
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

/// A Simulated that makes its machine before the members of derived tests are constructed.
struct FreshMachine : Simulated {
  FreshMachine() { cudasim::reset(); }
  void SetUp() override {}
};
