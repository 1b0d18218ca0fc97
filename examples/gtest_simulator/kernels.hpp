// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

/// The kernels of this project. kernels.cu defines them for a GPU, and kernels_on_host.cpp for tests on the simulator.

/// Sets sums[i] = values[i] + values[i + 1], for i < count - 1.
void launch_add_neighbours(float const* values, float* sums, std::size_t count, cudaStream_t stream);

/// Sets values[i] *= factor, for i < count.
void launch_scale(float* values, float factor, std::size_t count, cudaStream_t stream);
