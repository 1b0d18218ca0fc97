// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>

#include <string>

namespace rmm_python {

/// snapshot() of a resource, as JSON; an empty one of a resource that has none.
[[nodiscard]] inline std::string snapshot_of(rmm::mr::device_memory_resource* resource)
{
  using rmm::mr::device_memory_resource;
  rmm::memory_snapshot now;
  auto const try_as = [&](auto* found) {
    if (found != nullptr) { now = found->snapshot(); }
    return found != nullptr;
  };
  static_cast<void>(try_as(dynamic_cast<rmm::mr::elastic_pool_memory_resource*>(resource)) ||
                    try_as(dynamic_cast<rmm::mr::pinned_pool_memory_resource*>(resource)) ||
                    try_as(dynamic_cast<rmm::mr::detail::growing_pool*>(resource)) ||
                    try_as(dynamic_cast<rmm::mr::arena_memory_resource<device_memory_resource>*>(resource)) ||
                    try_as(dynamic_cast<rmm::mr::fixed_size_memory_resource<device_memory_resource>*>(resource)) ||
                    try_as(dynamic_cast<rmm::mr::binning_memory_resource<device_memory_resource>*>(resource)));
  return now.to_json();
}

}  // namespace rmm_python
