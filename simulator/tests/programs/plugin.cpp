// SPDX-License-Identifier: Apache-2.0
//
// A shared object that unloading_tests.cpp loads. It is compiled twice, with different names of its functions.

#include <cuda_runtime_api.h>

#include <cstddef>

namespace {

/// Uses the result of the call, so that the call is not a jump.
[[gnu::noinline]] int CUDASIM_PLUGIN_NAME(void** out, std::size_t bytes)
{
  int volatile const status = cudaMalloc(out, bytes);
  return status;
}

}  // namespace

extern "C" int plugin_allocate(void** out, std::size_t bytes)
{
  int volatile const status = CUDASIM_PLUGIN_NAME(out, bytes);
  return status;
}

extern "C" int plugin_fill(void* memory, std::size_t bytes, cudaStream_t stream)
{
  int volatile const status = cudaMemsetAsync(memory, 0, bytes, stream);
  return status;
}
