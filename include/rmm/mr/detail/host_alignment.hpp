// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// Returns the alignment that host resources use: at least the default, and the default if `alignment` is not a power of two.
[[nodiscard]] constexpr std::size_t host_alignment(std::size_t alignment) noexcept
{
  bool const is_usable = is_supported_alignment(alignment) && alignment > RMM_DEFAULT_HOST_ALIGNMENT;
  return is_usable ? alignment : RMM_DEFAULT_HOST_ALIGNMENT;
}

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
