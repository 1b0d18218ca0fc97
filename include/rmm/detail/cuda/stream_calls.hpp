// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

// What pools ask and tell streams and events, by the driver where it can: the runtime passes the same on, and takes longer for
// that than the driver for most answers. In ns, on an H200 with driver 580: whether a stream captures 68 and 22, its id 46 and
// 15, the thread's capture mode 38 and 7, recording an event 157 and 136, asking it 134 and 126.
//
// The driver answers cudaErrorDeviceUninitialized to a thread that has no context, where it needs one. The runtime makes one, so it
// is asked then, and where the driver lacks the function. The two have one set of errors, and none of these functions leaves one
// behind as the last error of the runtime.
//
// Hidden, as find_device_of_current_context() is, and for the same reason.

/// A function of the driver, looked for until the runtime says whether there is one; `otherwise` where there is none.
template <class Function>
[[nodiscard]] RMM_COLD Function find_stream_call(std::atomic<Function>& known,
                                                 char const* name,
                                                 Function otherwise) noexcept
{
  cudaError_t status{};
  auto found = find_driver_entry<Function>(name, status);
  if (found == nullptr) { found = otherwise; }
  if (status == cudaSuccess) { known.store(found, std::memory_order_relaxed); }
  return found;
}

/// Stands for a function that there is not: the answer of a driver that needs a context first.
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

/// Whether the driver has answered, so that there is nothing to ask the runtime.
[[nodiscard]] inline bool is_answer(cudaError_t status) noexcept
{
  return status != cudaErrorDeviceUninitialized && status != cudaErrorInitializationError;
}

[[nodiscard]] inline cudaError_t forgotten(cudaError_t status) noexcept
{
  if (status != cudaSuccess) { clear_last_cuda_error(); }
  return status;
}

/// A stream as functions of the driver know it that take 0 for the legacy default stream.
[[nodiscard]] inline cudaStream_t stream_of_driver(cudaStream_t stream) noexcept
{
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return stream == nullptr ? cudaStreamPerThread : stream;
#else
  return stream;
#endif
}

/// As cudaStreamIsCapturing().
[[nodiscard]] RMM_HIDDEN inline cudaError_t ask_if_capturing(cudaStream_t stream,
                                                             cudaStreamCaptureStatus* status) noexcept
{
  static std::atomic<int (*)(cudaStream_t, cudaStreamCaptureStatus*)> known{nullptr};
  auto const answer = ask_driver(known, "cuStreamIsCapturing", stream_of_driver(stream), status);
  return is_answer(answer) ? answer : forgotten(cudaStreamIsCapturing(stream, status));
}

/// As cudaThreadExchangeStreamCaptureMode().
[[nodiscard]] RMM_HIDDEN inline cudaError_t exchange_capture_mode(cudaStreamCaptureMode* mode) noexcept
{
  static std::atomic<int (*)(cudaStreamCaptureMode*)> known{nullptr};
  auto const answer = ask_driver(known, "cuThreadExchangeStreamCaptureMode", mode);
  return is_answer(answer) ? answer : forgotten(cudaThreadExchangeStreamCaptureMode(mode));
}

#if CUDART_VERSION >= 12000
/// As cudaStreamGetId().
[[nodiscard]] RMM_HIDDEN inline cudaError_t ask_stream_id(cudaStream_t stream, unsigned long long* id) noexcept
{
  static std::atomic<int (*)(cudaStream_t, unsigned long long*)> known{nullptr};
  auto const answer = ask_driver(known, "cuStreamGetId", stream_of_driver(stream), id);
  return is_answer(answer) ? answer : forgotten(cudaStreamGetId(stream, id));
}
#endif

/// As cudaEventRecord().
[[nodiscard]] RMM_HIDDEN inline cudaError_t record_event(cudaEvent_t event, cudaStream_t stream) noexcept
{
  static std::atomic<int (*)(cudaEvent_t, cudaStream_t)> known{nullptr};
  auto const answer = ask_driver(known, "cuEventRecord", event, stream_of_driver(stream));
  return is_answer(answer) ? answer : forgotten(cudaEventRecord(event, stream));
}

/// As cudaStreamWaitEvent() without flags.
[[nodiscard]] RMM_HIDDEN inline cudaError_t wait_for_event(cudaStream_t stream, cudaEvent_t event) noexcept
{
  static std::atomic<int (*)(cudaStream_t, cudaEvent_t, unsigned)> known{nullptr};
  auto const answer = ask_driver(known, "cuStreamWaitEvent", stream_of_driver(stream), event, 0U);
  return is_answer(answer) ? answer : forgotten(cudaStreamWaitEvent(stream, event, 0));
}

/// As cudaEventQuery().
[[nodiscard]] RMM_HIDDEN inline cudaError_t ask_event(cudaEvent_t event) noexcept
{
  static std::atomic<int (*)(cudaEvent_t)> known{nullptr};
  auto const answer = ask_driver(known, "cuEventQuery", event);
  return is_answer(answer) ? answer : forgotten(cudaEventQuery(event));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
