// SPDX-License-Identifier: Apache-2.0
//
// UVECTOR_BENCH: device_uvector against Thrust's vectors.

#include <benchmarks/synchronization/synchronization.hpp>
#include <benchmarks/utilities/resources.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/device_vector.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <thrust/device_vector.h>
#include <thrust/memory.h>

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace {

void BM_ThrustVectorSizeConstruction(benchmark::State& state)
{
  auto const pool = rmm::benchmarks::make_pool();
  rmm::mr::set_current_device_resource(pool.get());
  for ([[maybe_unused]] auto _ : state) {
    rmm::device_vector<std::int32_t> const vector(static_cast<std::size_t>(state.range(0)));
    RMM_CUDA_TRY(cudaDeviceSynchronize());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
  rmm::mr::set_current_device_resource(nullptr);
}
BENCHMARK(BM_ThrustVectorSizeConstruction)
  ->RangeMultiplier(10)
  ->Range(10'000, 1'000'000'000)
  ->Unit(benchmark::kMicrosecond);

__global__ void square(std::int32_t const* in, std::int32_t* out, std::size_t size)
{
  auto const stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (auto i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
    out[i] = in[i] * in[i];
  }
}

using thrust_vector = thrust::device_vector<std::int32_t>;
using rmm_vector    = rmm::device_vector<std::int32_t>;
using rmm_uvector   = rmm::device_uvector<std::int32_t>;

template <class Vector>
Vector make_vector(std::size_t size, rmm::cuda_stream_view stream)
{
  if constexpr (std::is_same_v<Vector, rmm_uvector>) {
    return Vector{size, stream};
  } else {
    return Vector(size);  // Thrust works on the default stream and sets the elements to zero
  }
}

template <class Vector>
std::int32_t* data_of(Vector& vector)
{
  return thrust::raw_pointer_cast(vector.data());
}

/// One input and four outputs, each output on its own stream. The outputs are the squares of the input.
template <class Vector>
void run_workflow(std::size_t size, rmm::cuda_stream const& in_stream, std::array<rmm::cuda_stream, 4> const& streams)
{
  constexpr int threads = 256;
  auto const blocks     = static_cast<unsigned>((size + threads - 1) / threads);

  auto input = make_vector<Vector>(size, in_stream);
  std::array<Vector, 4> outputs{make_vector<Vector>(size, streams[0]),
                                make_vector<Vector>(size, streams[1]),
                                make_vector<Vector>(size, streams[2]),
                                make_vector<Vector>(size, streams[3])};
  in_stream.synchronize();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    square<<<blocks, threads, 0, streams[i].value()>>>(data_of(input), data_of(outputs[i]), size);
    RMM_CUDA_TRY(cudaGetLastError());
  }
  for (auto const& stream : streams) { stream.synchronize(); }
}

template <class Vector>
void BM_VectorWorkflow(benchmark::State& state)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::set_current_device_resource(&async);
  {
    rmm::cuda_stream const in_stream;
    std::array<rmm::cuda_stream, 4> const streams;
    auto const size = static_cast<std::size_t>(state.range(0));
    for ([[maybe_unused]] auto _ : state) {
      cuda_event_timer const timer{state, true};
      run_workflow<Vector>(size, in_stream, streams);
    }
    constexpr std::int64_t accesses = 9;  // a read and a write for each output, and a write of the input
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0) *
                            static_cast<std::int64_t>(sizeof(std::int32_t)) * accesses);
  }
  rmm::mr::set_current_device_resource(nullptr);
}

#define REGISTER_WORKFLOW(vector)               \
  BENCHMARK_TEMPLATE(BM_VectorWorkflow, vector) \
    ->RangeMultiplier(10)                       \
    ->Range(100'000, 100'000'000)               \
    ->Unit(benchmark::kMicrosecond)             \
    ->UseManualTime()

REGISTER_WORKFLOW(thrust_vector);
REGISTER_WORKFLOW(rmm_vector);
REGISTER_WORKFLOW(rmm_uvector);

}  // namespace
