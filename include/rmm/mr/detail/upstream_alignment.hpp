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

/// The alignment to ask a reference to `upstream` for, where device memory is wanted and `bytes` are to arrive as they are.
///
/// A device_memory_resource rounds sizes up to the alignment of a call, and guarantees enough without: of it the largest
/// that divides `bytes` is asked, also where `upstream` is null and only a reference is known. Others are told what is needed.
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
