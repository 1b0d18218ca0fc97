// SPDX-License-Identifier: Apache-2.0

// Copies through device memory taken from rmm. Succeeds on the simulated runtime only.

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

#ifdef WITHOUT_SIMULATOR
static bool simulator_knows_of_it() { return false; }
#else
#include <cudasim/cudasim.h>
static bool simulator_knows_of_it() { return !cudasim::ledger().empty(); }
#endif

int main()
{
  rmm::mr::cuda_memory_resource mr;
  rmm::cuda_stream stream;
  constexpr std::size_t size = 1000;
  char sent[size];
  char received[size] = {};
  std::memset(sent, 7, size);

  void* const ptr      = mr.allocate(size, stream);
  bool const simulated = simulator_knows_of_it();
  cudaMemcpyAsync(ptr, sent, size, cudaMemcpyHostToDevice, stream.value());
  cudaMemcpyAsync(received, ptr, size, cudaMemcpyDeviceToHost, stream.value());
  stream.synchronize();
  mr.deallocate(ptr, size, stream);

  bool const same = std::memcmp(sent, received, size) == 0;
  std::printf("simulated: %d, same bytes: %d\n", simulated, same);
  return simulated && same ? 0 : 1;
}
