// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// Returns the alignment for a call through a reference to `upstream`, so that device memory is aligned and `bytes` are not rounded.
///
/// A device_memory_resource rounds sizes up to the alignment of a call, but always guarantees CUDA_ALLOCATION_ALIGNMENT. It gets the
/// largest power of two that divides `bytes`, up to that value; so does a resource of unknown type, if `upstream` is null. Other
/// resources get CUDA_ALLOCATION_ALIGNMENT.
template <class Upstream>
[[nodiscard]] constexpr std::size_t alignment_without_rounding(Upstream const* upstream, std::size_t bytes) noexcept
{
  if (!std::is_base_of_v<device_memory_resource, Upstream> && upstream != nullptr) { return CUDA_ALLOCATION_ALIGNMENT; }
  auto const candidates = bytes | CUDA_ALLOCATION_ALIGNMENT;
  return candidates & (~candidates + 1);  // the lowest bit that is set
}

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
