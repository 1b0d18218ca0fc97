// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_concepts.hpp>

#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

template <class Resource>
using upstream_calls = decltype(rmm::detail::lvalue<Resource>().get_upstream_resource());

}  // namespace detail

/// Whether `Resource`, a resource or a reference to one, is an adaptor: a memory resource with a function get_upstream_resource().
///
/// @code{.cpp}
/// using cuda = rmm::mr::cuda_memory_resource;
/// static_assert(rmm::mr::is_resource_adaptor<rmm::mr::statistics_resource_adaptor<cuda>>);
/// static_assert(!rmm::mr::is_resource_adaptor<cuda>);
/// @endcode
template <class Resource, class = void>
inline constexpr bool is_resource_adaptor = rmm::detail::offers<detail::upstream_calls, Resource>&&
  rmm::detail::polyfill::resource<std::remove_cv_t<std::remove_reference_t<Resource>>>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
