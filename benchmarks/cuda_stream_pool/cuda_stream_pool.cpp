// SPDX-License-Identifier: Apache-2.0
//
// CUDA_STREAM_POOL_BENCH: taking a stream from a pool, against creating one.

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>

#include <cuda_runtime_api.h>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <iostream>

namespace {

void BM_StreamPoolGetStream(benchmark::State& state)
{
  rmm::cuda_stream_pool const streams{};
  for ([[maybe_unused]] auto _ : state) { benchmark::DoNotOptimize(cudaStreamQuery(streams.get_stream().value())); }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(BM_StreamPoolGetStream)->Unit(benchmark::kMicrosecond);

void BM_CudaStreamClass(benchmark::State& state)
{
  for ([[maybe_unused]] auto _ : state) {
    rmm::cuda_stream const stream{};
    benchmark::DoNotOptimize(cudaStreamQuery(stream.value()));
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(BM_CudaStreamClass)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv)
{
  try {
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
  } catch (std::exception const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
  }
}
