// SPDX-License-Identifier: Apache-2.0
//
// A program that defines a CUDA runtime of its own and links the simulator as well.

#include <cudasim/cudasim.h>
#include <cstddef>
#include <cstdio>

extern "C" __attribute__((visibility("default"))) cudaError_t cudaMalloc(void**, std::size_t)
{
  return cudaErrorNotSupported;
}

int main()
{
  std::puts("main runs");
  return static_cast<int>(cudasim::calls());
}
