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

/// Returns the alignment for a call of a device_memory_resource through a reference, so that `bytes` are not rounded: such a resource
/// rounds sizes up to the alignment of a call, but always guarantees CUDA_ALLOCATION_ALIGNMENT. It is the largest power of two that
/// divides `bytes`, up to that value.
[[nodiscard]] constexpr std::size_t alignment_without_rounding(std::size_t bytes) noexcept
{
  auto const candidates = bytes | CUDA_ALLOCATION_ALIGNMENT;
  return candidates & (~candidates + 1);  // the lowest bit that is set
}

/// Returns the alignment for a call of an upstream through a reference. If `upstream` is null, the type of the resource is not known:
/// sizes that are no multiple of alignof(std::max_align_t), with which references call by default, may be rounded up to one.
template <class Upstream>
[[nodiscard]] constexpr std::size_t upstream_alignment(Upstream const* upstream, std::size_t bytes) noexcept
{
  auto const exact = alignment_without_rounding(bytes);
  if (upstream == nullptr) { return exact < alignof(std::max_align_t) ? alignof(std::max_align_t) : exact; }
  return std::is_base_of_v<device_memory_resource, Upstream> ? exact : CUDA_ALLOCATION_ALIGNMENT;
}

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
