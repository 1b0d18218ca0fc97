// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// Sets `bytes` bytes of device memory to `value`, in the order of `stream`. Throws cuda_error.
inline void fill_async(void* ptr, unsigned char value, std::size_t bytes, cudaStream_t stream)
{
  RMM_CUDA_TRY(cudaMemsetAsync(ptr, value, bytes, stream));
}

/// Sets `bytes` bytes of device memory to `value`, in the order of `stream`. Returns whether that succeeded.
[[nodiscard]] inline bool try_fill_async(void* ptr,
                                         unsigned char value,
                                         std::size_t bytes,
                                         cudaStream_t stream) noexcept
{
  if (cudaMemsetAsync(ptr, value, bytes, stream) == cudaSuccess) { return true; }
  clear_last_cuda_error();
  return false;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
