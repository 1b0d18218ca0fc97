// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/memory_resource/_owned_resources.hpp"

#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/sam_headroom_memory_resource.hpp>
#include <rmm/mr/system_memory_resource.hpp>

#include <cstddef>
#include <memory>
#include <optional>

namespace rmm_python {

/// Returns the options of pinned memory. A negative `numa_node` means no node.
[[nodiscard]] inline rmm::mr::pinned_memory_options pinned_options(bool near_device,
                                                                   int numa_node,
                                                                   unsigned threads,
                                                                   bool allow_pageable = false)
{
  rmm::mr::pinned_memory_options options;
  options.near_device    = near_device;
  options.threads        = threads;
  options.allow_pageable = allow_pageable;
  if (numa_node >= 0) { options.numa_node = numa_node; }
  return options;
}

[[nodiscard]] inline resource_ptr make_pinned_pool(std::size_t initial_size,
                                                   std::optional<std::size_t> maximum_size,
                                                   bool near_device,
                                                   int numa_node,
                                                   unsigned threads,
                                                   bool allow_pageable)
{
  auto const made = std::make_shared<rmm::mr::pinned_pool_memory_resource>(
    initial_size, maximum_size, pinned_options(near_device, numa_node, threads, allow_pageable));
  check_captures(*made);
  return made;
}

[[nodiscard]] inline resource_ptr make_registered_host(bool near_device, int numa_node, unsigned threads)
{
  return std::make_shared<rmm::mr::registered_host_memory_resource>(pinned_options(near_device, numa_node, threads));
}

}  // namespace rmm_python
