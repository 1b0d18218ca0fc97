// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The functions of the CUDA driver that cudaGetDriverEntryPoint hands out, and cuGetProcAddress of the simulated libcuda.so.1
/// (libcuda.cpp). They have no symbols in libcudart_sim.so: a program that links the driver itself would get the real ones.

#include "world.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

namespace cudasim {

// The runtime took over the driver's numbers, so that one error type does for both.
static_assert(static_cast<int>(cudaErrorInvalidValue) == CUDA_ERROR_INVALID_VALUE);
static_assert(static_cast<int>(cudaErrorMemoryAllocation) == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(static_cast<int>(cudaErrorInvalidDevice) == CUDA_ERROR_INVALID_DEVICE);
static_assert(static_cast<int>(cudaErrorSymbolNotFound) == CUDA_ERROR_NOT_FOUND);
static_assert(static_cast<int>(cudaErrorNotPermitted) == CUDA_ERROR_NOT_PERMITTED);
static_assert(static_cast<int>(cudaErrorNotSupported) == CUDA_ERROR_NOT_SUPPORTED);
static_assert(static_cast<int>(cudaErrorUnknown) == CUDA_ERROR_UNKNOWN);

/// enter() for a driver function: the runtime's last error stays what it is.
template <class Body>
CUresult enter_driver(entry_point& entry, void const* site, Body&& body) noexcept
{
  auto const before        = this_thread().last_error;
  auto const error         = enter(entry, site, std::forward<Body>(body));
  this_thread().last_error = before;
  return static_cast<CUresult>(error);
}

/// The same for functions that only touch the thread's own state: without the lock.
template <class Body>
CUresult enter_driver_unlocked(entry_point& entry, Body&& body) noexcept
{
  auto const before        = this_thread().last_error;
  auto const error         = enter_unlocked(entry, std::forward<Body>(body));
  this_thread().last_error = before;
  return static_cast<CUresult>(error);
}

/// The body of a driver function, as CUDASIM_CALL is that of one of the runtime.
#define CUDASIM_DRIVER_CALL(function, ...)                                                         \
  if (::cudasim::is_forked()) { return static_cast<CUresult>(::cudasim::report_fork(#function)); } \
  static ::cudasim::entry_point entry{#function};                                                  \
  return ::cudasim::enter_driver(                                                                  \
    entry, __builtin_return_address(0), [&]([[maybe_unused]] ::cudasim::call & c) -> cudaError_t __VA_ARGS__)

/// Whether a handle names a default stream, and the thread has no context that this could be one of. Functions of the runtime
/// make one first.
[[nodiscard]] inline bool lacks_context(cudaStream_t handle) noexcept
{
  return (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) &&
         !this_thread().has_context;
}

/// A function of the driver, as it is found by name and version.
struct driver_entry {
  std::string_view name;
  int since;  ///< version of CUDA that the signature is from
  void* function;
  void* per_thread;         ///< where stream 0 is the thread's own; null where that makes no difference
  std::string_view twin{};  ///< the function of the runtime that calls are passed on to; empty where there is none
};

/// An entry whose function has the type of the driver's.
template <class Signature>
[[nodiscard]] driver_entry entry_for(std::string_view name,
                                     int since,
                                     Signature* function,
                                     Signature* per_thread = nullptr)
{
  return {name, since, reinterpret_cast<void*>(function), reinterpret_cast<void*>(per_thread), {}};
}

/// The functions that a CUDA runtime calls, besides those of driver.cpp (driver_runtime.cpp).
struct driver_entries {
  driver_entry const* first;
  std::size_t count;
};
[[nodiscard]] driver_entries runtime_entries();

/// The function of the runtime that a function of the driver passes its calls on to; empty if it does not.
[[nodiscard]] std::string_view runtime_twin(std::string_view name);

/// The newest form of a function that `version` has, or null. `own_stream`: the one in which stream 0 is that of the thread. `exists` says
/// whether any version has it. Needs no lock.
[[nodiscard]] void* find_driver_function(char const* name, int version, bool own_stream, bool& exists);

/// A call of a function of the driver that is not simulated.
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
