// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

namespace {

constexpr unsigned threads = 256;

unsigned blocks_for(std::size_t count) { return static_cast<unsigned>((count + threads - 1) / threads); }

__global__ void add_neighbours(float const* values, float* sums, std::size_t count)
{
  auto const i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i + 1 < count) { sums[i] = values[i] + values[i + 1]; }
}

__global__ void scale(float* values, float factor, std::size_t count)
{
  auto const i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) { values[i] *= factor; }
}

}  // namespace

void launch_add_neighbours(float const* values, float* sums, std::size_t count, cudaStream_t stream)
{
  add_neighbours<<<blocks_for(count), threads, 0, stream>>>(values, sums, count);
}

void launch_scale(float* values, float factor, std::size_t count, cudaStream_t stream)
{
  scale<<<blocks_for(count), threads, 0, stream>>>(values, factor, count);
}
