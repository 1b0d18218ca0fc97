// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/memory_location.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// Queues the migration of managed memory to a device, or to the host if `device` is negative.
///
/// Does nothing for memory of other kinds. Throws cuda_error on other failures.
RMM_ALWAYS_INLINE void prefetch_memory(void const* ptr, std::size_t bytes, int device, cudaStream_t stream)
{
#if CUDART_VERSION >= 13000
  cudaError_t const status{cudaMemPrefetchAsync(ptr, bytes, memory_location(device), 0, stream)};
#else
  cudaError_t const status{cudaMemPrefetchAsync(ptr, bytes, memory_location(device), stream)};
#endif
  if (status == cudaErrorInvalidValue) {  // CUDA returns this for memory of other kinds and for 0 bytes
    clear_last_cuda_error();
    return;
  }
  RMM_CUDA_TRY(status);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
