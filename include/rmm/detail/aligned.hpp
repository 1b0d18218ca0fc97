// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace RMM_NAMESPACE {
namespace detail {

/// Allocates `bytes` bytes of host memory at a multiple of `alignment`, a power of two, from an allocator without alignment.
///
/// Calls `alloc(n)` once, with an n that leaves room to move the result up to the alignment. The word before the result holds the
/// distance to the pointer that `alloc` returned. Exceptions of `alloc` propagate; returns null if `alloc` does. Free the memory with
/// aligned_host_deallocate().
template <class Alloc>
void* aligned_host_allocate(std::size_t bytes, std::size_t alignment, Alloc alloc)
{
  RMM_ASSERT(is_supported_alignment(alignment));

  using offset_type    = std::ptrdiff_t;
  auto const slack     = checked_add(alignment, sizeof(offset_type));
  auto* const original = static_cast<char*>(alloc(checked_add(bytes, slack)));
  if (original == nullptr) { return nullptr; }

  auto const address = reinterpret_cast<std::uintptr_t>(original);
  auto const offset  = align_up(address + sizeof(offset_type), alignment) - address;
  auto* const result = original + offset;

  auto const distance = static_cast<offset_type>(offset);
  std::memcpy(result - sizeof distance, &distance, sizeof distance);  // the word need not be aligned
  return result;
}

/// Frees memory from aligned_host_allocate(): calls `dealloc` with the pointer that `alloc` returned. Ignores null.
template <class Dealloc>
void aligned_host_deallocate(void* ptr,
                             [[maybe_unused]] std::size_t bytes,
                             [[maybe_unused]] std::size_t alignment,
                             Dealloc dealloc) noexcept
{
  RMM_ASSERT(is_supported_alignment(alignment));
  if (ptr == nullptr) { return; }

  std::ptrdiff_t distance{};
  std::memcpy(&distance, static_cast<char*>(ptr) - sizeof distance, sizeof distance);
  dealloc(static_cast<void*>(static_cast<char*>(ptr) - distance));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
