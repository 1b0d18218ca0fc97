// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_innermost_resource.hpp"
#include "librmm/_registered_owners.hpp"

#include <rmm/mr/device_memory_resource.hpp>

#include <memory>

/// @file
/// Resources with shared ownership: an adaptor keeps its upstream alive without Python objects.

namespace rmm_python {

/// Makes a pool detect captures that are not announced. Python programs need that, because they cannot see which calls allocate.
void check_captures(rmm::mr::device_memory_resource& resource) noexcept;

/// Makes a resource without an upstream.
template <class Resource, class... Args>
[[nodiscard]] resource_ptr make_resource(Args const&... args)
{
  return std::make_shared<Resource>(args...);
}

/// Makes a resource that keeps its upstream alive.
template <template <class...> class Resource, class... Args>
[[nodiscard]] resource_ptr make_resource_over(resource_ptr const& upstream, Args const&... args)
{
  struct layer {
    layer(resource_ptr const& below, Args const&... rest) : upstream{below}, resource{upstream.get(), rest...} {}
    resource_ptr upstream;
    Resource<rmm::mr::device_memory_resource> resource;
  };
  auto const made = std::make_shared<layer>(upstream, args...);
  check_captures(made->resource);
  return {made, &made->resource};
}

}  // namespace rmm_python
