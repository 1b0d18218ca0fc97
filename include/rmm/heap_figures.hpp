// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/recovery.hpp>

#include <cstddef>
#include <cstdint>

namespace RMM_NAMESPACE {

/// What a suballocating resource has at one moment, and how it came by it.
///
/// live + free + graph == reserved, but for what is left at the end of an upstream block. Making them stops the threads
/// that allocate for a moment: not for hot paths.
struct heap_figures {
  std::size_t live_bytes{};      ///< allocated, rounded up to blocks
  std::size_t free_bytes{};      ///< not allocated, cached ones included
  std::size_t graph_bytes{};     ///< kept for CUDA graphs, besides their live blocks
  std::size_t cached_bytes{};    ///< the part of free_bytes that lies in caches of single threads
  std::size_t reserved_bytes{};  ///< taken from upstream
  /// The largest piece of free memory, coalesced across caches and streams; where there are more than 16,384, of
  /// the largest as one of these has it.
  std::size_t largest_free_bytes{};
  std::size_t upstream_blocks{};  ///< in which that was taken
  std::size_t caches{};           ///< pairs of a thread and a stream that have one

  // How often an allocation was served, since the resource was made, ...
  std::uint64_t from_other_streams{};       ///< ... by memory of another stream, after a wait on the device
  std::uint64_t from_other_caches{};        ///< ... out of the cache of another thread or stream
  std::uint64_t put_together{};             ///< ... by neighbours that lay in different caches
  std::uint64_t device_synchronizations{};  ///< waits on the host for the whole device; the last resort

  recovery_figures recovery{};  ///< of pools: what was tried when there was no free memory

  /// Which part of the free memory lies outside its largest piece: 0 if it is all in one, or there is none; near 1 if it is
  /// in many small ones.
  [[nodiscard]] constexpr double fragmentation() const noexcept
  {
    return free_bytes == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free_bytes) / static_cast<double>(free_bytes);
  }
};

/// The figures of two resources together; the largest piece of either.
[[nodiscard]] constexpr heap_figures operator+(heap_figures lhs, heap_figures const& rhs) noexcept
{
  lhs.live_bytes += rhs.live_bytes;
  lhs.free_bytes += rhs.free_bytes;
  lhs.graph_bytes += rhs.graph_bytes;
  lhs.cached_bytes += rhs.cached_bytes;
  lhs.reserved_bytes += rhs.reserved_bytes;
  lhs.largest_free_bytes =
    lhs.largest_free_bytes < rhs.largest_free_bytes ? rhs.largest_free_bytes : lhs.largest_free_bytes;
  lhs.upstream_blocks += rhs.upstream_blocks;
  lhs.caches += rhs.caches;
  lhs.from_other_streams += rhs.from_other_streams;
  lhs.from_other_caches += rhs.from_other_caches;
  lhs.put_together += rhs.put_together;
  lhs.device_synchronizations += rhs.device_synchronizations;
  lhs.recovery = lhs.recovery + rhs.recovery;
  return lhs;
}

}  // namespace RMM_NAMESPACE
