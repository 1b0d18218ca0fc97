// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

/// cuCtxGetDevice as CUDA 12 has it, and functions of its form. Spelled without cuda.h, whose 3,300 lines every container would
/// include: an error of the driver is an enumeration of this size, and a device an int.
using device_of_context_function = int (*)(int* device);

/// Stands for a driver that cannot be asked.
[[nodiscard]] inline int no_device_of_context(int*) noexcept { return cudaErrorNotSupported; }

/// Finds a function of the driver as CUDA `version` has it, in the form of CUDART_VERSION; null if there is none. `status` is
/// that of the search. Runtimes before 12.5 search their own version; none of them changed a function that the library uses.
template <class Function>
[[nodiscard]] Function find_driver_entry(char const* name,
                                         cudaError_t& status,
                                         [[maybe_unused]] unsigned version = 12000) noexcept
{
  void* found{};
  cudaDriverEntryPointQueryResult answer{};
#if CUDART_VERSION >= 12050
  status = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableLegacyStream, &answer);
#else
  status = cudaGetDriverEntryPoint(name, &found, cudaEnableLegacyStream, &answer);
#endif
  if (status != cudaSuccess) {
    clear_last_cuda_error();
    return nullptr;
  }
  return reinterpret_cast<Function>(found);
}

/// Finds cuCtxGetDevice, and whether its answers are the runtime's numbers. Null if the runtime or the driver does not say, as
/// before the driver is initialised: then it is worth asking again.
[[nodiscard]] RMM_COLD inline device_of_context_function find_device_of_context() noexcept
{
  cudaError_t status{};
  auto const device_of_context = find_driver_entry<device_of_context_function>("cuCtxGetDevice", status);
  if (status != cudaSuccess) { return nullptr; }
  auto const device_at = find_driver_entry<int (*)(int* device, int number)>("cuDeviceGet", status);
  if (status != cudaSuccess) { return nullptr; }
  if (device_of_context == nullptr || device_at == nullptr) { return no_device_of_context; }
  int count{};
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    clear_last_cuda_error();
    return nullptr;
  }
  // A device of the driver is a handle; that it is the number, as the runtime has it, nobody promises.
  for (int number = 0; number < count; ++number) {
    int device{-1};
    if (device_at(&device, number) != cudaSuccess) { return nullptr; }
    if (device != number) { return no_device_of_context; }
  }
  return device_of_context;
}

/// Puts the device of the calling thread's current context into `device`. False if it has no context, or the driver cannot be
/// asked: then the runtime has to be.
///
/// It is the device that cudaGetDevice() answers: since CUDA 12, cudaSetDevice() makes a primary context current at once (in
/// earlier releases only the next call that needed one did, and until then this would have been the device before), and where a
/// program makes a context of its own current, primary or not, the runtime goes by that one too. A thread that did nothing
/// with CUDA yet has none.
///
/// For hot paths: 10 ns in any number of threads. cudaGetDevice() takes 32 in one thread and 865 in sixteen at once. Hidden: a
/// shared object that is unloaded takes no function along that another would call.
[[nodiscard]] RMM_HIDDEN inline bool find_device_of_current_context(int& device) noexcept
{
  static std::atomic<device_of_context_function> known{nullptr};
  auto ask = known.load(std::memory_order_relaxed);
  if (ask == nullptr) {
    ask = find_device_of_context();
    if (ask == nullptr) { return false; }
    known.store(ask, std::memory_order_relaxed);
  }
  return ask(&device) == cudaSuccess;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
