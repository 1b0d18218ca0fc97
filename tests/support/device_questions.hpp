// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulated.hpp"

#include <rmm/detail/cuda/device.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>

#include <gtest/gtest.h>

#include <cstdint>

/// A test of the number of questions for the current device.
struct DeviceQuestions : Simulated {
  void SetUp() override
  {
    Simulated::SetUp();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    static_cast<void>(rmm::detail::current_device());  // asks for the number of devices, and for the driver, once
  }

  /// Returns the calls of the driver's cuCtxGetDevice in `work`, which calls cudaGetDevice nowhere.
  template <class Work>
  static std::uint64_t questions(Work work)
  {
    auto const of_runtime = cudasim::calls("cudaGetDevice");
    auto const before     = cudasim::calls("cuCtxGetDevice");
    work();
    EXPECT_EQ(cudasim::calls("cudaGetDevice"), of_runtime);
    return cudasim::calls("cuCtxGetDevice") - before;
  }

  static std::uint64_t if_several(std::uint64_t count) { return cudasim::current_options().devices == 1 ? 0 : count; }
};
