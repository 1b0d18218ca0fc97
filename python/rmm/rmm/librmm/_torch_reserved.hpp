// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_innermost_resource.hpp"
#include "pylibrmm/memory_resource/_driver_pool.hpp"

#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

/// @file
/// Functions for the memory that a resource holds beyond what is allocated from it. They look below its adaptors.

namespace rmm_python {

/// Returns the bytes that the resource holds, in use or not: the size of a pool; `used` for a resource that is not a pool.
[[nodiscard]] inline std::int64_t reserved_bytes(rmm::mr::device_memory_resource& resource, std::int64_t used)
{
  auto& holder = innermost(resource);
  if (auto const* const pool = pool_in(holder)) { return std::max(static_cast<std::int64_t>(size_of(*pool)), used); }
  if (auto const* const pool = dynamic_cast<rmm::mr::cuda_async_memory_resource*>(&holder)) {
    auto const reserved = bytes_of(pool->pool_handle(), cudaMemPoolAttrReservedMemCurrent);
    return std::max(static_cast<std::int64_t>(reserved), used);
  }
  return used;
}

/// Makes the resource give unused memory back, if it can do that.
inline void release_unused(rmm::mr::device_memory_resource& resource)
{
  if (auto* const holder = dynamic_cast<rmm::mr::trimmable_resource*>(&innermost(resource))) {
    holder->release_unused();
  }
}

}  // namespace rmm_python
