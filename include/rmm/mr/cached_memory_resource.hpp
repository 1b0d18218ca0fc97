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
#include <rmm/detail/format.hpp>
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

/// A front cache, that is, a pool over a resource that shares its memory with others. Use it over cuda_async_memory_resource, whose pool
/// can be shared and exported, but needs a call of the driver for each allocation.
///
/// It takes blocks of `block_size` or more from upstream, and for a larger request a block of its size. Blocks that are wholly free go back
/// to upstream in stream order, so that upstream can use them for others without a wait on the host. They go back:
///  - in trim_to();
///  - when upstream has no more memory, or the maximum is reached;
///  - before the cache grows for a request above `block_size`, if they are above `block_size` and no work of another stream uses them.
///
/// @code{.cpp}
/// rmm::mr::cuda_async_memory_resource driver;
/// rmm::mr::cached_memory_resource cache{&driver};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, cache};
/// cache.trim_to(0);  // blocks without an allocation go back to the driver
/// @endcode
template <class Upstream>
class cached_memory_resource final : public detail::growing_pool,
                                     public trimmable_resource,
                                     public detail::upstream_properties<cached_memory_resource<Upstream>, Upstream> {
 public:
  static constexpr std::size_t default_block_size = std::size_t{64} << 20U;

  /// Takes `initial_size` bytes from upstream.
  ///
  /// `maximum_size`  the most bytes to hold; without one, the cache grows as long as upstream has memory.
  /// `block_size`    the bytes to take at a time. A cache of more than eight blocks takes an eighth of its size at a time. Both are
  ///                 limited to 1 GiB.
  /// Sizes need not be multiples of 256. Throws logic_error if `upstream` is null, `block_size` is 0, or the initial size is above the
  /// maximum. Throws out_of_memory if upstream does not have the initial size.
  explicit cached_memory_resource(Upstream* upstream,
                                  std::size_t initial_size                = 0,
                                  std::optional<std::size_t> maximum_size = std::nullopt,
                                  std::size_t block_size                  = default_block_size)
    : cached_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, initial_size, maximum_size, block_size}
  {}

  /// Makes a cache over the resource that `upstream` refers to.
  explicit cached_memory_resource(typename detail::suballocator_upstream<Upstream>::ref_type upstream,
                                  std::size_t initial_size                = 0,
                                  std::optional<std::size_t> maximum_size = std::nullopt,
                                  std::size_t block_size                  = default_block_size)
    : cached_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, initial_size, maximum_size, block_size}
  {}

  /// Gives blocks without an allocation back to upstream, the largest first, until the cache holds at most `bytes`. Then calls trim_to()
  /// of upstream, if upstream is a trimmable_resource that was passed as a pointer.
  ///
  /// Returns  the bytes that upstream gave back, if its trim_to() was called; else the bytes that the cache gave back.
  /// Failure  does not throw; memory that cannot be given back stays.
  /// Threads  may run at the same time as all other calls. While it waits for the device, all allocations and frees wait, too. So do not
  ///          call it while a kernel waits for a host thread that may allocate or free: neither would ever go on.
  /// Stream   waits on the host for the work that used the blocks. If the cache does not know that work, waits for the device, unless
  ///          that would break a capture.
  std::size_t trim_to(std::size_t bytes) noexcept override
  {
    rmm::detail::device_scope const at_home{this->upstream_.device()};
    rmm::detail::capture_exemption const exemption;
    auto const given     = detail::trim_as_far_as_possible(source_, heap_, bytes);
    auto* const upstream = trimmable_upstream();
    return upstream != nullptr ? upstream->trim_to(bytes) : given;
  }

 private:
  using leaving = rmm::detail::leaving;

  static constexpr recovery_order default_order{recovery_rung::reclaim,
                                                recovery_rung::grow,
                                                recovery_rung::trim,
                                                recovery_rung::synchronize,
                                                recovery_rung::callback};
  static constexpr std::size_t largest_growth = std::size_t{1} << 30U;
  static constexpr std::size_t part_of_all    = 8;

  [[nodiscard]] static std::size_t checked(std::size_t block_size)
  {
    RMM_EXPECTS(block_size != 0, "The block size of a cache is 0, but must be above 0");
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
                "The initial size of the cache, " + rmm::detail::format_bytes(initial_size) +
                  ", exceeds its maximum of " + rmm::detail::format_bytes(maximum_size.value_or(0)));
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

  /// Gives back free blocks that are larger than `block_size` and too small for the request. Then asks upstream for less and less memory,
  /// down to the size of the request. Blocks that work of another stream may still use stay, because this stream would wait for it.
  [[nodiscard]] void* try_grow(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    if (bytes > block_size_) { try_give_back(block_size_, stream, leaving::in_order); }
    auto const wanted = rmm::detail::clamp(pool_size() / part_of_all, block_size_, largest_growth);
    return source_.grow({wanted, bytes, source_.room()}, stream, reason);
  }

  /// Gives all free blocks back, and asks upstream again for the size of the request.
  [[nodiscard]] void* try_trim(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    if (!try_give_back(0, stream, leaving::after_a_wait) || source_.room() < bytes) { return nullptr; }
    return source_.try_add(bytes, bytes, stream, reason).value_or(nullptr);
  }

  [[nodiscard]] bool could_trim_idle(std::size_t bytes, cuda_stream_view stream) override
  {
    if (!source_.can_give_back(stream)) { return false; }
    auto const idle = source_.total_of(source_.unused_blocks(0, 0, true));
    auto const room = source_.room();
    return idle > source_.total_of(source_.unused_blocks(0)) && (room >= bytes || idle >= bytes - room);
  }

  [[nodiscard]] bool has_rung(recovery_rung rung) const noexcept override { return rung != recovery_rung::remap; }

  void describe(memory_report& report) const override
  {
    growing_pool::describe(report);
    source_.describe(report);
  }

  /// Gives free blocks above a size back in the order of `stream`, if it can. Returns whether there were any.
  bool try_give_back(std::size_t larger_than, cuda_stream_view stream, leaving when)
  {
    if (!source_.can_give_back(stream)) { return false; }
    rmm::detail::device_scope const at_home{this->upstream_.device()};
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
