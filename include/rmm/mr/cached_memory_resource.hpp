// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {

/// A front cache: allocates as fast as a pool, from a resource that shares its memory with others.
///
/// Meant for cuda_async_memory_resource, whose pool gives memory back, is shared and can be exported, but takes a call of the
/// driver's for each allocation. Takes blocks of moderate size from upstream, and one to one what is larger. Blocks that are
/// wholly free go back to upstream when trim_to() says so, and when upstream or the maximum has no more; in the order of
/// streams, so that upstream can give them to others at once. Those that are larger than a block also go back when they are
/// too small for a larger request and no work uses them any more: as long as there is memory, no stream waits for another.
template <class Upstream>
class cached_memory_resource final : public detail::growing_pool,
                                     public trimmable_resource,
                                     public detail::upstream_properties<cached_memory_resource<Upstream>, Upstream> {
 public:
  static constexpr std::size_t default_block_size = std::size_t{64} << 20U;

  /// Takes `initial_size` bytes from upstream at once, none if 0.
  ///
  /// `maximum_size`  bytes that are taken from upstream at most; no maximum means as much as upstream gives.
  /// `block_size`    bytes that are taken at a time, as long as that is more than an eighth of all.
  /// Sizes need not be multiples of anything. Throws logic_error if `upstream` is null, `block_size` 0 or the initial size
  /// above the maximum; out_of_memory if upstream does not give the initial size.
  explicit cached_memory_resource(Upstream* upstream,
                                  std::size_t initial_size                = 0,
                                  std::optional<std::size_t> maximum_size = std::nullopt,
                                  std::size_t block_size                  = default_block_size)
    : cached_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, initial_size, maximum_size, block_size}
  {}

  /// The same over a resource given by reference.
  explicit cached_memory_resource(typename detail::suballocator_upstream<Upstream>::ref_type upstream,
                                  std::size_t initial_size                = 0,
                                  std::optional<std::size_t> maximum_size = std::nullopt,
                                  std::size_t block_size                  = default_block_size)
    : cached_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, initial_size, maximum_size, block_size}
  {}

  /// Gives blocks that hold no allocation back to upstream, the largest first, until at most `bytes` stay; then lets upstream
  /// do the same, if that is a trimmable_resource given as a pointer.
  ///
  /// Returns  the bytes that went back: by upstream, if that is trimmed, else to it.
  /// Failure  does not throw; what cannot be given back stays.
  /// Threads  may run beside all other calls.
  /// Stream   waits on the host for the work that used the blocks; for the device, if that cannot be told and breaks no capture.
  std::size_t trim_to(std::size_t bytes) noexcept override
  {
    rmm::detail::device_scope const at_home{this->upstream_.device()};
    rmm::detail::capture_exemption const exemption;
    std::size_t given{0};
    try {
      given = source_.trim(bytes);
      if (pool_size() > bytes && has_unfenced() && heap_.wait_for_all()) { given += source_.trim(bytes); }
    } catch (std::exception const&) {  // no stream, or no host memory
    }
    auto* const upstream = trimmable_upstream();
    return upstream != nullptr ? upstream->trim_to(bytes) : given;
  }

 private:
  using leaving = rmm::detail::stream_ordered_heap::leaving;

  static constexpr recovery_order default_order{recovery_rung::reclaim,
                                                recovery_rung::grow,
                                                recovery_rung::trim,
                                                recovery_rung::synchronize,
                                                recovery_rung::callback};
  static constexpr std::size_t largest_growth = std::size_t{1} << 30U;
  static constexpr std::size_t part_of_all    = 8;

  [[nodiscard]] static std::size_t checked(std::size_t block_size)
  {
    RMM_EXPECTS(block_size != 0, "The block size of a cache is 0");
    return align_up(rmm::detail::min(block_size, largest_growth), CUDA_ALLOCATION_ALIGNMENT);
  }

  cached_memory_resource(detail::suballocator_upstream<Upstream> upstream,
                         std::size_t initial_size,
                         std::optional<std::size_t> maximum_size,
                         std::size_t block_size)
    : growing_pool{default_order},
      cached_memory_resource::upstream_properties{upstream},
      source_{heap_, this->upstream_, maximum_size, "cache"},
      block_size_{checked(block_size)}
  {
    RMM_EXPECTS(initial_size <= maximum_size.value_or(initial_size),
                "The initial size of the cache exceeds its maximum");
    auto const rounded = rmm::detail::checked_align_up(initial_size, CUDA_ALLOCATION_ALIGNMENT);
    take_first(source_, rmm::detail::min(rounded, source_.room()));
  }

  [[nodiscard]] trimmable_resource* trimmable_upstream() const noexcept
  {
    if constexpr (std::is_polymorphic_v<Upstream>) {
      return dynamic_cast<trimmable_resource*>(this->upstream_.pointer());
    } else {
      return nullptr;
    }
  }

  /// Whether anything is free that lacks a fence, so that it counts as used.
  [[nodiscard]] bool has_unfenced()
  {
    std::size_t fenced{0};
    for (auto const& run : heap_.free_runs()) { fenced += run.bytes; }
    return figures().free_bytes > fenced;
  }

  /// Gives back larger blocks that are free and too small, and asks upstream for less and less, down to what is needed. Blocks
  /// that the work of another stream may still use stay: this stream would wait for that work.
  [[nodiscard]] void* try_grow(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    if (bytes > block_size_) { try_give_back(block_size_, stream, leaving::in_order); }
    auto const wanted = rmm::detail::clamp(pool_size() / part_of_all, block_size_, largest_growth);
    return source_.grow({wanted, bytes, source_.room()}, stream, reason);
  }

  /// Gives all blocks back that are free, and asks again for what is needed.
  [[nodiscard]] void* try_trim(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    if (!try_give_back(0, stream, leaving::after_a_wait) || source_.room() < bytes) { return nullptr; }
    return source_.try_add(bytes, bytes, stream, reason).value_or(nullptr);
  }

  [[nodiscard]] bool could_trim_idle(std::size_t bytes, cuda_stream_view stream) override
  {
    if (this->upstream_.names_another(stream) || !rmm::detail::is_known_to_run(stream.value())) { return false; }
    auto const bytes_of = [](auto const& blocks) {
      std::size_t sum{0};
      for (auto const& block : blocks) { sum += block.bytes; }
      return sum;
    };
    auto const idle = bytes_of(source_.unused_blocks(0, 0, true));
    return idle > bytes_of(source_.unused_blocks(0)) && (source_.room() >= bytes || idle >= bytes - source_.room());
  }

  [[nodiscard]] bool has_rung(recovery_rung rung) const noexcept override { return rung != recovery_rung::remap; }

  void describe(memory_report& report) const override
  {
    growing_pool::describe(report);
    source_.describe(report);
  }

  /// Gives free blocks above a size back in the order of `stream`. Returns whether there were any. A stream that captures cannot
  /// wait for what is not in its graph.
  bool try_give_back(std::size_t larger_than, cuda_stream_view stream, leaving when)
  {
    if (this->upstream_.names_another(stream)) { return false; }
    rmm::detail::device_scope const at_home{this->upstream_.device()};
    if (!rmm::detail::is_known_to_run(stream.value())) { return false; }
    return source_.give_back(source_.unused_blocks(0, larger_than), stream, when) != 0;
  }

  detail::block_source<Upstream> source_;
  std::size_t block_size_;
};

cached_memory_resource(device_async_resource_ref,
                       std::size_t                = 0,
                       std::optional<std::size_t> = std::nullopt,
                       std::size_t                = std::size_t{64} << 20U)
  ->cached_memory_resource<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
