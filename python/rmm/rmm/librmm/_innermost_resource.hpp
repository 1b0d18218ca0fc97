// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

namespace rmm_python {

/// The resource that `resource` takes memory from, if it is one of `Adaptors`; else null.
template <class... Adaptors>
[[nodiscard]] rmm::mr::device_memory_resource* upstream_if_one_of(rmm::mr::device_memory_resource& resource)
{
  rmm::mr::device_memory_resource* found = nullptr;
  auto const look                        = [&](auto const* adaptor) {
    if (adaptor != nullptr) { found = adaptor->get_upstream(); }
  };
  (look(dynamic_cast<Adaptors*>(&resource)), ...);
  return found;
}

/// The resource behind all adaptors; those of the library, and `Others`.
template <class... Others>
[[nodiscard]] rmm::mr::device_memory_resource& innermost(rmm::mr::device_memory_resource& resource)
{
  using base    = rmm::mr::device_memory_resource;
  auto* current = &resource;
  for (auto* next = current; next != nullptr;) {
    current = next;
    next    = upstream_if_one_of<rmm::mr::aligned_resource_adaptor<base>,
                              rmm::mr::failure_callback_resource_adaptor<base>,
                              rmm::mr::guard_resource_adaptor<base>,
                              rmm::mr::limiting_resource_adaptor<base>,
                              rmm::mr::logging_resource_adaptor<base>,
                              rmm::mr::prefetch_resource_adaptor<base>,
                              rmm::mr::statistics_resource_adaptor<base>,
                              rmm::mr::thread_safe_resource_adaptor<base>,
                              rmm::mr::trace_resource_adaptor<base>,
                              rmm::mr::tracking_resource_adaptor<base>,
                              Others...>(*current);
  }
  return *current;
}

}  // namespace rmm_python
