// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_innermost_resource.hpp"
#include "pylibrmm/memory_resource/_driver_pool.hpp"
#include "pylibrmm/memory_resource/_owned_resources.hpp"
#include "pylibrmm/memory_resource/_reserved_resource.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/reservation_queue.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rmm_python {

/// Returns the pool that the resource is or contains, below its adaptors; null if there is none.
[[nodiscard]] inline rmm::mr::detail::growing_pool* pool_behind(rmm::mr::device_memory_resource* resource)
{
  return pool_in(innermost(*resource));
}

/// Calls trim_to() of the resource below all adaptors, and returns its result; 0 if that resource has no such function.
[[nodiscard]] inline std::size_t trim_to(rmm::mr::device_memory_resource* resource, std::size_t bytes)
{
  using pool      = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;  // which is no trimmable_resource
  auto& found     = innermost(*resource);
  auto* const any = dynamic_cast<rmm::mr::trimmable_resource*>(&found);
  if (any != nullptr) { return any->trim_to(bytes); }
  auto* const plain = dynamic_cast<pool*>(&found);
  return plain != nullptr ? plain->trim_to(bytes) : 0;
}

/// Calls `use` with the resource below all adaptors if that is a suballocator. Returns whether it is.
template <class Use>
bool use_suballocator(rmm::mr::device_memory_resource* outermost, Use const& use)
{
  using base           = rmm::mr::device_memory_resource;
  auto* const resource = &innermost(*outermost);
  auto const try_as    = [&](auto* found) {
    if (found != nullptr) { use(*found); }
    return found != nullptr;
  };
  return try_as(dynamic_cast<rmm::mr::elastic_pool_memory_resource*>(resource)) ||
         try_as(dynamic_cast<rmm::mr::pinned_pool_memory_resource*>(resource)) ||
         try_as(dynamic_cast<rmm::mr::detail::growing_pool*>(resource)) ||
         try_as(dynamic_cast<rmm::mr::arena_memory_resource<base>*>(resource)) ||
         try_as(dynamic_cast<rmm::mr::fixed_size_memory_resource<base>*>(resource)) ||
         try_as(dynamic_cast<rmm::mr::binning_memory_resource<base>*>(resource));
}

/// Returns figures() of the resource below all adaptors; zeros if it has none.
[[nodiscard]] inline rmm::heap_figures figures_of(rmm::mr::device_memory_resource* resource)
{
  auto* const reserved = dynamic_cast<reserved_resource*>(&innermost(*resource));
  if (reserved != nullptr) { return reserved->reservation()->figures(); }
  rmm::heap_figures figures;
  use_suballocator(resource, [&](auto& suballocator) { figures = suballocator.figures(); });
  return figures;
}

/// Returns the resource that knows what `resource` keeps: the one below all adaptors. For a binning_memory_resource over a pool that is
/// the pool, which has the memory of its bins, too.
[[nodiscard]] inline rmm::mr::device_memory_resource& keeper_behind(rmm::mr::device_memory_resource& resource)
{
  using base          = rmm::mr::device_memory_resource;
  auto& found         = innermost(resource);
  auto* const binning = dynamic_cast<rmm::mr::binning_memory_resource<base>*>(&found);
  if (binning == nullptr || binning->get_upstream() == nullptr) { return found; }
  auto& upstream  = keeper_behind(*binning->get_upstream());
  auto const none = [](auto const&) {};
  return driver_pool_of(upstream) != nullptr || use_suballocator(&upstream, none) ? upstream : found;
}

/// Returns the bytes that are allocated from what `resource` keeps memory in; 0 if it keeps none.
[[nodiscard]] inline std::size_t allocated_bytes_of(rmm::mr::device_memory_resource* resource)
{
  auto& keeper    = keeper_behind(*resource);
  auto const pool = driver_pool_of(keeper);
  return pool != nullptr ? bytes_of(pool, cudaMemPoolAttrUsedMemCurrent) : figures_of(&keeper).live_bytes;
}

/// Returns the bytes that `resource` holds, allocated or free; 0 if it keeps none.
[[nodiscard]] inline std::size_t pool_size_of(rmm::mr::device_memory_resource* resource)
{
  auto& keeper = keeper_behind(*resource);
  if (auto const* const pool = pool_in(keeper)) { return pool->pool_size(); }
  auto const pool = driver_pool_of(keeper);
  return pool != nullptr ? bytes_of(pool, cudaMemPoolAttrReservedMemCurrent) : figures_of(&keeper).reserved_bytes;
}

/// Returns snapshot() of the resource below all adaptors as JSON; an empty snapshot if it has none.
[[nodiscard]] inline std::string snapshot_of(rmm::mr::device_memory_resource* resource)
{
  auto* const reserved = dynamic_cast<reserved_resource*>(&innermost(*resource));
  if (reserved != nullptr) { return reserved->reservation()->snapshot().to_json(); }
  rmm::memory_snapshot now;
  use_suballocator(resource, [&](auto& suballocator) { now = suballocator.snapshot(); });
  return now.to_json();
}

/// Returns the figures of each rung, in the order of the enumerators.
[[nodiscard]] inline std::vector<rmm::rung_figures> rung_figures_of(rmm::heap_figures const& figures)
{
  return {std::begin(figures.recovery.rungs), std::end(figures.recovery.rungs)};
}

/// Sets the recovery order of a pool by names. Throws std::invalid_argument for an unknown or repeated name, and as the pool does.
inline void set_recovery_order(rmm::mr::detail::growing_pool* pool, std::vector<std::string> const& names)
{
  rmm::recovery_order order;
  for (auto const& name : names) {
    std::size_t index = 0;
    while (index != rmm::recovery_rung_count && name != rmm::name_of(static_cast<rmm::recovery_rung>(index))) {
      ++index;
    }
    if (index == rmm::recovery_rung_count) { throw std::invalid_argument{"there is no rung '" + name + "'"}; }
    if (!order.try_add(static_cast<rmm::recovery_rung>(index))) {
      throw std::invalid_argument{"the order of recovery names '" + name + "' twice"};
    }
  }
  pool->set_recovery_order(order);
}

/// Calls `reserve_in` with the reservation or the pool that `source` is.
template <class Reserve>
auto with_reservable(resource_ptr const& source, Reserve const& reserve_in)
{
  auto* const outer = dynamic_cast<reserved_resource*>(source.get());
  return outer != nullptr ? reserve_in(*outer->reservation()) : reserve_in(*pool_behind(source.get()));
}

/// Reserves memory in `source`, which is a pool or a reservation. With `only_try`, returns null if there is not enough.
[[nodiscard]] inline resource_ptr reserve(resource_ptr const& source,
                                          std::size_t bytes,
                                          rmm::cuda_stream_view stream,
                                          bool only_try)
{
  return with_reservable(source, [&](auto& memory) -> resource_ptr {
    if (!only_try) { return std::make_shared<reserved_resource>(source, memory.reserve(bytes, stream)); }
    auto made = memory.try_reserve(bytes, stream);
    return made ? std::make_shared<reserved_resource>(source, std::move(*made)) : nullptr;
  });
}

/// A queue of a pool or a reservation, which it keeps alive.
class owning_reservation_queue {
 public:
  /// Times are in seconds. A negative `aging` means that only priorities count.
  owning_reservation_queue(resource_ptr source, double retry_after, double aging)
    : source_{std::move(source)}, queue_{*this, {duration_of(retry_after), duration_of(aging)}}
  {}

  /// Serve queue_.
  [[nodiscard]] std::optional<rmm::mr::memory_reservation> try_reserve(std::size_t bytes, rmm::cuda_stream_view stream)
  {
    return with_reservable(source_, [&](auto& memory) { return memory.try_reserve(bytes, stream); });
  }
  [[nodiscard]] std::optional<std::size_t> maximum_bytes() const
  {
    return with_reservable(source_, [](auto& memory) { return std::optional<std::size_t>{memory.maximum_bytes()}; });
  }

  /// Reserves, after waiting for up to `timeout` seconds.
  [[nodiscard]] resource_ptr reserve_or_wait(std::size_t bytes,
                                             int priority,
                                             double timeout,
                                             rmm::cuda_stream_view stream)
  {
    return std::make_shared<reserved_resource>(source_,
                                               queue_.reserve_or_wait(bytes, priority, duration_of(timeout), stream));
  }

  void notify() { queue_.notify(); }
  [[nodiscard]] std::size_t waiting() const { return queue_.waiting(); }

 private:
  using duration = rmm::mr::reservation_queue::duration;

  [[nodiscard]] static duration duration_of(double seconds)
  {
    constexpr double most = 1e9;  // 31 years: as good as forever, which has no number of nanoseconds as a double
    return seconds < most ? std::chrono::duration_cast<duration>(std::chrono::duration<double>{seconds})
                          : rmm::mr::reservation_queue::forever;
  }

  resource_ptr source_;
  rmm::mr::reservation_queue queue_;
};

using queue_ptr = std::shared_ptr<owning_reservation_queue>;

[[nodiscard]] inline queue_ptr make_reservation_queue(resource_ptr const& source, double retry_after, double aging)
{
  return std::make_shared<owning_reservation_queue>(source, retry_after, aging);
}

/// Reserves memory of the queue's source, after waiting for up to `timeout` seconds.
[[nodiscard]] inline resource_ptr reserve_or_wait(
  queue_ptr const& queue, std::size_t bytes, int priority, double timeout, rmm::cuda_stream_view stream)
{
  return queue->reserve_or_wait(bytes, priority, timeout, stream);
}

inline void notify(queue_ptr const& queue) { queue->notify(); }
[[nodiscard]] inline std::size_t waiting(queue_ptr const& queue) { return queue->waiting(); }

}  // namespace rmm_python
