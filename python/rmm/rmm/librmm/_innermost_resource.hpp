// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

template <class Unused>
class basic_growing_pool;  // whose header takes long to compile
using growing_pool = basic_growing_pool<void>;

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE

namespace rmm_python {

/// Returns the upstream of `resource` if it is an adaptor of the library, else null. Includes adaptors that only configurations or
/// environment variables make.
[[nodiscard]] rmm::mr::device_memory_resource* upstream_of_adaptor(rmm::mr::device_memory_resource& resource);

/// Returns the resource below all adaptors.
[[nodiscard]] rmm::mr::device_memory_resource& innermost(rmm::mr::device_memory_resource& resource);

/// Returns the pool that a resource is or contains; null if there is none.
[[nodiscard]] rmm::mr::detail::growing_pool* pool_in(rmm::mr::device_memory_resource& resource) noexcept;

/// Returns pool_size() of a pool.
[[nodiscard]] std::size_t size_of(rmm::mr::detail::growing_pool const& pool) noexcept;

}  // namespace rmm_python
