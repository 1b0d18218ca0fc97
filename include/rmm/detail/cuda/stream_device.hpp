// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/context_device.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_calls.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

// These functions only ask the driver: cudaStreamGetDevice() would create a context on the current device of a thread without one.

/// The type of cuStreamGetDevice.
using device_of_stream_function = int (*)(cudaStream_t stream, int* device);

/// Finds the device of a stream by making the stream's context current briefly. For drivers before 12.8, without cuStreamGetDevice.
///
/// Order: the addresses of the driver's functions are relaxed here and below, as stream_calls.hpp explains.
[[nodiscard]] RMM_HIDDEN inline int ask_context_of_stream(cudaStream_t stream, int* device) noexcept
{
  using context = void*;  // CUcontext
  static std::atomic<int (*)(cudaStream_t, context*)> known_get{nullptr};
  static std::atomic<int (*)(context)> known_push{nullptr};
  using pop_function = int (*)(context*);
  static std::atomic<pop_function> known_pop{nullptr};
  pop_function const no_pop = no_stream_call<context*>;
  auto pop                  = known_pop.load(std::memory_order_relaxed);
  if (pop == nullptr) { pop = find_stream_call(known_pop, "cuCtxPopCurrent", no_pop); }
  if (pop == no_pop) { return cudaErrorNotSupported; }  // do not push a context that cannot be popped
  context stream_context{};
  auto status = ask_driver(known_get, "cuStreamGetCtx", stream, &stream_context);
  if (status == cudaSuccess) { status = ask_driver(known_push, "cuCtxPushCurrent", stream_context); }
  if (status != cudaSuccess) { return status; }
  bool const found = find_device_of_current_context(*device);
  context ignored{};
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(static_cast<cudaError_t>(pop(&ignored)));
  return found ? cudaSuccess : cudaErrorNotSupported;
}

/// Finds the fastest function for the question. Returns null if the driver cannot answer yet; ask again later then.
[[nodiscard]] RMM_COLD inline device_of_stream_function find_device_of_stream() noexcept
{
  auto const ask_context = find_device_of_context();
  if (ask_context == nullptr) { return nullptr; }
  if (ask_context == no_device_of_context) { return no_stream_call<cudaStream_t, int*>; }  // device numbers differ
#if CUDART_VERSION >= 12050
  constexpr int first_version{12080};
  auto const version = driver_version();
  if (version == 0) { return nullptr; }
  if (version >= first_version) {
    cudaError_t status{};
    auto const found = find_driver_entry<device_of_stream_function>("cuStreamGetDevice", status, first_version);
    if (status != cudaSuccess) { return nullptr; }
    if (found != nullptr) { return found; }
  }
#endif
  return ask_context_of_stream;
}

/// Returns the device of a stream that does not capture; -1 if the driver fails. Do not call it for a stream that captures: asking for
/// the id or the flags of a stream invalidates its capture, and CUDA does not document that asking for its device is safe.
[[nodiscard]] RMM_HIDDEN inline int device_of_running_stream(cudaStream_t stream) noexcept
{
  if (sees_one_device()) { return 0; }
  if (is_default_stream(stream)) { return current_device(); }
  static std::atomic<device_of_stream_function> known{nullptr};
  auto ask = known.load(std::memory_order_relaxed);
  if (ask == nullptr) {
    ask = find_device_of_stream();
    if (ask == nullptr) { return -1; }
    known.store(ask, std::memory_order_relaxed);
  }
  int device{-1};
  auto status = static_cast<cudaError_t>(ask(stream, &device));
  if (!is_answer(status)) { status = static_cast<cudaError_t>(ask_context_of_stream(stream, &device)); }
  return status == cudaSuccess ? device : -1;
}

/// Returns the device of `stream`, whichever device is current.
///
/// Returns 0 if the process sees one device. The handle of a default stream names the stream of the current device, also in a capture.
/// Returns -1 for other streams that capture, and if the driver fails. The handle of a destroyed stream is undefined behaviour in CUDA; the
/// simulator returns -1 for it, and reports it.
///
/// Creates no context, invalidates no capture, and does not change the runtime's last error.
/// Cost  no call if the process sees one device.
[[nodiscard]] inline int device_of_stream(cudaStream_t stream) noexcept
{
  if (sees_one_device()) { return 0; }
  if (is_default_stream(stream)) { return current_device(); }
  return query_capture(stream).is_capturing() ? -1 : device_of_running_stream(stream);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
