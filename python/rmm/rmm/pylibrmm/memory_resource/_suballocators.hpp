// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_innermost_resource.hpp"
#include "librmm/_registered_owners.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/failure_callback_t.hpp>
#include <rmm/recovery.hpp>

#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace rmm_python {

/// Returns the pool that the resource is or contains, below its adaptors; null if there is none.
[[nodiscard]] rmm::mr::detail::growing_pool* pool_behind(rmm::mr::device_memory_resource* resource);

/// Calls trim_to() of the resource below all adaptors, and returns its result; 0 if that resource has no such function.
std::size_t trim_to(rmm::mr::device_memory_resource* resource, std::size_t bytes);

/// Returns figures() of the resource below all adaptors; zeros if it has none.
[[nodiscard]] rmm::heap_figures figures_of(rmm::mr::device_memory_resource* resource);

/// Returns the resource that knows what `resource` keeps: the one below all adaptors. For a binning_memory_resource over a pool that is
/// the pool, which has the memory of its bins, too.
[[nodiscard]] rmm::mr::device_memory_resource& keeper_behind(rmm::mr::device_memory_resource& resource);

/// Returns the bytes that are allocated from what `resource` keeps memory in; 0 if it keeps none.
[[nodiscard]] std::size_t allocated_bytes_of(rmm::mr::device_memory_resource* resource);

/// Returns the bytes that `resource` holds, allocated or free; 0 if it keeps none.
[[nodiscard]] std::size_t pool_size_of(rmm::mr::device_memory_resource* resource);

/// Returns snapshot() of the resource below all adaptors as JSON; an empty snapshot if it has none.
[[nodiscard]] std::string snapshot_of(rmm::mr::device_memory_resource* resource);

/// Returns the figures of each rung, in the order of the enumerators.
[[nodiscard]] inline std::vector<rmm::rung_figures> rung_figures_of(rmm::heap_figures const& figures)
{
  return {std::begin(figures.recovery.rungs), std::end(figures.recovery.rungs)};
}

/// Call the pool's function.
void track_tags(rmm::mr::detail::growing_pool* pool, bool on);
[[nodiscard]] std::vector<rmm::memory_report::holder> live_by_tag_name(rmm::mr::detail::growing_pool const* pool);
[[nodiscard]] rmm::recovery_order recovery_order_of(rmm::mr::detail::growing_pool const* pool);
void set_check_capture(rmm::mr::detail::growing_pool* pool, bool on) noexcept;
[[nodiscard]] bool checks_captures(rmm::mr::detail::growing_pool const* pool) noexcept;
void set_failure_callback(rmm::mr::detail::growing_pool* pool, rmm::mr::failure_callback_t callback);

/// Sets the recovery order of a pool by names. Throws std::invalid_argument for an unknown or repeated name, and as the pool does.
void set_recovery_order(rmm::mr::detail::growing_pool* pool, std::vector<std::string> const& names);

/// Reserves memory in `source`, which is a pool or a reservation. With `only_try`, returns null if there is not enough.
[[nodiscard]] resource_ptr reserve(resource_ptr const& source,
                                   std::size_t bytes,
                                   rmm::cuda_stream_view stream,
                                   bool only_try);

/// Call the function of a reservation, which reserve() made.
[[nodiscard]] std::size_t reservation_bytes(rmm::mr::device_memory_resource const* reservation);
[[nodiscard]] std::size_t reservation_used_bytes(rmm::mr::device_memory_resource const* reservation);
std::size_t shrink_reservation(rmm::mr::device_memory_resource* reservation, std::size_t bytes);
void release_reservation(rmm::mr::device_memory_resource* reservation) noexcept;

/// A queue of a pool or a reservation, which it keeps alive. Times are in seconds. A negative `aging` means that only priorities count.
class owning_reservation_queue;
using queue_ptr = std::shared_ptr<owning_reservation_queue>;

[[nodiscard]] queue_ptr make_reservation_queue(resource_ptr const& source, double retry_after, double aging);

/// Reserves memory of the queue's source, after waiting for up to `timeout` seconds.
[[nodiscard]] resource_ptr reserve_or_wait(
  queue_ptr const& queue, std::size_t bytes, int priority, double timeout, rmm::cuda_stream_view stream);

void notify(queue_ptr const& queue);
[[nodiscard]] std::size_t waiting(queue_ptr const& queue);

}  // namespace rmm_python
