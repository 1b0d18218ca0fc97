// SPDX-License-Identifier: Apache-2.0
#include "averages.hpp"

#include "kernels.hpp"

#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>

#include <cuda_runtime_api.h>

namespace {

/// An owner of an event.
class event {
 public:
  event() { RMM_CUDA_TRY(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~event() { cudaEventDestroy(event_); }
  event(event const&)            = delete;
  event& operator=(event const&) = delete;

  /// Makes later work on `waiting` wait for the work that is queued on `working` now.
  void order(rmm::cuda_stream_view working, rmm::cuda_stream_view waiting)
  {
    RMM_CUDA_TRY(cudaEventRecord(event_, working.value()));
    RMM_CUDA_TRY(cudaStreamWaitEvent(waiting.value(), event_));
  }

 private:
  cudaEvent_t event_{};
};

}  // namespace

std::vector<float> averages_of_neighbours(std::vector<float> const& values,
                                          rmm::cuda_stream_view copying,
                                          rmm::cuda_stream_view computing)
{
  auto const count = values.size();
  std::vector<float> result(count - 1);
  event copied;
  rmm::device_uvector<float> input(count, copying);
  rmm::device_uvector<float> output(count - 1, computing);

  RMM_CUDA_TRY(
    cudaMemcpyAsync(input.data(), values.data(), count * sizeof(float), cudaMemcpyHostToDevice, copying.value()));
  copied.order(copying, computing);  // without this line there is a race, and the tests report where
  input.set_stream(computing);       // frees the input on the last stream that uses it
  launch_add_neighbours(input.data(), output.data(), count, computing.value());
  launch_scale(output.data(), 0.5F, count - 1, computing.value());
  RMM_CUDA_TRY(cudaMemcpyAsync(
    result.data(), output.data(), result.size() * sizeof(float), cudaMemcpyDeviceToHost, computing.value()));
  computing.synchronize();
  return result;
}
