// SPDX-License-Identifier: Apache-2.0
//
// A first program: one pool for the whole process, containers on a stream, and the figures of the pool.

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

/// Copies `values` to the device, copies them again there, and copies the result back. All work is queued on `stream`; only the
/// last step waits.
std::vector<int> copy_to_device_and_back(std::vector<int> const& values, rmm::cuda_stream_view stream)
{
  auto const bytes = values.size() * sizeof(int);

  // The elements are uninitialised, as with new int[n], because the copy below writes them.
  rmm::device_uvector<int> input(values.size(), stream);
  RMM_CUDA_TRY(cudaMemcpyAsync(input.data(), values.data(), bytes, cudaMemcpyHostToDevice, stream.value()));

  rmm::device_uvector<int> copy(input, stream);  // a copy is made on an explicit stream

  std::vector<int> result(values.size());
  RMM_CUDA_TRY(cudaMemcpyAsync(result.data(), copy.data(), bytes, cudaMemcpyDeviceToHost, stream.value()));
  stream.synchronize();  // the host reads `result` next
  return result;
  // `copy` and `input` free their memory in the order of `stream`, without synchronization.
}

bool run()
{
  rmm::cuda_stream stream;

  std::vector<int> values(1'000'000);
  std::iota(values.begin(), values.end(), 0);
  bool const same = copy_to_device_and_back(values, stream) == values;

  int const answer = 42;
  rmm::device_scalar<int> scalar(answer, stream);
  return same && scalar.value(stream) == 42;  // value() waits for the stream
}

}  // namespace

int main()
{
  try {
    rmm::mr::cuda_memory_resource cuda;                   // cudaMalloc and cudaFree
    rmm::mr::pool_memory_resource pool(&cuda, 64 << 20);  // takes 64 MiB from it now, and more when needed
    rmm::mr::set_current_device_resource(&pool);          // containers use the pool by default
    bool const worked = run();                            // destroys all its containers
    rmm::mr::set_current_device_resource(nullptr);        // before the pool is destroyed

    auto const figures = pool.figures();
    std::printf("the data is %s; the pool has %zu bytes in use, of %zu MiB\n",
                worked ? "right" : "WRONG",
                figures.live_bytes,
                figures.reserved_bytes >> 20);
    return worked ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
