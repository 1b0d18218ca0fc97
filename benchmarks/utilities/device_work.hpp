// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace rmm::benchmarks {

/// How run_on_device() works in this build.
enum class device_work {
  none,       ///< not at all: built without a CUDA compiler
  simulated,  ///< the simulator's stand-in, which takes no real time
  kernels,
};

[[nodiscard]] device_work device_work_kind();

/// Queues a kernel that runs for `ns` nanoseconds on one multiprocessor and writes to `ptr`. Returns false on failure.
bool run_on_device(cudaStream_t stream, void* ptr, unsigned ns);

}  // namespace rmm::benchmarks
