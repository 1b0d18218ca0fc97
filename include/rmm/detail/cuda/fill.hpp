// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace detail
}  // namespace RMM_NAMESPACE
