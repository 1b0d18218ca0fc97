// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

/// The type of cuCtxGetDevice in CUDA 12. It uses int for the driver's error enumeration and for its device, because every container
/// would otherwise include the 3,300 lines of cuda.h.
using device_of_context_function = int (*)(int* device);

/// Used in place of cuCtxGetDevice if the driver cannot be asked.
[[nodiscard]] inline int no_device_of_context(int*) noexcept { return cudaErrorNotSupported; }

/// Finds the function of the driver that belongs to a CUDA version, written as CUDART_VERSION. Returns null if there is none, and puts
/// the result of the search into `status`. Runtimes before 12.5 always search their own version; in these releases the functions that
/// the library uses did not change.
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

/// Finds cuCtxGetDevice. Returns no_device_of_context() if the driver lacks it, or numbers devices differently from the runtime.
///
/// Returns null if the runtime or the driver cannot answer yet, for example before the driver is initialised. Ask again later then.
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
  // A device of the driver is a handle. CUDA does not guarantee that it equals the runtime's number.
  for (int number = 0; number < count; ++number) {
    int device{-1};
    if (device_at(&device, number) != cudaSuccess) { return nullptr; }
    if (device != number) { return no_device_of_context; }
  }
  return device_of_context;
}

/// Returns whether the calling thread has a current context; true if the driver cannot be asked.
[[nodiscard]] RMM_COLD RMM_HIDDEN inline bool has_current_context() noexcept
{
  using current_context_function = int (*)(void** context);
  static std::atomic<current_context_function> known{nullptr};  // Order: as in stream_calls.hpp
  auto ask = known.load(std::memory_order_relaxed);
  if (ask == nullptr) {
    cudaError_t status{};
    ask = find_driver_entry<current_context_function>("cuCtxGetCurrent", status);
    if (ask == nullptr) { return true; }
    known.store(ask, std::memory_order_relaxed);
  }
  void* context{};
  return ask(&context) == cudaSuccess && context != nullptr;
}

/// Whether the calling thread has had a current context. Hidden, as find_device_of_current_context() is.
[[nodiscard]] RMM_HIDDEN inline bool& has_had_context() noexcept
{
  thread_local bool has_had{false};
  return has_had;
}

/// Whether the driver may be asked what needs a context. It fails in a thread that has none, and compute-sanitizer reports each
/// call that fails. So a thread is asked for its context until it has had one.
[[nodiscard]] RMM_HIDDEN inline bool may_ask_driver() noexcept
{
  auto& has_had = has_had_context();
  if (!has_had) { has_had = has_current_context(); }
  return has_had;
}

/// Puts the device of the calling thread's current context into `device`. Returns false if the thread has no context, or the driver
/// cannot be asked; ask the runtime then.
///
/// The result equals that of cudaGetDevice(). Since CUDA 12, cudaSetDevice() makes a primary context current immediately, and the
/// runtime follows any context that the program makes current. A thread that has not used CUDA yet has no context.
///
/// Cost  10 ns, in any number of threads; cudaGetDevice() takes 32 ns in one thread, and 865 ns in sixteen at once.
///
/// Hidden, so that each shared object has its own copy: the linker could keep a merged copy in an object that is unloaded.
[[nodiscard]] RMM_HIDDEN inline bool find_device_of_current_context(int& device) noexcept
{
  static std::atomic<device_of_context_function> known{nullptr};  // Order: as in stream_calls.hpp
  auto ask = known.load(std::memory_order_relaxed);
  if (ask == nullptr) {
    ask = find_device_of_context();
    if (ask == nullptr) { return false; }
    known.store(ask, std::memory_order_relaxed);
  }
  return may_ask_driver() && (has_had_context() = ask(&device) == cudaSuccess);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
