// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pylibrmm/memory_resource/_owned_resources.hpp"

#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rmm_python {

/// make_resource_over() for the resources that are compiled in _makers.cpp.
extern template resource_ptr make_resource_over<rmm::mr::pool_memory_resource>(resource_ptr const&,
                                                                               std::size_t const&,
                                                                               std::optional<std::size_t> const&);
extern template resource_ptr make_resource_over<rmm::mr::arena_memory_resource>(resource_ptr const&,
                                                                                std::optional<std::size_t> const&,
                                                                                bool const&);
extern template resource_ptr make_resource_over<rmm::mr::fixed_size_memory_resource>(resource_ptr const&,
                                                                                     std::size_t const&,
                                                                                     std::size_t const&);
extern template resource_ptr make_resource_over<rmm::mr::cached_memory_resource>(resource_ptr const&,
                                                                                 std::size_t const&,
                                                                                 std::optional<std::size_t> const&,
                                                                                 std::size_t const&);

/// Makes an elastic pool. A negative `decay_ms` means no decay.
[[nodiscard]] resource_ptr make_elastic_pool(std::size_t initial_bytes,
                                             std::optional<std::size_t> maximum_bytes,
                                             std::size_t chunk_bytes,
                                             std::int64_t decay_ms,
                                             bool peer_access,
                                             bool share_descriptors,
                                             bool share_fabric,
                                             bool gpu_direct_rdma);

struct pool_sizes {
  /// Throws the exception of a pool's constructor if it refuses the sizes. Needs no device.
  static void check(std::size_t initial, std::optional<std::size_t> maximum);
};

/// A block of an elastic pool, exported for another process. Python closes the descriptors.
struct exported_block {
  std::size_t offset_bytes{};
  std::size_t bytes{};
  std::size_t chunk_bytes{};
  std::vector<int> descriptors{};
  std::vector<std::string> fabric_handles{};
};

[[nodiscard]] exported_block export_descriptors(rmm::mr::elastic_pool_memory_resource const& pool,
                                                void const* ptr,
                                                std::size_t bytes);

[[nodiscard]] exported_block export_fabric(rmm::mr::elastic_pool_memory_resource const& pool,
                                           void const* ptr,
                                           std::size_t bytes);

/// Makes a binning resource; without bins if one of the exponents is -1.
[[nodiscard]] resource_ptr make_binning(resource_ptr const& upstream, int min_size_exponent, int max_size_exponent);

/// Adds a bin to a resource of make_binning(). If `bin` is null, the resource makes a fixed-size bin itself.
void add_bin_to(resource_ptr const& resource, std::size_t allocation_size, resource_ptr const& bin);

/// Throws std::invalid_argument, with the place, if the text is not a configuration.
void check_configuration(std::string const& text);

/// Makes the resource that a configuration describes, and sets its explanation.
[[nodiscard]] resource_ptr make_configured(std::string const& configuration, std::string& explanation);

}  // namespace rmm_python
