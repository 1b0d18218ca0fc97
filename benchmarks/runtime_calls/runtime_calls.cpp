// SPDX-License-Identifier: Apache-2.0
//
// RUNTIME_CALLS_BENCH: calls of the CUDA runtime that wait for nothing. With the simulator, it shows which part of other
// benchmarks' times the simulator itself takes.

#include <rmm/detail/error.hpp>

#include <cuda_runtime_api.h>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <exception>
#include <iostream>

namespace {

template <class Call>
void measure(char const* name, Call call)
{
  benchmark::RegisterBenchmark(name, [call](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) {
      if (call() != cudaSuccess) {
        state.SkipWithError("the call fails");
        break;
      }
    }
  });
}

/// Measures a call that `threads` threads make at once, each with a stream and an event of its own. `calls` are those of all threads in a
/// second.
template <class Call>
void measure_in_threads(char const* name, int threads, Call call)
{
  auto const body = [=](benchmark::State& state) {
    cudaStream_t stream{};
    cudaEvent_t event{};
    RMM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RMM_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    RMM_CUDA_TRY(cudaEventRecord(event, stream));
    RMM_CUDA_TRY(cudaEventSynchronize(event));
    for ([[maybe_unused]] auto _ : state) {
      if (call(stream, event) != cudaSuccess) {
        state.SkipWithError("the call fails");
        break;
      }
    }
    state.counters["calls"] = benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
    RMM_CUDA_TRY(cudaStreamSynchronize(stream));
    RMM_CUDA_TRY(cudaEventDestroy(event));
    RMM_CUDA_TRY(cudaStreamDestroy(stream));
  };
  benchmark::RegisterBenchmark(name, body)->Threads(threads)->UseRealTime();
}

void measure_all(cudaStream_t stream, cudaEvent_t event)
{
  auto const legacy = cudaStreamLegacy;
  measure("cudaGetDevice", [] {
    int device{};
    return cudaGetDevice(&device);
  });
  measure("cudaStreamGetId", [=] {
    unsigned long long id{};
    return cudaStreamGetId(stream, &id);
  });
  measure("cudaStreamIsCapturing", [=] {
    cudaStreamCaptureStatus status{};
    return cudaStreamIsCapturing(stream, &status);
  });
  measure("cudaEventQuery", [=] { return cudaEventQuery(event); });
  measure("cudaStreamWaitEvent", [=] { return cudaStreamWaitEvent(stream, event, 0); });
  measure("cudaStreamQuery", [=] { return cudaStreamQuery(stream); });
  measure("cudaStreamQuery/legacy", [=] { return cudaStreamQuery(legacy); });
  measure("cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); });
  measure("cudaStreamSynchronize", [=] { return cudaStreamSynchronize(stream); });
  measure("cudaStreamSynchronize/legacy", [=] { return cudaStreamSynchronize(legacy); });
  measure("cudaEventRecord", [=] { return cudaEventRecord(event, stream); });
  measure("cudaEventRecord/legacy", [=] { return cudaEventRecord(event, legacy); });
  for (auto const threads : {1, 16}) {
    measure_in_threads("cudaEventRecord, own streams", threads, [](cudaStream_t own, cudaEvent_t its) {
      return cudaEventRecord(its, own);
    });
    measure_in_threads(
      "cudaEventQuery, own streams", threads, [](cudaStream_t, cudaEvent_t its) { return cudaEventQuery(its); });
  }
  measure("cudaMalloc and cudaFree", [] {
    void* memory{};
    auto const status = cudaMalloc(&memory, 256);
    return status == cudaSuccess ? cudaFree(memory) : status;
  });
}

}  // namespace

int main(int argc, char** argv)
{
  try {
    cudaStream_t stream{};
    cudaEvent_t event{};
    RMM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RMM_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    RMM_CUDA_TRY(cudaEventRecord(event, stream));
    RMM_CUDA_TRY(cudaEventSynchronize(event));
    measure_all(stream, event);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    RMM_CUDA_TRY(cudaEventDestroy(event));
    RMM_CUDA_TRY(cudaStreamDestroy(stream));
  } catch (std::exception const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
  }
}
