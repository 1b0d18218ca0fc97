// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

// Calls of pools on streams and events. They call the driver directly if possible, because the runtime only forwards them and is
// slower; docs/design.md has the figures.
//
// The driver returns cudaErrorDeviceUninitialized to a thread without a context if the call needs one. The runtime creates a context,
// so it is called then, and also if the driver lacks the function. Runtime and driver use one set of error numbers. None of these
// functions changes the runtime's last error.
//
// Hidden for the reason that find_device_of_current_context() gives.
//
// Order: the addresses of these functions are stored and loaded relaxed. They lead to code, not to data that another thread wrote: the
// driver is loaded before its functions can be found, and guards its own data. All threads find the same addresses, and a thread that
// reads null asks itself.

/// Finds a function of the driver, or `fallback` if the driver lacks it. Stores the result in `known`, unless the search failed.
template <class Function>
[[nodiscard]] RMM_COLD Function find_stream_call(std::atomic<Function>& known,
                                                 char const* name,
                                                 Function fallback) noexcept
{
  cudaError_t status{};
  auto found = find_driver_entry<Function>(name, status);
  if (found == nullptr) { found = fallback; }
  if (status == cudaSuccess) { known.store(found, std::memory_order_relaxed); }
  return found;
}

/// Used in place of a function that the driver lacks. Returns the error of a missing context, so that callers ask the runtime.
template <class... Arguments>
[[nodiscard]] int no_stream_call(Arguments... /*arguments*/) noexcept
{
  return cudaErrorDeviceUninitialized;
}

template <class... Arguments>
[[nodiscard]] cudaError_t ask_driver(std::atomic<int (*)(Arguments...)>& known,
                                     char const* name,
                                     Arguments... arguments) noexcept
{
  auto ask = known.load(std::memory_order_relaxed);
  if (ask == nullptr) { ask = find_stream_call<int (*)(Arguments...)>(known, name, no_stream_call<Arguments...>); }
  return static_cast<cudaError_t>(ask(arguments...));
}

/// Whether the driver has answered, so that the runtime need not be asked.
[[nodiscard]] inline bool is_answer(cudaError_t status) noexcept
{
  return status != cudaErrorDeviceUninitialized && status != cudaErrorInitializationError;
}

/// Clears the runtime's last error if `status` is an error. Returns `status`.
[[nodiscard]] inline cudaError_t clear_if_failed(cudaError_t status) noexcept
{
  if (status != cudaSuccess) { clear_last_cuda_error(); }
  return status;
}

/// Converts a handle for functions of the driver, which take 0 for the legacy default stream.
[[nodiscard]] inline cudaStream_t stream_of_driver(cudaStream_t stream) noexcept
{
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return stream == nullptr ? cudaStreamPerThread : stream;
#else
  return stream;
#endif
}

/// Whether a call of the driver on `stream` can only fail: default streams belong to the current context, and the thread has had none.
/// The driver answers for other streams without a context.
[[nodiscard]] RMM_HIDDEN inline bool lacks_context(cudaStream_t stream) noexcept
{
  return reinterpret_cast<std::uintptr_t>(stream) <= reinterpret_cast<std::uintptr_t>(cudaStreamPerThread) &&  // NOLINT
         !may_ask_driver();
}

/// As cudaStreamIsCapturing().
[[nodiscard]] RMM_HIDDEN inline cudaError_t ask_if_capturing(cudaStream_t stream,
                                                             cudaStreamCaptureStatus* status) noexcept
{
  static std::atomic<int (*)(cudaStream_t, cudaStreamCaptureStatus*)> known{nullptr};
  auto const answer = lacks_context(stream)
                        ? cudaErrorDeviceUninitialized
                        : ask_driver(known, "cuStreamIsCapturing", stream_of_driver(stream), status);
  return is_answer(answer) ? answer : clear_if_failed(cudaStreamIsCapturing(stream, status));
}

/// As cudaThreadExchangeStreamCaptureMode().
[[nodiscard]] RMM_HIDDEN inline cudaError_t exchange_capture_mode(cudaStreamCaptureMode* mode) noexcept
{
  static std::atomic<int (*)(cudaStreamCaptureMode*)> known{nullptr};
  auto const answer = ask_driver(known, "cuThreadExchangeStreamCaptureMode", mode);
  return is_answer(answer) ? answer : clear_if_failed(cudaThreadExchangeStreamCaptureMode(mode));
}

#if CUDART_VERSION >= 12000
/// As cudaStreamGetId().
[[nodiscard]] RMM_HIDDEN inline cudaError_t ask_stream_id(cudaStream_t stream, unsigned long long* id) noexcept
{
  static std::atomic<int (*)(cudaStream_t, unsigned long long*)> known{nullptr};
  auto const answer = lacks_context(stream) ? cudaErrorDeviceUninitialized
                                            : ask_driver(known, "cuStreamGetId", stream_of_driver(stream), id);
  return is_answer(answer) ? answer : clear_if_failed(cudaStreamGetId(stream, id));
}
#endif

/// As cudaEventRecord().
[[nodiscard]] RMM_HIDDEN inline cudaError_t record_event(cudaEvent_t event, cudaStream_t stream) noexcept
{
  static std::atomic<int (*)(cudaEvent_t, cudaStream_t)> known{nullptr};
  auto const answer = ask_driver(known, "cuEventRecord", event, stream_of_driver(stream));
  return is_answer(answer) ? answer : clear_if_failed(cudaEventRecord(event, stream));
}

/// As cudaStreamWaitEvent() without flags.
[[nodiscard]] RMM_HIDDEN inline cudaError_t wait_for_event(cudaStream_t stream, cudaEvent_t event) noexcept
{
  static std::atomic<int (*)(cudaStream_t, cudaEvent_t, unsigned)> known{nullptr};
  auto const answer = ask_driver(known, "cuStreamWaitEvent", stream_of_driver(stream), event, 0U);
  return is_answer(answer) ? answer : clear_if_failed(cudaStreamWaitEvent(stream, event, 0));
}

/// As cudaEventQuery().
[[nodiscard]] RMM_HIDDEN inline cudaError_t ask_event(cudaEvent_t event) noexcept
{
  static std::atomic<int (*)(cudaEvent_t)> known{nullptr};
  auto const answer = ask_driver(known, "cuEventQuery", event);
  return is_answer(answer) ? answer : clear_if_failed(cudaEventQuery(event));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
