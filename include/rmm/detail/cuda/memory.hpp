// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// Memory of the current device. Throws out_of_memory, or bad_alloc if memory is not what is missing.
[[nodiscard]] inline void* allocate_device_memory(std::size_t bytes)
{
  void* ptr{};
  RMM_CUDA_TRY_ALLOC(cudaMalloc(&ptr, bytes), bytes);
  return ptr;
}

/// Memory that moves between host and devices as they use it. Throws the same.
[[nodiscard]] inline void* allocate_managed_memory(std::size_t bytes)
{
  void* ptr{};
  RMM_CUDA_TRY_ALLOC(cudaMallocManaged(&ptr, bytes, cudaMemAttachGlobal), bytes);
  return ptr;
}

/// Gives either kind back. Waits for the device.
inline void free_memory(void* ptr) noexcept { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaFree(ptr)); }

/// Copies between any two places, in the order of `stream`. Throws cuda_error.
inline void copy_async(void* destination, void const* source, std::size_t bytes, cudaStream_t stream)
{
  RMM_CUDA_TRY(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
