// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/cuda/stream_calls.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

/// The default of pools: whether each call asks CUDA for the capture status of its stream, also while no capture is announced.
#if defined(NDEBUG)
inline constexpr bool check_capture_by_default = false;
#else
inline constexpr bool check_capture_by_default = true;
#endif

/// The relation of a stream to stream captures.
enum class capture_status {
  none,         ///< its work runs
  active,       ///< its work becomes nodes of a graph
  invalidated,  ///< it is in a capture that was invalidated: its work is lost
  blocked,  ///< it is the legacy default stream while a blocking stream captures: any use would invalidate that capture
};

/// The status of a stream, and the id of its capture.
struct capture_state {
  capture_status status{capture_status::none};
  std::uint64_t id{};  // of an active capture; unique in the process

  /// Whether the stream is in a capture, valid or not.
  [[nodiscard]] bool is_capturing() const noexcept
  {
    return status == capture_status::active || status == capture_status::invalidated;
  }

  /// Whether the stream has nothing to do with a capture.
  [[nodiscard]] bool is_none() const noexcept { return status == capture_status::none; }
};

/// Returns the state of a stream that captures, or did so a moment ago. If CUDA does not return the id of the capture, it counts as
/// invalidated. It must not count as none: memory of the graph could then be taken for ordinary memory.
[[nodiscard]] RMM_COLD inline capture_state query_active_capture(cudaStream_t stream) noexcept
{
  cudaStreamCaptureStatus status{cudaStreamCaptureStatusNone};
  unsigned long long id{};
  if (clear_if_failed(cudaStreamGetCaptureInfo(stream, &status, &id)) != cudaSuccess) {
    return {capture_status::invalidated, 0};
  }
  switch (status) {
    case cudaStreamCaptureStatusActive:
      return {capture_status::active, id};
    case cudaStreamCaptureStatusInvalidated:
      return {capture_status::invalidated, 0};
    default:
      return {};
  }
}

/// Asks CUDA for the state of a stream, without invalidating a capture. The status is none if CUDA fails, as for an invalid handle.
[[nodiscard]] inline capture_state query_capture(cudaStream_t stream) noexcept
{
  cudaStreamCaptureStatus status{cudaStreamCaptureStatusNone};
  auto const answer = ask_if_capturing(stream, &status);
  if (answer == cudaErrorStreamCaptureImplicit) { return {capture_status::blocked, 0}; }
  if (answer != cudaSuccess || status == cudaStreamCaptureStatusNone) { return {}; }
  return query_active_capture(stream);
}

/// Whether CUDA answers that the stream does not capture. False if CUDA fails to answer.
[[nodiscard]] inline bool is_known_to_run(cudaStream_t stream) noexcept
{
  cudaStreamCaptureStatus status{cudaStreamCaptureStatusNone};
  return ask_if_capturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusNone;
}

/// A scope in which the calling thread may allocate, free and query events while streams capture, also its own, without invalidating
/// the captures. Operations on a capturing stream itself, or on the whole device, remain forbidden.
class capture_exemption {
 public:
  capture_exemption() noexcept : exchanged_{exchange()} {}
  ~capture_exemption()
  {
    if (exchanged_) { static_cast<void>(exchange()); }
  }
  capture_exemption(capture_exemption const&)            = delete;
  capture_exemption& operator=(capture_exemption const&) = delete;

 private:
  [[nodiscard]] bool exchange() noexcept { return exchange_capture_mode(&mode_) == cudaSuccess; }

  cudaStreamCaptureMode mode_{cudaStreamCaptureModeRelaxed};
  bool exchanged_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
