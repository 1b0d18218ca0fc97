// SPDX-License-Identifier: Apache-2.0
#include "librmm/_innermost_resource.hpp"

#include "pylibrmm/memory_resource/environment_trace.hpp"

#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#define RMM_RESOURCE_HEADERS
#include <rmm/mr/detail/resource_table.inc>

namespace rmm_python {

rmm::mr::device_memory_resource* upstream_of_adaptor(rmm::mr::device_memory_resource& resource)
{
  using base        = rmm::mr::device_memory_resource;
  base* found       = nullptr;
  auto const try_as = [&](auto const* adaptor) {
    if (adaptor != nullptr) { found = adaptor->get_upstream(); }
  };
#define RMM_ADAPTOR(name, type, ...) try_as(dynamic_cast<rmm::mr::type<base>*>(&resource));
#define RMM_PYTHON_TRY_adaptors(type) try_as(dynamic_cast<rmm::mr::type<base>*>(&resource));
#define RMM_PYTHON_TRY_sources(type)
#define RMM_NOT_CONFIGURED(type, topic) RMM_PYTHON_TRY_##topic(type)
#include <rmm/mr/detail/resource_table.inc>
#undef RMM_PYTHON_TRY_adaptors
#undef RMM_PYTHON_TRY_sources
  try_as(dynamic_cast<rmm::mr::detail::csv_log_adaptor*>(&resource));
  try_as(dynamic_cast<rmm::tools::environment_trace*>(&resource));
  return found;
}

rmm::mr::device_memory_resource& innermost(rmm::mr::device_memory_resource& resource)
{
  auto* current = &resource;
  for (auto* next = current; next != nullptr;) {
    current = next;
    next    = upstream_of_adaptor(*current);
  }
  return *current;
}

rmm::mr::detail::growing_pool* pool_in(rmm::mr::device_memory_resource& resource) noexcept
{
  auto* const pinned = dynamic_cast<rmm::mr::pinned_pool_memory_resource*>(&resource);
  return pinned != nullptr ? &pinned->pool() : dynamic_cast<rmm::mr::detail::growing_pool*>(&resource);
}

std::size_t size_of(rmm::mr::detail::growing_pool const& pool) noexcept { return pool.pool_size(); }

}  // namespace rmm_python
