// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"

#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

class elastic_pool_memory_resource;

}  // namespace mr
}  // namespace RMM_NAMESPACE

namespace rmm_python {

[[nodiscard]] resource_ptr make_pool(resource_ptr const& upstream,
                                     std::size_t initial,
                                     std::optional<std::size_t> maximum);
[[nodiscard]] resource_ptr make_arena(resource_ptr const& upstream,
                                      std::optional<std::size_t> size,
                                      bool dump_log_on_failure);
[[nodiscard]] resource_ptr make_fixed_size(resource_ptr const& upstream,
                                           std::size_t block_size,
                                           std::size_t initial_blocks);
[[nodiscard]] resource_ptr make_cached(resource_ptr const& upstream,
                                       std::size_t initial,
                                       std::optional<std::size_t> maximum,
                                       std::size_t block_size);

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

/// Calls the functions of an elastic pool, whose header takes long to compile.
class elastic_pool_functions {
 public:
  /// Requires that `pool` is an elastic pool.
  explicit elastic_pool_functions(rmm::mr::device_memory_resource* pool) noexcept;

  std::size_t tick() const noexcept;
  /// Does not keep the contents, or keeps them in pageable or pinned memory of the host.
  void pause(bool keeps, bool pinned) const;
  void resume() const;
  [[nodiscard]] bool is_paused() const noexcept;
  void set_pausable(rmm::tag which) const;
  void pause(rmm::tag which, bool keeps, bool pinned) const;
  void resume(rmm::tag which) const;
  void retain_host_memory(bool on) const;
  [[nodiscard]] void const* kept_contents(void const* ptr, std::size_t bytes) const;
  [[nodiscard]] std::size_t mapped_bytes() const noexcept;
  [[nodiscard]] std::size_t chunk_bytes() const noexcept;
  [[nodiscard]] bool has_virtual_memory() const noexcept;
  [[nodiscard]] exported_block export_descriptors(void const* ptr, std::size_t bytes) const;
  [[nodiscard]] exported_block export_fabric(void const* ptr, std::size_t bytes) const;

 private:
  rmm::mr::elastic_pool_memory_resource* pool_;
};

/// Makes a binning resource; without bins if one of the exponents is -1.
[[nodiscard]] resource_ptr make_binning(resource_ptr const& upstream, int min_size_exponent, int max_size_exponent);

/// Adds a bin to a resource of make_binning(). If `bin` is null, the resource makes a fixed-size bin itself.
void add_bin_to(resource_ptr const& resource, std::size_t allocation_size, resource_ptr const& bin);

/// Throws std::invalid_argument, with the place, if the text is not a configuration.
void check_configuration(std::string const& text);

/// Makes the resource that a configuration describes, and sets its explanation.
[[nodiscard]] resource_ptr make_configured(std::string const& configuration, std::string& explanation);

}  // namespace rmm_python
