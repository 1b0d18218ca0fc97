// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// The interface of resources that keep unused memory and can give it back. Use it to free memory for other programs without knowing the
/// class of the resource: `dynamic_cast<trimmable_resource*>(resource)`.
///
/// @code{.cpp}
/// rmm::mr::elastic_pool_memory_resource pool{std::size_t{2} << 20};
/// rmm::mr::device_memory_resource* const resource = &pool;
/// if (auto* const trimmable = dynamic_cast<rmm::mr::trimmable_resource*>(resource)) { trimmable->trim_to(0); }
/// @endcode
class trimmable_resource {
 public:
  /// Gives unused memory back to upstream, and through upstreams to the device, until at most `bytes` bytes are reserved. Memory that
  /// cannot be given back stays. Returns the bytes given back.
  virtual std::size_t trim_to(std::size_t bytes) noexcept = 0;

  /// Gives all unused memory back. Returns the bytes given back.
  std::size_t release_unused() noexcept { return trim_to(0); }

 protected:
  trimmable_resource()                                     = default;
  trimmable_resource(trimmable_resource const&)            = default;
  trimmable_resource& operator=(trimmable_resource const&) = default;
  ~trimmable_resource()                                    = default;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
