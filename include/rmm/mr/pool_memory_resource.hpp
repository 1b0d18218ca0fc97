// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/logger_frontend.hpp>  // IWYU pragma: export
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/recovery.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <exception>
#include <list>  // IWYU pragma: export
#include <optional>
#include <string>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {

/// A pool: it takes large blocks from upstream, allocates parts of them, and keeps freed memory for later requests. Use it for programs
/// that allocate often and own their device.
///
/// It grows when no free memory fits, up to its maximum, and gives its blocks back when it is destroyed. A pool with a maximum also gives
/// unused blocks back if only that makes room for a larger one. Memory that was freed on one stream can serve another stream: the pool
/// orders their work on the device, and waits on the host only before it grows or fails.
/// docs/out-of-memory.md says what it tries before an allocation fails. Its base classes have the functions for reservations, tags,
/// figures and callbacks.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::pool_memory_resource pool{&cuda, std::size_t{1} << 20};  // 1 MiB at first
/// rmm::mr::set_current_device_resource(&pool);
/// {
///   rmm::device_buffer const buffer{1000, rmm::cuda_stream_default};
/// }
/// rmm::mr::reset_current_device_resource();
/// @endcode
template <class Upstream>
class pool_memory_resource final : public detail::growing_pool,
                                   public detail::upstream_properties<pool_memory_resource<Upstream>, Upstream> {
 public:
  /// Takes `initial_pool_size` bytes from `*upstream`, which has to outlive the pool. Without a maximum, the pool grows as long as
  /// upstream has memory.
  ///
  /// Both sizes must be multiples of 256, and the initial one not above the maximum. Throws logic_error otherwise, and if `upstream` is
  /// null. Throws out_of_memory if upstream does not have the initial size.
  explicit pool_memory_resource(Upstream* upstream,
                                std::size_t initial_pool_size,
                                std::optional<std::size_t> maximum_pool_size = std::nullopt)
    : pool_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, initial_pool_size, maximum_pool_size}
  {}

  /// Makes a pool over `upstream`, which has to outlive the pool.
  template <class Upstream2 = Upstream,
            class           = std::enable_if_t<rmm::detail::polyfill::async_resource<Upstream2> &&
                                     std::is_convertible_v<Upstream2*, Upstream*>>>
  explicit pool_memory_resource(Upstream2& upstream,
                                std::size_t initial_pool_size,
                                std::optional<std::size_t> maximum_pool_size = std::nullopt)
    : pool_memory_resource{&upstream, initial_pool_size, maximum_pool_size}
  {}

  /// Makes a pool over the resource that `upstream` refers to.
  explicit pool_memory_resource(typename detail::suballocator_upstream<Upstream>::ref_type upstream,
                                std::size_t initial_pool_size,
                                std::optional<std::size_t> maximum_pool_size = std::nullopt)
    : pool_memory_resource{detail::suballocator_upstream<Upstream>{upstream}, initial_pool_size, maximum_pool_size}
  {}

  /// Gives blocks without an allocation back to upstream, the largest first, until the pool holds at most `bytes`. Returns the bytes given
  /// back. The pool does not derive from trimmable_resource, so code that trims every trimmable_resource does not trim this pool.
  ///
  /// Failure  does not throw; memory that cannot be given back stays.
  /// Threads  may run at the same time as all other calls. Allocations that have to grow the pool wait for it. While it waits for the
  ///          device, all other allocations and frees wait, too. So do not call it while a kernel waits for a host thread that may allocate
  ///          or free: neither would ever go on.
  /// Stream   waits on the host for the work that used the blocks. If the pool does not know that work, waits for the device, unless
  ///          that would break a capture.
  RMM_COLD std::size_t trim_to(std::size_t bytes) noexcept
  {
    auto const growing = this->lock_growth();
    rmm::detail::device_scope const at_home{this->upstream_.device()};
    rmm::detail::capture_exemption const exemption;
    return detail::trim_as_far_as_possible(source_, heap_, bytes);
  }

  [[nodiscard]] std::optional<std::size_t> maximum_bytes() const noexcept override { return source_.maximum(); }

 private:
  static constexpr recovery_order order_without_maximum{
    recovery_rung::reclaim, recovery_rung::grow, recovery_rung::synchronize, recovery_rung::callback};
  static constexpr recovery_order order_with_maximum{recovery_rung::reclaim,
                                                     recovery_rung::grow,
                                                     recovery_rung::trim,
                                                     recovery_rung::synchronize,
                                                     recovery_rung::callback};

  pool_memory_resource(detail::suballocator_upstream<Upstream> upstream,
                       std::size_t initial_pool_size,
                       std::optional<std::size_t> maximum_pool_size)
    : growing_pool{maximum_pool_size ? order_with_maximum : order_without_maximum},
      pool_memory_resource::upstream_properties{upstream},
      source_{heap_, this->upstream_, maximum_pool_size}
  {
    check_sizes(initial_pool_size, maximum_pool_size);
    take_first(source_, initial_pool_size);
  }

  /// Asks upstream for half of the bytes that are left to the maximum, or without a maximum for as much as the pool holds; in both cases
  /// for at least `bytes`. After each refusal asks for half as much, down to `bytes`.
  [[nodiscard]] void* try_grow(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    auto const held = pool_size();
    auto const most = source_.maximum();
    if (!most) { return source_.grow({held, bytes, source_.room(), 1}, stream, reason); }
    auto const left = align_up(*most - rmm::detail::min(*most, held), CUDA_ALLOCATION_ALIGNMENT);
    return source_.grow({left / 2, bytes, left, 1}, stream, reason);
  }

  /// If the maximum is in the way, gives back as many unused blocks as make room for the request, and grows. The host waits for the work
  /// that used these blocks. If upstream then refuses the request, takes as much again as was given back.
  [[nodiscard]] void* try_trim(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    if (!can_make_room(bytes, stream, false)) { return nullptr; }
    rmm::detail::device_scope const at_home{this->upstream_.device()};
    rmm::detail::capture_exemption const exemption;
    std::size_t given{};
    try {
      given = source_.trim(*source_.maximum() - bytes);
    } catch (std::exception const&) {  // a stream cannot be made, or host memory ran out
      return nullptr;
    }
    void* const ptr = source_.room() >= bytes ? try_grow(bytes, stream, reason) : nullptr;
    if (ptr == nullptr && given != 0) {
      detail::failure_reason of_another_block;
      static_cast<void>(source_.try_add(given, 0, stream, of_another_block));
    }
    return ptr;
  }

  [[nodiscard]] bool could_trim_idle(std::size_t bytes, cuda_stream_view stream) override
  {
    return can_make_room(bytes, stream, true);
  }

  /// Whether the maximum is in the way of a request, and would not be without unused blocks. `with_unfenced`: also those without a fence.
  [[nodiscard]] bool can_make_room(std::size_t bytes, cuda_stream_view stream, bool with_unfenced)
  {
    auto const most = source_.maximum();
    auto const room = source_.room();
    if (!most || bytes > *most || bytes <= room || !source_.can_give_back(stream)) { return false; }
    return source_.total_of(source_.unused_blocks(*most - bytes, 0, with_unfenced)) >= bytes - room;
  }

  [[nodiscard]] bool has_rung(recovery_rung rung) const noexcept override { return rung != recovery_rung::remap; }

  void describe(memory_report& report) const override
  {
    growing_pool::describe(report);
    source_.describe(report);
  }

  detail::block_source<Upstream> source_;
};

pool_memory_resource(device_async_resource_ref, std::size_t, std::optional<std::size_t> = std::nullopt)
  ->pool_memory_resource<device_memory_resource>;
template <class Upstream, class = std::enable_if_t<rmm::detail::polyfill::async_resource<Upstream>>>
pool_memory_resource(Upstream&, std::size_t, std::optional<std::size_t> = std::nullopt)
  -> pool_memory_resource<Upstream>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
