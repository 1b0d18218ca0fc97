// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/synchronizations.hpp>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>

namespace {

std::atomic<std::uint64_t> calls{0};

/// Returns the function of this name in the CUDA runtime.
template <class Function>
Function* next(char const* name)
{
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#ifndef RMM_STATIC_CUDART

// The loader looks for symbols in the program first, so plug-ins call the functions below instead of the runtime's.

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED cudaError_t cudaDeviceSynchronize()
{
  static auto* const function = next<decltype(cudaDeviceSynchronize)>("cudaDeviceSynchronize");
  calls.fetch_add(1, std::memory_order_relaxed);
  return function();
}

EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  static auto* const function = next<decltype(cudaStreamSynchronize)>("cudaStreamSynchronize");
  calls.fetch_add(1, std::memory_order_relaxed);
  return function(stream);
}

EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  static auto* const function = next<decltype(cudaEventSynchronize)>("cudaEventSynchronize");
  calls.fetch_add(1, std::memory_order_relaxed);
  return function(event);
}

bool compare::counts_synchronizations() noexcept { return true; }

#else

bool compare::counts_synchronizations() noexcept { return false; }

#endif

std::uint64_t compare::synchronizations() noexcept { return calls.load(std::memory_order_relaxed); }
