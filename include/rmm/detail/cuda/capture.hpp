// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/cuda/stream_calls.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

/// Whether pools ask in each call if the stream captures, unless they are told not to.
#if defined(NDEBUG)
inline constexpr bool check_capture_by_default = false;
#else
inline constexpr bool check_capture_by_default = true;
#endif

/// What a stream has to do with stream captures.
enum class capture_status {
  none,         ///< its work runs
  active,       ///< its work becomes nodes of a graph
  invalidated,  ///< the same, but the capture was broken: its work goes nowhere
  blocked,      ///< the legacy default stream while a blocking stream captures: any use would break that capture
};

/// The same, and in which capture it is.
struct capture_state {
  capture_status status{capture_status::none};
  std::uint64_t id{};  // of an active capture; no other capture of the process has it

  /// Whether the stream is in a capture, broken or not.
  [[nodiscard]] bool is_capturing() const noexcept
  {
    return status == capture_status::active || status == capture_status::invalidated;
  }

  /// Whether work, events and waits of the stream are what they always are.
  [[nodiscard]] bool is_none() const noexcept { return status == capture_status::none; }
};

/// That of a stream that captures, or did so just now. Where CUDA does not say in which capture it is, that counts as broken:
/// were it none, memory could be made that is part of the graph.
[[nodiscard]] RMM_COLD inline capture_state query_active_capture(cudaStream_t stream) noexcept
{
  cudaStreamCaptureStatus status{cudaStreamCaptureStatusNone};
  unsigned long long id{};
  if (forgotten(cudaStreamGetCaptureInfo(stream, &status, &id)) != cudaSuccess) {
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

/// Asks CUDA; that breaks no capture. Where it does not say, for instance because the handle names no stream, it is none.
[[nodiscard]] inline capture_state query_capture(cudaStream_t stream) noexcept
{
  cudaStreamCaptureStatus status{cudaStreamCaptureStatusNone};
  auto const answer = ask_if_capturing(stream, &status);
  if (answer == cudaErrorStreamCaptureImplicit) { return {capture_status::blocked, 0}; }
  if (answer != cudaSuccess || status == cudaStreamCaptureStatusNone) { return {}; }
  return query_active_capture(stream);
}

/// Whether CUDA says that work of the stream runs, and becomes no node of a graph. Without an answer it is not known, so no.
[[nodiscard]] inline bool is_known_to_run(cudaStream_t stream) noexcept
{
  cudaStreamCaptureStatus status{cudaStreamCaptureStatusNone};
  return ask_if_capturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusNone;
}

/// As long as it lives, the calling thread may allocate, free and ask for events beside captures, its own too, without
/// breaking them. What concerns a capturing stream itself, or the whole device, goes on to be forbidden.
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
