// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

/// The kernels of this project. Two files define them: kernels.cu for a GPU, and kernels_on_host.cpp for tests on the simulator.

/// sums[i] = values[i] + values[i + 1], for i < count - 1.
void launch_add_neighbours(float const* values, float* sums, std::size_t count, cudaStream_t stream);

/// values[i] *= factor, for i < count.
void launch_scale(float* values, float factor, std::size_t count, cudaStream_t stream);
