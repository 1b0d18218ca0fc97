// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/utilities/device_work.hpp>

namespace {

__device__ unsigned long long now_ns()
{
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void spin(int* where, unsigned ns)
{
  auto const start = now_ns();
  while (now_ns() - start < ns) {}
  *where = 1;
}

}  // namespace

rmm::benchmarks::device_work rmm::benchmarks::device_work_kind() { return device_work::kernels; }

bool rmm::benchmarks::run_on_device(cudaStream_t stream, void* ptr, unsigned ns)
{
  spin<<<1, 1, 0, stream>>>(static_cast<int*>(ptr), ns);
  return cudaGetLastError() == cudaSuccess;
}
