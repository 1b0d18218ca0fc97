// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/error.hpp>
#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace rmm_python {

/// Returns the driver's pool that the resource allocates from; null if it allocates from none.
[[nodiscard]] inline cudaMemPool_t driver_pool_of(rmm::mr::device_memory_resource& resource) noexcept
{
  cudaMemPool_t pool{};
  auto const try_as = [&](auto const* found) {
    if (found != nullptr) { pool = found->pool_handle(); }
  };
  try_as(dynamic_cast<rmm::mr::cuda_async_memory_resource*>(&resource));
  try_as(dynamic_cast<rmm::mr::cuda_async_view_memory_resource*>(&resource));
  try_as(dynamic_cast<rmm::mr::cuda_async_managed_memory_resource*>(&resource));
  return pool;
}

/// Returns an attribute of a pool that is a number of bytes; 0 if the driver does not know it.
[[nodiscard]] inline std::size_t bytes_of(cudaMemPool_t pool, cudaMemPoolAttr attribute) noexcept
{
  std::uint64_t bytes{};
  if (cudaMemPoolGetAttribute(pool, attribute, &bytes) == cudaSuccess) { return static_cast<std::size_t>(bytes); }
  rmm::detail::clear_last_cuda_error();
  return 0;
}

}  // namespace rmm_python
