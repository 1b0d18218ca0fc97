// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_innermost_resource.hpp"

#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

/// @file
/// What a resource holds besides what is allocated from it, looked for behind the adaptors around it.

namespace rmm_python {

/// Bytes that the resource holds, in use or not: those of pools, else what is in use.
[[nodiscard]] inline std::int64_t reserved_bytes(rmm::mr::device_memory_resource& resource, std::int64_t used)
{
  auto& holder = innermost(resource);
  if (auto const* const pool = dynamic_cast<rmm::mr::detail::growing_pool*>(&holder)) {
    return std::max(static_cast<std::int64_t>(pool->pool_size()), used);
  }
  if (auto const* const pool = dynamic_cast<rmm::mr::cuda_async_memory_resource*>(&holder)) {
    std::uint64_t reserved{};
    if (cudaMemPoolGetAttribute(pool->pool_handle(), cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess) {
      return std::max(static_cast<std::int64_t>(reserved), used);
    }
    rmm::detail::clear_last_cuda_error();
  }
  return used;
}

/// Lets the resource give back what is not in use, if it can.
inline void release_unused(rmm::mr::device_memory_resource& resource)
{
  if (auto* const holder = dynamic_cast<rmm::mr::trimmable_resource*>(&innermost(resource))) {
    holder->release_unused();
  }
}

}  // namespace rmm_python
