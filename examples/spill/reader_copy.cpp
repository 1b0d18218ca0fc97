// SPDX-License-Identifier: Apache-2.0
//
// Reads with a copy, for programs that are built without a CUDA compiler, and for the simulator.

#include "reader.hpp"

#include <rmm/detail/error.hpp>

#include <cuda_runtime_api.h>

void read_on_device(void* to, void const* from, std::size_t bytes, rmm::cuda_stream_view stream)
{
  RMM_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.value()));
}
