// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"

#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <optional>

/// @file
/// Resources that allocate memory of the host, compiled in _makers.cpp. A negative `numa_node` means no node.

namespace rmm_python {

[[nodiscard]] resource_ptr make_system();
[[nodiscard]] resource_ptr make_pinned_host();
[[nodiscard]] resource_ptr make_sam_headroom(std::size_t headroom);
[[nodiscard]] resource_ptr make_pinned_pool(std::size_t initial_size,
                                            std::optional<std::size_t> maximum_size,
                                            bool near_device,
                                            int numa_node,
                                            unsigned threads,
                                            bool allow_pageable);
[[nodiscard]] resource_ptr make_registered_host(bool near_device, int numa_node, unsigned threads);

/// Returns numa_node() of a resource of make_registered_host().
[[nodiscard]] std::optional<int> numa_node_of(rmm::mr::device_memory_resource const* resource) noexcept;

/// Returns pageable_bytes() of a resource of make_pinned_pool().
[[nodiscard]] std::size_t pageable_bytes_of(rmm::mr::device_memory_resource const* resource);

}  // namespace rmm_python
