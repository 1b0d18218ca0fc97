// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"

#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <memory>

/// @file
/// Resources with shared owners: one made over another keeps that one alive, without the help of Python objects.

namespace rmm_python {

/// The pool that a resource is, or has in it; null if there is none.
[[nodiscard]] inline rmm::mr::detail::growing_pool* pool_in(rmm::mr::device_memory_resource& resource) noexcept
{
  auto* const pinned = dynamic_cast<rmm::mr::pinned_pool_memory_resource*>(&resource);
  return pinned != nullptr ? &pinned->pool() : dynamic_cast<rmm::mr::detail::growing_pool*>(&resource);
}

/// Lets a pool that Python has made find captures of CUDA graphs that nobody announces: programs in Python cannot see which
/// calls allocate.
inline void check_captures(rmm::mr::device_memory_resource& resource) noexcept
{
  if (auto* const pool = pool_in(resource)) { pool->set_check_capture(true); }
}

/// A resource that takes memory from the runtime.
template <class Resource, class... Args>
[[nodiscard]] resource_ptr make_resource(Args const&... args)
{
  return std::make_shared<Resource>(args...);
}

/// A resource over another, which ends after it.
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
