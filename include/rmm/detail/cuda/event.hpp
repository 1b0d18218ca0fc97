// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/bits.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/stream_calls.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// An owner of an event without timing. Only streams of its device can record it; any stream can wait for it.
class owned_event {
 public:
  /// An event of the current device. Throws cuda_error.
  owned_event() { RMM_CUDA_TRY(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }

  /// An event of `device`, or of the current device if the number is negative. Throws cuda_error.
  explicit owned_event(int device) : device_{device}
  {
    device_scope const on_device{device};
    RMM_CUDA_TRY(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }

  /// No event, for a place that gets one later.
  explicit owned_event(std::nullptr_t) noexcept {}

  owned_event(owned_event&& other) noexcept : event_{std::exchange(other.event_, nullptr)}, device_{other.device_} {}
  owned_event& operator=(owned_event&& other) noexcept
  {
    std::swap(event_, other.event_);
    std::swap(device_, other.device_);
    return *this;
  }
  owned_event(owned_event const&)            = delete;
  owned_event& operator=(owned_event const&) = delete;

  ~owned_event()
  {
    if (event_ != nullptr) { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaEventDestroy(event_)); }
  }

  explicit operator bool() const noexcept { return event_ != nullptr; }

  /// Returns the device that was passed to the constructor; -1 if none was.
  [[nodiscard]] int device() const noexcept { return device_; }

  /// Records the event after all present work of `stream`. Returns false if the stream captures or recording fails. An event recorded
  /// in a capture is part of the graph, and cannot be waited for outside.
  [[nodiscard]] bool try_record(cudaStream_t stream) noexcept
  {
    return query_capture(stream).is_none() && try_record_running(stream);
  }

  /// As try_record(), for a stream that is known not to capture.
  [[nodiscard]] bool try_record_running(cudaStream_t stream) noexcept
  {
    return record_event(event_, stream) == cudaSuccess;
  }

  /// Makes the later work of `stream` wait for the event. Returns whether that succeeded.
  [[nodiscard]] bool try_make_wait(cudaStream_t stream) const noexcept
  {
    return wait_for_event(stream, event_) == cudaSuccess;
  }

  /// Whether the work before the event is done. False if CUDA fails to answer.
  [[nodiscard]] bool is_reached() const noexcept { return ask_event(event_) == cudaSuccess; }

  /// Waits on the host for the event. Asserts on failure, except if the runtime is shut down.
  void synchronize_no_throw() const noexcept { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_{};
  int device_{-1};
};

/// Waits on the host for all work of the current device. Returns whether that succeeded.
[[nodiscard]] inline bool try_synchronize_device() noexcept
{
  if (cudaDeviceSynchronize() == cudaSuccess) { return true; }
  clear_last_cuda_error();
  return false;
}

/// Waits on the host for all work of the current device. Throws cuda_error.
inline void synchronize_device() { RMM_CUDA_TRY(cudaDeviceSynchronize()); }

/// Whether the handle names a default stream: the legacy one, or that of the calling thread. Default streams are never destroyed.
[[nodiscard]] inline bool is_default_stream(cudaStream_t stream) noexcept
{
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/// Whether the handle names the legacy default stream. It never captures, but a capture may block it.
[[nodiscard]] inline bool is_legacy_stream(cudaStream_t stream) noexcept
{
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return stream == cudaStreamLegacy;
#else
  return stream == nullptr || stream == cudaStreamLegacy;
#endif
}

/// Whether the handle names the default stream of the calling thread.
[[nodiscard]] inline bool is_per_thread_stream(cudaStream_t stream) noexcept
{
  return is_default_stream(stream) && !is_legacy_stream(stream);
}

/// Returns the identity of the legacy default stream of the current device.
[[nodiscard]] inline std::uint64_t legacy_stream_identity() noexcept
{
  auto const device = current_device();
  return max_value<std::uint64_t> - static_cast<std::uint64_t>(device > 0 ? device : 0);
}

/// Returns the identity of a stream: a number that is unique even though CUDA soon reuses the handle of a destroyed stream. Default
/// streams of different devices have different identities.
///
/// Returns 0 if CUDA fails, for example because the handle names no stream. Runtimes before 12.0 have no such number; the identity is
/// the handle's value there. Asking a stream that captures invalidates the capture, in any mode. So call this only for streams that do
/// not capture, or where invalidating a capture is acceptable. stream_identity() first asks whether the stream captures, which takes twice
/// as long.
[[nodiscard]] inline std::uint64_t identity_of_running_stream(cudaStream_t stream) noexcept
{
  if (is_legacy_stream(stream)) { return legacy_stream_identity(); }
#if CUDART_VERSION >= 12000
  unsigned long long id{};
  return ask_stream_id(stream, &id) == cudaSuccess ? std::uint64_t{id} + 1 : 0;
#else
  return reinterpret_cast<std::uintptr_t>(stream);
#endif
}

/// Returns the identity of a stream, without invalidating a capture; 0 for a stream that captures.
[[nodiscard]] inline std::uint64_t stream_identity(cudaStream_t stream) noexcept
{
  if (!is_legacy_stream(stream) && query_capture(stream).is_capturing()) { return 0; }
  return identity_of_running_stream(stream);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
