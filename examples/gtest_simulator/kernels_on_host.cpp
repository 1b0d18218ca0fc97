// SPDX-License-Identifier: Apache-2.0
//
// Host functions in place of the kernels. Each names the memory that the kernel reads and writes, and a loop that runs in the order of
// the stream.

#include "kernels.hpp"

#include <cudasim/cudasim.h>

void launch_add_neighbours(float const* values, float* sums, std::size_t count, cudaStream_t stream)
{
  cudasim::launch(stream,
                  {{values, count * sizeof(float)}},
                  {{sums, (count - 1) * sizeof(float)}},
                  [=] {
                    for (std::size_t i = 0; i + 1 < count; ++i) { sums[i] = values[i] + values[i + 1]; }
                  },
                  {"add_neighbours"});
}

void launch_scale(float* values, float factor, std::size_t count, cudaStream_t stream)
{
  cudasim::launch(stream,
                  {{values, count * sizeof(float)}},
                  {{values, count * sizeof(float)}},
                  [=] {
                    for (std::size_t i = 0; i < count; ++i) { values[i] *= factor; }
                  },
                  {"scale"});
}
