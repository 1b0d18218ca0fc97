// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/stream.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/logging_assert.hpp>

#include <cuda_runtime_api.h>

#include <utility>

/// @file
/// Defines cuda_stream. rmm/cuda_stream.hpp also includes <memory>, because existing programs use <memory> without including it.

namespace RMM_NAMESPACE {

/// An owner of a CUDA stream. Use it instead of cudaStreamCreate(): it tells pools when the stream ends, so they can reuse memory that was
/// freed on it without a wait of the host. Pools do not learn when a stream from cudaStreamCreate() ends: before they reuse memory that was
/// freed on it, the host may have to wait for the device.
///
/// The constructor creates the stream on the current device. The destructor destroys it without waiting for its work. Destroy objects that
/// store the stream to free memory on it, such as a device_buffer, before the stream. Movable; a moved-from object owns no stream.
///
/// @code{.cpp}
/// rmm::cuda_stream const stream;
/// rmm::device_buffer const buffer{1000, stream.view()};  // freed in the order of the stream
/// stream.synchronize();
/// @endcode
class cuda_stream {
 public:
  /// How the stream relates to the legacy default stream.
  enum class flags : unsigned {
    sync_default = cudaStreamDefault,      ///< each waits for the work of the other
    non_blocking = cudaStreamNonBlocking,  ///< neither waits
  };

  /// A stream that synchronises with the legacy default stream. Throws cuda_error.
  cuda_stream() : cuda_stream{flags::sync_default} {}

  /// Throws cuda_error.
  explicit cuda_stream(flags creation_flags) : stream_{detail::create_stream(static_cast<unsigned>(creation_flags))}
  {
    detail::stream_begins(stream_);
  }

  cuda_stream(cuda_stream&& other) noexcept : stream_{std::exchange(other.stream_, nullptr)} {}

  cuda_stream& operator=(cuda_stream&& other) noexcept
  {
    reset(std::exchange(other.stream_, nullptr));  // a self-move keeps the stream
    return *this;
  }

  cuda_stream(cuda_stream const&)            = delete;
  cuda_stream& operator=(cuda_stream const&) = delete;

  ~cuda_stream() { reset(nullptr); }

  /// Whether this object owns a stream. False after a move from it.
  [[nodiscard]] bool is_valid() const noexcept { return stream_ != nullptr; }

  /// The handle. Requires is_valid().
  [[nodiscard]] cudaStream_t value() const noexcept
  {
    RMM_LOGGING_ASSERT(is_valid());
    return stream_;
  }

  /// Converts to value().
  explicit operator cudaStream_t() const noexcept { return value(); }

  /// Returns a view of the stream, which does not own it. Requires is_valid().
  [[nodiscard]] cuda_stream_view view() const noexcept { return cuda_stream_view{value()}; }

  /// Converts to view().
  operator cuda_stream_view() const noexcept { return view(); }

  /// Converts to the stream type of libcu++. Requires is_valid().
  operator ::cuda::stream_ref() const noexcept { return view(); }

  /// Waits on the host until the stream's work is done. Requires is_valid(). Throws cuda_error.
  void synchronize() const { view().synchronize(); }

  /// Waits as cuda_stream_view::synchronize_no_throw() does. Requires is_valid().
  void synchronize_no_throw() const noexcept { view().synchronize_no_throw(); }

 private:
  void reset(cudaStream_t stream) noexcept
  {
    if (is_valid()) {
      detail::stream_is_about_to_end(stream_);
      detail::destroy_stream(stream_);
    }
    stream_ = stream;
  }

  cudaStream_t stream_;  // null if no stream is owned
};

}  // namespace RMM_NAMESPACE
