// SPDX-License-Identifier: Apache-2.0
//
// A program linked with the static CUDA runtime: alone, and after the simulator. driver_tests.cpp runs both.

#include <cuda_runtime_api.h>

#include <cstdio>

int main()
{
  void* ptr = nullptr;
  cudaStream_t stream{};
  auto error = cudaMalloc(&ptr, 4096);
  if (error == cudaSuccess) { error = cudaStreamCreate(&stream); }
  if (error == cudaSuccess) { error = cudaMemsetAsync(ptr, 1, 4096, stream); }
  if (error == cudaSuccess) { error = cudaStreamSynchronize(stream); }
  if (error == cudaSuccess) { error = cudaStreamDestroy(stream); }
  if (error == cudaSuccess) { error = cudaFree(ptr); }
  std::printf("%s\n", cudaGetErrorString(error));
  return error == cudaSuccess ? 0 : 1;
}
