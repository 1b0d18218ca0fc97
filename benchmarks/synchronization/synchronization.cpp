// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/synchronization/synchronization.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_buffer.hpp>

#include <cstddef>

cuda_event_timer::cuda_event_timer(benchmark::State& state, bool flush_l2_cache, rmm::cuda_stream_view stream)
  : state_{state}, stream_{stream}
{
  if (flush_l2_cache) {
    int bytes{};
    RMM_CUDA_TRY(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, rmm::get_current_cuda_device().value()));
    if (bytes > 0) {
      rmm::device_buffer const buffer{static_cast<std::size_t>(bytes), stream_};
      RMM_CUDA_TRY(cudaMemsetAsync(const_cast<void*>(buffer.data()), 0, buffer.size(), stream_.value()));
    }
  }
  RMM_CUDA_TRY(cudaEventCreate(&start_));
  RMM_CUDA_TRY(cudaEventCreate(&stop_));
  RMM_CUDA_TRY(cudaEventRecord(start_, stream_.value()));
}

cuda_event_timer::~cuda_event_timer()
{
  float milliseconds{};
  RMM_ASSERT_CUDA_SUCCESS(cudaEventRecord(stop_, stream_.value()));
  RMM_ASSERT_CUDA_SUCCESS(cudaEventSynchronize(stop_));
  RMM_ASSERT_CUDA_SUCCESS(cudaEventElapsedTime(&milliseconds, start_, stop_));
  state_.SetIterationTime(static_cast<double>(milliseconds) / 1000);
  RMM_ASSERT_CUDA_SUCCESS(cudaEventDestroy(start_));
  RMM_ASSERT_CUDA_SUCCESS(cudaEventDestroy(stop_));
}
