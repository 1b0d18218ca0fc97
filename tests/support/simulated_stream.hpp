// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>

#include <optional>

/// A Simulated with a stream.
struct SimulatedStream : Simulated {
  std::optional<rmm::cuda_stream> made;
  rmm::cuda_stream_view stream;

  void SetUp() override
  {
    Simulated::SetUp();
    stream = made.emplace();
  }
  void TearDown() override
  {
    made.reset();
    Simulated::TearDown();
  }
};
