// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/memory_location.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// Whether `device` can use pageable host memory. Throws cuda_error.
[[nodiscard]] inline bool can_use_system_memory(int device)
{
  int answer{};
  RMM_CUDA_TRY(cudaDeviceGetAttribute(&answer, cudaDevAttrPageableMemoryAccess, device));
  return answer == 1;
}

/// Tells the driver the preferred location of memory that migrates: a device, or the host if the number is negative. Does nothing for 0
/// bytes. Throws cuda_error.
inline void advise_preferred_location(void const* ptr, std::size_t bytes, int device)
{
  if (bytes == 0) { return; }
  RMM_CUDA_TRY(cudaMemAdvise(ptr, bytes, cudaMemAdviseSetPreferredLocation, memory_location(device)));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
