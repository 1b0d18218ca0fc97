// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

/// The unit of the sizes of free ranges and allocated blocks. An upstream block may end with a smaller rest, which is not used.
inline constexpr std::size_t heap_granule = 256;

/// The addresses from `begin` to `begin + bytes - 1`.
struct address_range {
  std::uintptr_t begin{};
  std::size_t bytes{};

  [[nodiscard]] constexpr std::uintptr_t end() const noexcept { return begin + bytes; }
};

[[nodiscard]] constexpr bool operator==(address_range lhs, address_range rhs) noexcept
{
  return lhs.begin == rhs.begin && lhs.bytes == rhs.bytes;
}
[[nodiscard]] constexpr bool operator!=(address_range lhs, address_range rhs) noexcept { return !(lhs == rhs); }

[[nodiscard]] inline void* to_pointer(std::uintptr_t address) noexcept
{
  return reinterpret_cast<void*>(address);  // NOLINT: a heap works on addresses
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
