// SPDX-License-Identifier: Apache-2.0
//
// Reads with a kernel, as queries do. It brings pages of managed memory to the device.

#include "reader.hpp"

#include <rmm/detail/error.hpp>

#include <cuda_runtime_api.h>

namespace {

__global__ void read(uint4* to, uint4 const* from, std::size_t count)
{
  auto const step = std::size_t{gridDim.x} * blockDim.x;
  for (auto i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) { to[i] = from[i]; }
}

}  // namespace

void read_on_device(void* to, void const* from, std::size_t bytes, rmm::cuda_stream_view stream)
{
  read<<<512, 256, 0, stream.value()>>>(
    static_cast<uint4*>(to), static_cast<uint4 const*>(from), bytes / sizeof(uint4));
  RMM_CUDA_TRY(cudaGetLastError());
}
