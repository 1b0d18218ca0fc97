// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace rmm::benchmarks {

/// What run_on_device() is in this build.
enum class device_work {
  none,       ///< nothing: built without a CUDA compiler
  simulated,  ///< a stand-in of the simulator's, which takes no real time
  kernels,
};

[[nodiscard]] device_work device_work_kind();

/// Queues work of `ns` nanoseconds on one multiprocessor, which writes to `ptr`. False if that fails.
bool run_on_device(cudaStream_t stream, void* ptr, unsigned ns);

}  // namespace rmm::benchmarks
