// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>

#include <cuda_runtime_api.h>

#include <benchmark/benchmark.h>

/// Measures the time between construction and destruction on the device, with events on a stream, for benchmarks with manual
/// time. The destructor waits for the work and sets the iteration's time in seconds.
class cuda_event_timer {
 public:
  /// If `flush_l2_cache`, overwrites memory of the size of the L2 cache before the clock starts. Throws cuda_error.
  cuda_event_timer(benchmark::State& state,
                   bool flush_l2_cache,
                   rmm::cuda_stream_view stream = rmm::cuda_stream_default);
  ~cuda_event_timer();

  cuda_event_timer()                                   = delete;
  cuda_event_timer(cuda_event_timer const&)            = delete;
  cuda_event_timer& operator=(cuda_event_timer const&) = delete;

 private:
  benchmark::State& state_;
  rmm::cuda_stream_view stream_;
  cudaEvent_t start_{};
  cudaEvent_t stop_{};
};
