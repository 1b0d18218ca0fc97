// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

namespace RMM_NAMESPACE {
namespace detail {

/// A new stream of the current device. `flags` are those of cudaStreamCreateWithFlags.
[[nodiscard]] inline cudaStream_t create_stream(unsigned flags)
{
  cudaStream_t stream{};
  RMM_CUDA_TRY(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

/// Ends a stream; its work goes on. For destructors: silent where the runtime is already gone.
inline void destroy_stream(cudaStream_t stream) noexcept
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaStreamDestroy(stream));
}

/// Waits on the host for the work of `stream`; throws cuda_error.
RMM_ALWAYS_INLINE void synchronize_stream(cudaStream_t stream) { RMM_CUDA_TRY(cudaStreamSynchronize(stream)); }

/// The same where nothing may be thrown; failure is asserted.
RMM_ALWAYS_INLINE void synchronize_stream_no_throw(cudaStream_t stream) noexcept
{
  RMM_ASSERT_CUDA_SUCCESS(cudaStreamSynchronize(stream));
}

/// The same where the caller can go on without. Returns whether the work is done.
[[nodiscard]] inline bool try_synchronize_stream(cudaStream_t stream) noexcept
{
  if (cudaStreamSynchronize(stream) == cudaSuccess) { return true; }
  clear_last_cuda_error();
  return false;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
