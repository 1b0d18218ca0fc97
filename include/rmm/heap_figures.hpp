// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/recovery.hpp>

#include <cstddef>
#include <cstdint>

namespace RMM_NAMESPACE {

/// Figures of a suballocating resource at one moment: its memory, and counts of how allocations were served. Use them to monitor a pool.
///
/// live + free + graph == reserved, except for the unusable rest at the end of an upstream block.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource const pool{&cuda, std::size_t{1} << 20};
/// auto const now = pool.figures();
/// std::printf("%zu of %zu bytes in use\n", now.live_bytes, now.reserved_bytes);
/// @endcode
/// Cost  figures() of a resource briefly stops the threads that allocate from it: do not call it in hot paths.
struct heap_figures {
  std::size_t live_bytes{};      ///< allocated bytes, each allocation rounded up to 256, or to a block of fixed_size
  std::size_t free_bytes{};      ///< free bytes, those in caches included
  std::size_t graph_bytes{};     ///< bytes kept for CUDA graphs, without their live blocks
  std::size_t cached_bytes{};    ///< the part of free_bytes that lies in caches of single threads
  std::size_t reserved_bytes{};  ///< bytes taken from upstream
  /// Bytes of the largest range of free memory, also if its parts were freed by different threads and on different streams. If free memory
  /// is scattered over more than about 4,096 ranges, such parts are not joined, and the figure can be too low.
  std::size_t largest_free_bytes{};
  std::size_t upstream_blocks{};  ///< number of blocks taken from upstream
  std::size_t caches{};           ///< number of caches; each belongs to one thread and one stream

  // Counts since the resource was made.
  std::uint64_t from_other_streams{};       ///< allocations served by memory of another stream, after a device wait
  std::uint64_t from_other_caches{};        ///< allocations served from the cache of another thread or stream
  std::uint64_t put_together{};             ///< allocations served by coalescing neighbours from different caches
  std::uint64_t device_synchronizations{};  ///< waits of the host for the whole device; the last resort

  recovery_figures recovery{};  ///< what pools tried when no free memory was large enough; see recovery.hpp

  /// Returns the part of the free memory that lies outside its largest range. 0 if it is one range, or if no memory is free; near 1 if
  /// it is in many small ranges.
  [[nodiscard]] constexpr double fragmentation() const noexcept
  {
    return free_bytes == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free_bytes) / static_cast<double>(free_bytes);
  }
};

/// Returns the sums of the figures of two resources, and the largest free range of either.
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
