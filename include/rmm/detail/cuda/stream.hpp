// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

namespace RMM_NAMESPACE {
namespace detail {

/// Creates a stream of the current device. `flags` are those of cudaStreamCreateWithFlags(). Throws cuda_error.
[[nodiscard]] inline cudaStream_t create_stream(unsigned flags)
{
  cudaStream_t stream{};
  RMM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

/// Destroys a stream; its queued work still completes. For destructors: asserts on failure, except if the runtime is shut down.
inline void destroy_stream(cudaStream_t stream) noexcept
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaStreamDestroy(stream));
}

/// Waits on the host for the work of `stream`; throws cuda_error.
RMM_ALWAYS_INLINE void synchronize_stream(cudaStream_t stream) { RMM_CUDA_TRY(cudaStreamSynchronize(stream)); }

/// Waits on the host for the work of `stream`; failure is asserted, unless the runtime is gone.
RMM_ALWAYS_INLINE void synchronize_stream_no_throw(cudaStream_t stream) noexcept
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaStreamSynchronize(stream));
}

/// Waits on the host for the work of `stream`. Returns whether that succeeded.
[[nodiscard]] inline bool try_synchronize_stream(cudaStream_t stream) noexcept
{
  if (cudaStreamSynchronize(stream) == cudaSuccess) { return true; }
  clear_last_cuda_error();
  return false;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
