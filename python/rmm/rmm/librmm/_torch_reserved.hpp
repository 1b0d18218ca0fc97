// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

/// @file
/// What a resource holds besides what is allocated from it, looked for behind the adaptors around it.

namespace rmm_python {

/// The resource that `resource` takes memory from, if it is one of `Adaptors`; else null.
template <template <class...> class... Adaptors>
[[nodiscard]] rmm::mr::device_memory_resource* upstream_if_one_of(rmm::mr::device_memory_resource& resource)
{
  rmm::mr::device_memory_resource* found = nullptr;
  auto const look                        = [&](auto const* adaptor) {
    if (adaptor != nullptr) { found = adaptor->get_upstream(); }
  };
  (look(dynamic_cast<Adaptors<rmm::mr::device_memory_resource>*>(&resource)), ...);
  return found;
}

/// The resource behind all adaptors.
[[nodiscard]] inline rmm::mr::device_memory_resource& innermost(rmm::mr::device_memory_resource& resource)
{
  auto* current = &resource;
  for (auto* next = current; next != nullptr;) {
    current = next;
    next    = upstream_if_one_of<rmm::mr::aligned_resource_adaptor,
                              rmm::mr::failure_callback_resource_adaptor,
                              rmm::mr::limiting_resource_adaptor,
                              rmm::mr::logging_resource_adaptor,
                              rmm::mr::prefetch_resource_adaptor,
                              rmm::mr::statistics_resource_adaptor,
                              rmm::mr::thread_safe_resource_adaptor,
                              rmm::mr::trace_resource_adaptor,
                              rmm::mr::tracking_resource_adaptor>(*current);
  }
  return *current;
}

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
