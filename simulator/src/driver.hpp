// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The driver functions that cudaGetDriverEntryPoint and the simulated libcuda.so.1 (libcuda.cpp) hand out. They have
/// no symbols in libcudart_sim.so: a program that links the driver itself would get the real ones.

#include "world.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

namespace cudasim {

// The runtime's error numbers are the driver's, so one error type serves both.
static_assert(static_cast<int>(cudaErrorInvalidValue) == CUDA_ERROR_INVALID_VALUE);
static_assert(static_cast<int>(cudaErrorMemoryAllocation) == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(static_cast<int>(cudaErrorInvalidDevice) == CUDA_ERROR_INVALID_DEVICE);
static_assert(static_cast<int>(cudaErrorSymbolNotFound) == CUDA_ERROR_NOT_FOUND);
static_assert(static_cast<int>(cudaErrorNotPermitted) == CUDA_ERROR_NOT_PERMITTED);
static_assert(static_cast<int>(cudaErrorNotSupported) == CUDA_ERROR_NOT_SUPPORTED);
static_assert(static_cast<int>(cudaErrorUnknown) == CUDA_ERROR_UNKNOWN);

/// enter() for a driver function: it does not change the runtime's last error.
template <class Body>
CUresult enter_driver(entry_point& entry, void const* site, Body&& body) noexcept
{
  auto const before        = this_thread().last_error;
  auto const error         = enter(entry, site, std::forward<Body>(body));
  this_thread().last_error = before;
  return static_cast<CUresult>(error);
}

/// enter_driver() without the lock, for functions that only use the thread's own state.
template <class Body>
CUresult enter_driver_unlocked(entry_point& entry, Body&& body) noexcept
{
  auto const before        = this_thread().last_error;
  auto const error         = enter_unlocked(entry, std::forward<Body>(body));
  this_thread().last_error = before;
  return static_cast<CUresult>(error);
}

/// The body of a driver function, as CUDASIM_CALL is for a runtime function.
#define CUDASIM_DRIVER_CALL(function, ...)                                                         \
  if (::cudasim::is_forked()) { return static_cast<CUresult>(::cudasim::report_fork(#function)); } \
  static ::cudasim::entry_point entry{#function};                                                  \
  return ::cudasim::enter_driver(                                                                  \
    entry, __builtin_return_address(0), [&]([[maybe_unused]] ::cudasim::call & c) -> cudaError_t __VA_ARGS__)

/// Whether a handle names a default stream and the thread has no context for it. Runtime functions make one first.
[[nodiscard]] inline bool lacks_context(cudaStream_t handle) noexcept
{
  return (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) &&
         !this_thread().has_context;
}

/// A driver function, found by name and version.
struct driver_entry {
  std::string_view name;
  int since;  ///< CUDA version that introduced this signature
  void* function;
  void* per_thread;         ///< variant whose stream 0 is the thread's own; null if there is no difference
  std::string_view twin{};  ///< runtime function that calls are passed on to; empty if none
};

/// An entry whose function has the driver's signature.
template <class Signature>
[[nodiscard]] driver_entry entry_for(std::string_view name,
                                     int since,
                                     Signature* function,
                                     Signature* per_thread = nullptr)
{
  return {name, since, reinterpret_cast<void*>(function), reinterpret_cast<void*>(per_thread), {}};
}

/// The driver functions that a CUDA runtime calls, in addition to those of driver.cpp (driver_runtime.cpp).
struct driver_entries {
  driver_entry const* first;
  std::size_t count;
};
[[nodiscard]] driver_entries runtime_entries();

/// The runtime function that a driver function passes its calls on to; empty if it has none.
[[nodiscard]] std::string_view runtime_twin(std::string_view name);

/// The newest form of a function that `version` has, or null. With `own_stream`, the form in which stream 0 is the
/// thread's own. Sets `exists` to whether any version has the function. Needs no lock.
[[nodiscard]] void* find_driver_function(char const* name, int version, bool own_stream, bool& exists);

/// Reports the call of a driver function that is not simulated, and returns the error.
CUresult refuse_driver_call(entry_point& entry, void const* site);

/// The device of a context; -1 if it is none. Needs no lock.
[[nodiscard]] int device_of_context(CUcontext context);

namespace driver {

// api_capture.cpp
CUresult is_capturing(CUstream, CUstreamCaptureStatus*);
CUresult is_capturing_per_thread(CUstream, CUstreamCaptureStatus*);
CUresult exchange_capture_mode(CUstreamCaptureMode*);

// api_event.cpp
CUresult record(CUevent, CUstream);
CUresult record_per_thread(CUevent, CUstream);
CUresult query(CUevent);

// api_stream.cpp
CUresult wait_event(CUstream, CUevent, unsigned);
CUresult wait_event_per_thread(CUstream, CUevent, unsigned);

// virtual_memory.cpp
CUresult get_allocation_granularity(std::size_t*, CUmemAllocationProp const*, CUmemAllocationGranularity_flags);
CUresult reserve_addresses(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
CUresult free_addresses(CUdeviceptr, std::size_t);
CUresult create(CUmemGenericAllocationHandle*, std::size_t, CUmemAllocationProp const*, unsigned long long);
CUresult release(CUmemGenericAllocationHandle);
CUresult retain(CUmemGenericAllocationHandle*, void*);
CUresult map(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult unmap(CUdeviceptr, std::size_t);
CUresult set_access(CUdeviceptr, std::size_t, CUmemAccessDesc const*, std::size_t);
CUresult get_access(unsigned long long*, CUmemLocation const*, CUdeviceptr);
CUresult export_handle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
CUresult import_handle(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType);
CUresult get_properties(CUmemAllocationProp*, CUmemGenericAllocationHandle);

}  // namespace driver
}  // namespace cudasim
