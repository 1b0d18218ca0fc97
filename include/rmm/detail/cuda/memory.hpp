// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// Allocates memory of the current device. Throws out_of_memory if memory is missing, bad_alloc on other failures.
[[nodiscard]] inline void* allocate_device_memory(std::size_t bytes)
{
  void* ptr{};
  RMM_CUDA_TRY_ALLOC(cudaMalloc(&ptr, bytes), bytes);
  return ptr;
}

/// Allocates managed memory, which migrates between host and devices. Throws as allocate_device_memory().
[[nodiscard]] inline void* allocate_managed_memory(std::size_t bytes)
{
  void* ptr{};
  RMM_CUDA_TRY_ALLOC(cudaMallocManaged(&ptr, bytes, cudaMemAttachGlobal), bytes);
  return ptr;
}

/// Frees memory from allocate_device_memory() or allocate_managed_memory(). Waits for the device.
inline void free_memory(void* ptr) noexcept { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaFree(ptr)); }

/// Copies between host and device memory in any direction, in the order of `stream`. Returns the result of CUDA.
[[nodiscard]] inline cudaError_t try_copy_async(void* destination,
                                                void const* source,
                                                std::size_t bytes,
                                                cudaStream_t stream) noexcept
{
  return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream);
}

/// As try_copy_async(). Throws cuda_error.
inline void copy_async(void* destination, void const* source, std::size_t bytes, cudaStream_t stream)
{
  RMM_CUDA_TRY(try_copy_async(destination, source, bytes, stream));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
