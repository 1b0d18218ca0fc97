// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/utilities/device_work.hpp>

#include <cudasim/cudasim.h>

rmm::benchmarks::device_work rmm::benchmarks::device_work_kind() { return device_work::simulated; }

bool rmm::benchmarks::run_on_device(cudaStream_t stream, void* ptr, unsigned ns)
{
  return cudasim::launch(stream, {}, {{ptr, sizeof(int)}}, {}, {"work", ns}) == cudaSuccess;
}
