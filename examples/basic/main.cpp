// SPDX-License-Identifier: Apache-2.0
//
// The first program: one pool for the whole process, containers on a stream, and what the pool says about itself.

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

namespace {

/// Sends `values` to the device and back, through a copy of them there. All work is queued on `stream`; nothing waits but
/// the last line.
std::vector<int> there_and_back(std::vector<int> const& values, rmm::cuda_stream_view stream)
{
  auto const bytes = values.size() * sizeof(int);

  // Not initialised, as new int[n] is not: a kernel is going to write them anyway.
  rmm::device_uvector<int> there(values.size(), stream);
  RMM_CUDA_TRY(cudaMemcpyAsync(there.data(), values.data(), bytes, cudaMemcpyHostToDevice, stream.value()));

  rmm::device_uvector<int> copy(there, stream);  // copies say on which stream

  std::vector<int> back(values.size());
  RMM_CUDA_TRY(cudaMemcpyAsync(back.data(), copy.data(), bytes, cudaMemcpyDeviceToHost, stream.value()));
  stream.synchronize();  // the host is about to read `back`
  return back;
  // `copy` and `there` free their memory on `stream`: no synchronization, as for all work that comes later on it.
}

bool run()
{
  rmm::cuda_stream stream;

  std::vector<int> values(1'000'000);
  std::iota(values.begin(), values.end(), 0);
  bool const same = there_and_back(values, stream) == values;

  int const answer = 42;
  rmm::device_scalar<int> scalar(answer, stream);
  return same && scalar.value(stream) == 42;  // value() waits for the stream
}

}  // namespace

int main()
{
  try {
    rmm::mr::cuda_memory_resource cuda;                   // cudaMalloc and cudaFree
    rmm::mr::pool_memory_resource pool(&cuda, 64 << 20);  // takes 64 MiB from it now, more when that is not enough
    rmm::mr::set_current_device_resource(&pool);          // every container that is given no resource asks the pool
    bool const worked = run();                            // all containers are gone when it returns
    rmm::mr::set_current_device_resource(nullptr);        // the pool is about to go

    auto const figures = pool.figures();
    std::printf("%s; the pool holds %zu MiB, of which %zu bytes are in use\n",
                worked ? "the data came back" : "the data did NOT come back",
                figures.reserved_bytes >> 20,
                figures.live_bytes);
    return worked ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
