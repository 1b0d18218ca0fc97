// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>

namespace RMM_NAMESPACE {

/// Alignment of host memory if a call does not name one.
inline constexpr std::size_t RMM_DEFAULT_HOST_ALIGNMENT{alignof(std::max_align_t)};

/// The alignment that all device resources guarantee, as cudaMalloc does.
inline constexpr std::size_t CUDA_ALLOCATION_ALIGNMENT{256};

/// Whether exactly one bit of `value` is set.
[[nodiscard]] constexpr bool is_pow2(std::size_t value) noexcept { return value != 0 && (value & (value - 1)) == 0; }

/// Whether `alignment` is a power of two. Device resources accept each such alignment, but only round the size up to it: the address has
/// the alignment of the resource. If addresses need more than that, use a device_buffer with an alignment or an aligned_resource_adaptor.
/// Two functions of resources throw if the alignment is above 256: allocate_sync(), and allocate() with a stream as the first argument.
[[nodiscard]] constexpr bool is_supported_alignment(std::size_t alignment) noexcept { return is_pow2(alignment); }

/// The smallest multiple of `alignment`, a power of two, that is not less than `value`.
///
/// Wraps to 0 if no std::size_t is large enough; detail::checked_align_up() throws instead.
///
/// @code{.cpp}
/// static_assert(rmm::align_up(1000, rmm::CUDA_ALLOCATION_ALIGNMENT) == 1024);
/// @endcode
[[nodiscard]] constexpr std::size_t align_up(std::size_t value, std::size_t alignment) noexcept
{
  RMM_ASSERT(is_supported_alignment(alignment));
  return (value + (alignment - 1)) & ~(alignment - 1);
}

/// The largest multiple of `alignment`, a power of two, that is not greater than `value`.
[[nodiscard]] constexpr std::size_t align_down(std::size_t value, std::size_t alignment) noexcept
{
  RMM_ASSERT(is_supported_alignment(alignment));
  return value & ~(alignment - 1);
}

/// Whether `value` is a multiple of `alignment`, a power of two.
[[nodiscard]] constexpr bool is_aligned(std::size_t value, std::size_t alignment) noexcept
{
  RMM_ASSERT(is_supported_alignment(alignment));
  return (value & (alignment - 1)) == 0;
}

/// Whether the address of `ptr` is a multiple of `alignment`, a power of two. True for null.
[[nodiscard]] inline bool is_pointer_aligned(void const* ptr,
                                             std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) noexcept
{
  return is_aligned(reinterpret_cast<std::uintptr_t>(ptr), alignment);
}

}  // namespace RMM_NAMESPACE
