// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that holds memory for later requests and can give it back: `dynamic_cast<trimmable_resource*>(resource)`.
class trimmable_resource {
 public:
  /// Gives memory that is not in use back to where the resource has it from, and so on down to the device, until at most
  /// `bytes` bytes stay, as far as that goes. Returns how many bytes went back.
  virtual std::size_t trim_to(std::size_t bytes) noexcept = 0;

  /// The same for all that is not in use.
  std::size_t release_unused() noexcept { return trim_to(0); }

 protected:
  trimmable_resource()                                     = default;
  trimmable_resource(trimmable_resource const&)            = default;
  trimmable_resource& operator=(trimmable_resource const&) = default;
  ~trimmable_resource()                                    = default;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
