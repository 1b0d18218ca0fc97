// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// Allocates page-locked host memory that devices can use. Throws out_of_memory if memory is missing, bad_alloc on other failures.
[[nodiscard]] inline void* allocate_pinned_memory(std::size_t bytes)
{
  void* ptr{};
  RMM_CUDA_TRY_ALLOC(cudaHostAlloc(&ptr, bytes, cudaHostAllocDefault), bytes);
  return ptr;
}

/// Frees memory from allocate_pinned_memory(). Waits for the work that uses it.
inline void free_pinned_memory(void* ptr) noexcept { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaFreeHost(ptr)); }

}  // namespace detail
}  // namespace RMM_NAMESPACE
