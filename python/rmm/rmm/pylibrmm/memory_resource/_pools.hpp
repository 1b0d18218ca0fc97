// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_innermost_resource.hpp"
#include "pylibrmm/memory_resource/_owned_resources.hpp"
#include "pylibrmm/memory_resource/_suballocators.hpp"

#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rmm_python {

using binning = rmm::mr::binning_memory_resource<rmm::mr::device_memory_resource>;

/// Makes an elastic pool. A negative `decay_ms` means no decay.
[[nodiscard]] inline resource_ptr make_elastic_pool(std::size_t initial_bytes,
                                                    std::optional<std::size_t> maximum_bytes,
                                                    std::size_t chunk_bytes,
                                                    std::int64_t decay_ms,
                                                    bool peer_access,
                                                    bool share_descriptors,
                                                    bool share_fabric,
                                                    bool gpu_direct_rdma)
{
  rmm::mr::elastic_pool_options options;
  options.initial_bytes     = initial_bytes;
  options.maximum_bytes     = maximum_bytes;
  options.chunk_bytes       = chunk_bytes;
  options.peer_access       = peer_access;
  options.share_descriptors = share_descriptors;
  options.share_fabric      = share_fabric;
  options.gpu_direct_rdma   = gpu_direct_rdma;
  if (decay_ms >= 0) { options.decay = std::chrono::milliseconds{decay_ms}; }
  auto const made = std::make_shared<rmm::mr::elastic_pool_memory_resource>(options);
  check_captures(*made);
  return made;
}

struct pool_sizes : rmm::mr::detail::growing_pool {
  /// Throws the exception of a pool's constructor if it refuses the sizes. Needs no device.
  static void check(std::size_t initial, std::optional<std::size_t> maximum) { check_sizes(initial, maximum); }
};

/// A block of an elastic pool, exported for another process. Python closes the descriptors.
struct exported_block {
  std::size_t offset_bytes{};
  std::size_t bytes{};
  std::size_t chunk_bytes{};
  std::vector<int> descriptors{};
  std::vector<std::string> fabric_handles{};
};

[[nodiscard]] inline exported_block export_descriptors(rmm::mr::elastic_pool_memory_resource const& pool,
                                                       void const* ptr,
                                                       std::size_t bytes)
{
  auto exported = pool.export_descriptors(ptr, bytes);
  exported_block result{exported.block.offset_bytes, exported.block.bytes, exported.block.chunk_bytes};
  result.descriptors.reserve(exported.chunks.size());
  for (auto& each : exported.chunks) { result.descriptors.push_back(each.release()); }
  return result;
}

[[nodiscard]] inline exported_block export_fabric(rmm::mr::elastic_pool_memory_resource const& pool,
                                                  void const* ptr,
                                                  std::size_t bytes)
{
  auto const exported = pool.export_fabric(ptr, bytes);
  exported_block result{exported.block.offset_bytes, exported.block.bytes, exported.block.chunk_bytes};
  for (auto const& each : exported.chunks) { result.fabric_handles.emplace_back(each.begin(), each.end()); }
  return result;
}

/// The deleter of a binning_memory_resource. It keeps the upstreams alive until then.
struct end_of_binning {
  resource_ptr upstream;
  std::vector<resource_ptr> bins;

  void operator()(binning* resource) const { delete resource; }
};

/// Makes a binning resource; without bins if one of the exponents is -1.
[[nodiscard]] inline resource_ptr make_binning(resource_ptr const& upstream,
                                               int min_size_exponent,
                                               int max_size_exponent)
{
  auto made =
    min_size_exponent == -1 || max_size_exponent == -1
      ? std::make_unique<binning>(upstream.get())
      : std::make_unique<binning>(
          upstream.get(), static_cast<std::int8_t>(min_size_exponent), static_cast<std::int8_t>(max_size_exponent));
  return resource_ptr{made.release(), end_of_binning{upstream, {}}};
}

/// Adds a bin to a resource of make_binning(). If `bin` is null, the resource makes a fixed-size bin itself.
inline void add_bin_to(resource_ptr const& resource, std::size_t allocation_size, resource_ptr const& bin)
{
  auto& bins = std::get_deleter<end_of_binning>(resource)->bins;
  bins.push_back(bin);
  static_cast<binning*>(resource.get())->add_bin(allocation_size, bin.get());
}

/// Throws std::invalid_argument, with the place, if the text is not a configuration.
inline void check_configuration(std::string const& text)
{
  static_cast<void>(rmm::mr::resource_configuration::parse(text));
}

/// Makes the resource that a configuration describes, and sets its explanation.
[[nodiscard]] inline resource_ptr make_configured(std::string const& configuration, std::string& explanation)
{
  rmm::mr::configured_resource const made{configuration};
  explanation = made.explanation();
  check_captures(innermost(*made));
  return made.share();
}

}  // namespace rmm_python
