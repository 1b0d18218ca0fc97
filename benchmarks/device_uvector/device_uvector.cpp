// SPDX-License-Identifier: Apache-2.0
//
// UVECTOR_BENCH: the part that needs no CUDA compiler; device_uvector.cu has the rest.

#include <benchmarks/utilities/resources.hpp>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <cuda_runtime_api.h>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <iostream>

namespace {

void BM_UvectorSizeConstruction(benchmark::State& state)
{
  auto const pool = rmm::benchmarks::make_pool();
  rmm::mr::set_current_device_resource(pool.get());
  for ([[maybe_unused]] auto _ : state) {
    rmm::device_uvector<std::int32_t> const vector{static_cast<std::size_t>(state.range(0)), rmm::cuda_stream_view{}};
    RMM_CUDA_TRY(cudaDeviceSynchronize());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
  rmm::mr::set_current_device_resource(nullptr);
}
BENCHMARK(BM_UvectorSizeConstruction)->RangeMultiplier(10)->Range(10'000, 1'000'000'000)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv)
{
  try {
    benchmark::Initialize(&argc, argv);
#ifndef RMM_BENCHMARKS_HAVE_KERNELS
    std::cout << "Built without a CUDA compiler: the benchmarks of Thrust's vectors are left out.\n";
#endif
    benchmark::RunSpecifiedBenchmarks();
  } catch (std::exception const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
  }
}
