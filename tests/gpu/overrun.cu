// SPDX-License-Identifier: Apache-2.0
//
// A kernel writes the 1,000 bytes of an allocation of a pool, and as many behind them as the argument says: still into
// memory of the pool, so that nothing but a tool that is told of the pool's allocations can object.
// overrun_is_found.cmake runs it.

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/nvtx/memory_marks.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

#if defined(RMM_DETAIL_MARKS_MEMORY)
constexpr bool marks_memory = true;
#else
constexpr bool marks_memory = false;
#endif

__global__ void fill(char* first, std::size_t count)
{
  for (std::size_t i = 0; i < count; ++i) { first[i] = 1; }
}

}  // namespace

int main(int argc, char** argv)
{
  if (!marks_memory) {
    std::puts("no marks");
    return 0;
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no device");
    return 0;
  }
  std::size_t const beyond = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource pool{&cuda, std::size_t{2} << 20U};
  rmm::cuda_stream const stream;
  void* const written   = pool.allocate(1000, stream);
  void* const neighbour = pool.allocate(1000, stream);
  fill<<<1, 1, 0, stream.value()>>>(static_cast<char*>(written), 1000 + beyond);
  auto const launched = cudaGetLastError();
  auto const ended    = cudaStreamSynchronize(stream.value());
  if (launched != cudaSuccess || ended != cudaSuccess) {
    std::puts("the kernel was stopped");
    std::fflush(stdout);
    std::_Exit(1);  // nothing can be freed any more
  }
  pool.deallocate(neighbour, 1000, stream);
  pool.deallocate(written, 1000, stream);
  std::puts("the kernel ended");
  return 0;
}
