// SPDX-License-Identifier: Apache-2.0

// The resources of the package, and what _adaptors.hpp, _callbacks.hpp, _pools.hpp and _suballocators.hpp declare for Cython: compiled
// once, because each module would compile the same classes again. Calls no Python, because rmm-trace links this file, too.

#include "librmm/_innermost_resource.hpp"
#include "pylibrmm/memory_resource/_driver_pool.hpp"
#include "pylibrmm/memory_resource/_host_resources.hpp"
#include "pylibrmm/memory_resource/_immediate_adaptors.hpp"
#include "pylibrmm/memory_resource/_owned_resources.hpp"
#include "pylibrmm/memory_resource/_pools.hpp"
#include "pylibrmm/memory_resource/_reserved_resource.hpp"
#include "pylibrmm/memory_resource/_suballocators.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/reservation_queue.hpp>
#include <rmm/mr/resource_configuration.hpp>
#include <rmm/mr/sam_headroom_memory_resource.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/system_memory_resource.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

template void rmm::mr::detail::make_layers<void>(rmm::mr::resource_configuration const&,
                                                 std::vector<std::unique_ptr<rmm::mr::device_memory_resource>>&,
                                                 std::string&);

namespace rmm_python {

using binning = rmm::mr::binning_memory_resource<rmm::mr::device_memory_resource>;

template resource_ptr make_resource_over<rmm::mr::aligned_resource_adaptor>(resource_ptr const&,
                                                                            std::size_t const&,
                                                                            std::size_t const&);
template resource_ptr make_resource_over<rmm::mr::failure_callback_resource_adaptor>(resource_ptr const&,
                                                                                     rmm::mr::failure_callback_t const&,
                                                                                     void* const&);
template resource_ptr make_resource_over<rmm::mr::guard_resource_adaptor>(resource_ptr const&,
                                                                          rmm::mr::guard_options const&);
template resource_ptr make_resource_over<rmm::mr::logging_resource_adaptor>(resource_ptr const&, std::string const&);
template resource_ptr make_resource_over<rmm::mr::prefetch_resource_adaptor>(resource_ptr const&);
template resource_ptr make_resource_over<rmm::mr::thread_safe_resource_adaptor>(resource_ptr const&);
template resource_ptr make_resource_over<rmm::mr::trace_resource_adaptor>(resource_ptr const&,
                                                                          rmm::mr::trace_options const&);
template resource_ptr make_resource_over<rmm::mr::tracking_resource_adaptor>(resource_ptr const&,
                                                                             bool const&,
                                                                             rmm::mr::leak_report const&);
template resource_ptr make_immediate_over<rmm::mr::limiting_resource_adaptor>(resource_ptr const&,
                                                                              rmm::mr::detail::immediate_resource*,
                                                                              rmm::mr::detail::immediate_resource*&,
                                                                              std::size_t const&);
template resource_ptr make_immediate_over<rmm::mr::spill_resource_adaptor>(resource_ptr const&,
                                                                           rmm::mr::detail::immediate_resource*,
                                                                           rmm::mr::detail::immediate_resource*&,
                                                                           rmm::mr::spill_hook_t const&,
                                                                           rmm::mr::spill_options const&);
template resource_ptr make_immediate_over<rmm::mr::statistics_resource_adaptor>(resource_ptr const&,
                                                                                rmm::mr::detail::immediate_resource*,
                                                                                rmm::mr::detail::immediate_resource*&);

namespace {

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

/// Calls `reserve_in` with the reservation or the pool that `source` is.
template <class Reserve>
auto with_reservable(resource_ptr const& source, Reserve const& reserve_in)
{
  auto* const outer = dynamic_cast<reserved_resource*>(source.get());
  return outer != nullptr ? reserve_in(*outer->reservation()) : reserve_in(*pool_behind(source.get()));
}

rmm::mr::pinned_memory_options pinned_options(bool near_device, int numa_node, unsigned threads)
{
  rmm::mr::pinned_memory_options options;
  options.near_device = near_device;
  options.threads     = threads;
  if (numa_node >= 0) { options.numa_node = numa_node; }
  return options;
}

rmm::mr::paused_contents paused_contents_of(bool keeps, bool pinned)
{
  using rmm::mr::paused_contents;
  if (!keeps) { return paused_contents::dropped; }
  return pinned ? paused_contents::kept_pinned : paused_contents::kept_pageable;
}

struct pools_own_check : rmm::mr::detail::growing_pool {
  /// Throws the exception of a pool's constructor if it refuses the sizes. Needs no device.
  static void check(std::size_t initial, std::optional<std::size_t> maximum) { check_sizes(initial, maximum); }
};

/// The deleter of a binning_memory_resource. It keeps the upstreams alive until then.
struct end_of_binning {
  resource_ptr upstream;
  std::vector<resource_ptr> bins;

  void operator()(binning* resource) const { delete resource; }
};

}  // namespace

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

void check_captures(rmm::mr::device_memory_resource& resource) noexcept
{
  if (auto* const pool = pool_in(resource)) { pool->set_check_capture(true); }
}

void track_tags(rmm::mr::detail::growing_pool* pool, bool on) { pool->track_tags(on); }

std::vector<rmm::memory_report::holder> live_by_tag_name(rmm::mr::detail::growing_pool const* pool)
{
  return pool->live_by_tag_name();
}

rmm::recovery_order recovery_order_of(rmm::mr::detail::growing_pool const* pool) { return pool->get_recovery_order(); }

void set_check_capture(rmm::mr::detail::growing_pool* pool, bool on) noexcept { pool->set_check_capture(on); }

bool checks_captures(rmm::mr::detail::growing_pool const* pool) noexcept { return pool->check_capture(); }

void set_failure_callback(rmm::mr::detail::growing_pool* pool, rmm::mr::failure_callback_t callback)
{
  pool->set_failure_callback(std::move(callback));
}

rmm::mr::detail::growing_pool* pool_behind(rmm::mr::device_memory_resource* resource)
{
  return pool_in(innermost(*resource));
}

std::size_t trim_to(rmm::mr::device_memory_resource* resource, std::size_t bytes)
{
  using pool      = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;  // which is no trimmable_resource
  auto& found     = innermost(*resource);
  auto* const any = dynamic_cast<rmm::mr::trimmable_resource*>(&found);
  if (any != nullptr) { return any->trim_to(bytes); }
  auto* const plain = dynamic_cast<pool*>(&found);
  return plain != nullptr ? plain->trim_to(bytes) : 0;
}

rmm::heap_figures figures_of(rmm::mr::device_memory_resource* resource)
{
  auto* const reserved = dynamic_cast<reserved_resource*>(&innermost(*resource));
  if (reserved != nullptr) { return reserved->reservation()->figures(); }
  rmm::heap_figures figures;
  use_suballocator(resource, [&](auto& suballocator) { figures = suballocator.figures(); });
  return figures;
}

rmm::mr::device_memory_resource& keeper_behind(rmm::mr::device_memory_resource& resource)
{
  using base          = rmm::mr::device_memory_resource;
  auto& found         = innermost(resource);
  auto* const binning = dynamic_cast<rmm::mr::binning_memory_resource<base>*>(&found);
  if (binning == nullptr || binning->get_upstream() == nullptr) { return found; }
  auto& upstream  = keeper_behind(*binning->get_upstream());
  auto const none = [](auto const&) {};
  return driver_pool_of(upstream) != nullptr || use_suballocator(&upstream, none) ? upstream : found;
}

std::size_t allocated_bytes_of(rmm::mr::device_memory_resource* resource)
{
  auto& keeper    = keeper_behind(*resource);
  auto const pool = driver_pool_of(keeper);
  return pool != nullptr ? bytes_of(pool, cudaMemPoolAttrUsedMemCurrent) : figures_of(&keeper).live_bytes;
}

std::size_t pool_size_of(rmm::mr::device_memory_resource* resource)
{
  auto& keeper = keeper_behind(*resource);
  if (auto const* const pool = pool_in(keeper)) { return pool->pool_size(); }
  auto const pool = driver_pool_of(keeper);
  return pool != nullptr ? bytes_of(pool, cudaMemPoolAttrReservedMemCurrent) : figures_of(&keeper).reserved_bytes;
}

std::string snapshot_of(rmm::mr::device_memory_resource* resource)
{
  auto* const reserved = dynamic_cast<reserved_resource*>(&innermost(*resource));
  if (reserved != nullptr) { return reserved->reservation()->snapshot().to_json(); }
  rmm::memory_snapshot now;
  use_suballocator(resource, [&](auto& suballocator) { now = suballocator.snapshot(); });
  return now.to_json();
}

void set_recovery_order(rmm::mr::detail::growing_pool* pool, std::vector<std::string> const& names)
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

resource_ptr reserve(resource_ptr const& source, std::size_t bytes, rmm::cuda_stream_view stream, bool only_try)
{
  return with_reservable(source, [&](auto& memory) -> resource_ptr {
    if (!only_try) { return std::make_shared<reserved_resource>(source, memory.reserve(bytes, stream)); }
    auto made = memory.try_reserve(bytes, stream);
    return made ? std::make_shared<reserved_resource>(source, std::move(*made)) : nullptr;
  });
}

std::size_t reservation_bytes(rmm::mr::device_memory_resource const* reservation)
{
  return static_cast<reserved_resource const*>(reservation)->bytes();
}

std::size_t reservation_used_bytes(rmm::mr::device_memory_resource const* reservation)
{
  return static_cast<reserved_resource const*>(reservation)->used_bytes();
}

std::size_t shrink_reservation(rmm::mr::device_memory_resource* reservation, std::size_t bytes)
{
  return static_cast<reserved_resource*>(reservation)->shrink_to(bytes);
}

void release_reservation(rmm::mr::device_memory_resource* reservation) noexcept
{
  static_cast<reserved_resource*>(reservation)->release();
}

queue_ptr make_reservation_queue(resource_ptr const& source, double retry_after, double aging)
{
  return std::make_shared<owning_reservation_queue>(source, retry_after, aging);
}

resource_ptr reserve_or_wait(
  queue_ptr const& queue, std::size_t bytes, int priority, double timeout, rmm::cuda_stream_view stream)
{
  return queue->reserve_or_wait(bytes, priority, timeout, stream);
}

void notify(queue_ptr const& queue) { queue->notify(); }

std::size_t waiting(queue_ptr const& queue) { return queue->waiting(); }

resource_ptr make_system() { return make_resource<rmm::mr::system_memory_resource>(); }

resource_ptr make_pinned_host() { return make_resource<rmm::mr::pinned_host_memory_resource>(); }

resource_ptr make_sam_headroom(std::size_t headroom)
{
  return make_resource<rmm::mr::sam_headroom_memory_resource>(headroom);
}

resource_ptr make_pinned_pool(std::size_t initial_size,
                              std::optional<std::size_t> maximum_size,
                              bool near_device,
                              int numa_node,
                              unsigned threads,
                              bool allow_pageable)
{
  auto options           = pinned_options(near_device, numa_node, threads);
  options.allow_pageable = allow_pageable;
  auto const made        = std::make_shared<rmm::mr::pinned_pool_memory_resource>(initial_size, maximum_size, options);
  check_captures(*made);
  return made;
}

resource_ptr make_registered_host(bool near_device, int numa_node, unsigned threads)
{
  return std::make_shared<rmm::mr::registered_host_memory_resource>(pinned_options(near_device, numa_node, threads));
}

std::optional<int> numa_node_of(rmm::mr::device_memory_resource const* resource) noexcept
{
  return static_cast<rmm::mr::registered_host_memory_resource const*>(resource)->numa_node();
}

std::size_t pageable_bytes_of(rmm::mr::device_memory_resource const* resource)
{
  return static_cast<rmm::mr::pinned_pool_memory_resource const*>(resource)->pageable_bytes();
}

resource_ptr make_pool(resource_ptr const& upstream, std::size_t initial, std::optional<std::size_t> maximum)
{
  return make_resource_over<rmm::mr::pool_memory_resource>(upstream, initial, maximum);
}

resource_ptr make_arena(resource_ptr const& upstream, std::optional<std::size_t> size, bool dump_log_on_failure)
{
  return make_resource_over<rmm::mr::arena_memory_resource>(upstream, size, dump_log_on_failure);
}

resource_ptr make_fixed_size(resource_ptr const& upstream, std::size_t block_size, std::size_t initial_blocks)
{
  return make_resource_over<rmm::mr::fixed_size_memory_resource>(upstream, block_size, initial_blocks);
}

resource_ptr make_cached(resource_ptr const& upstream,
                         std::size_t initial,
                         std::optional<std::size_t> maximum,
                         std::size_t block_size)
{
  return make_resource_over<rmm::mr::cached_memory_resource>(upstream, initial, maximum, block_size);
}

resource_ptr make_elastic_pool(std::size_t initial_bytes,
                               std::optional<std::size_t> maximum_bytes,
                               std::size_t chunk_bytes,
                               std::int64_t decay_ms,
                               bool peer_access,
                               bool share_descriptors,
                               bool share_fabric,
                               bool gpu_direct_rdma)
{
  rmm::mr::elastic_pool_options options;
  options.initial_bytes     = initial_bytes;
  options.maximum_bytes     = maximum_bytes;
  options.chunk_bytes       = chunk_bytes;
  options.peer_access       = peer_access;
  options.share_descriptors = share_descriptors;
  options.share_fabric      = share_fabric;
  options.gpu_direct_rdma   = gpu_direct_rdma;
  if (decay_ms >= 0) { options.decay = std::chrono::milliseconds{decay_ms}; }
  auto const made = std::make_shared<rmm::mr::elastic_pool_memory_resource>(options);
  check_captures(*made);
  return made;
}

elastic_pool_functions::elastic_pool_functions(rmm::mr::device_memory_resource* pool) noexcept
  : pool_{static_cast<rmm::mr::elastic_pool_memory_resource*>(pool)}
{}

std::size_t elastic_pool_functions::tick() const noexcept { return pool_->tick(); }
void elastic_pool_functions::pause(bool keeps, bool pinned) const { pool_->pause(paused_contents_of(keeps, pinned)); }
void elastic_pool_functions::resume() const { pool_->resume(); }
bool elastic_pool_functions::is_paused() const noexcept { return pool_->is_paused(); }
void elastic_pool_functions::set_pausable(rmm::tag which) const { pool_->set_pausable(which); }
void elastic_pool_functions::pause(rmm::tag which, bool keeps, bool pinned) const
{
  pool_->pause(which, paused_contents_of(keeps, pinned));
}
void elastic_pool_functions::resume(rmm::tag which) const { pool_->resume(which); }
void elastic_pool_functions::retain_host_memory(bool on) const { pool_->retain_host_memory(on); }
void const* elastic_pool_functions::kept_contents(void const* ptr, std::size_t bytes) const
{
  return pool_->kept_contents(ptr, bytes);
}
std::size_t elastic_pool_functions::mapped_bytes() const noexcept { return pool_->mapped_bytes(); }
std::size_t elastic_pool_functions::chunk_bytes() const noexcept { return pool_->chunk_bytes(); }
bool elastic_pool_functions::has_virtual_memory() const noexcept { return pool_->has_virtual_memory(); }

exported_block elastic_pool_functions::export_descriptors(void const* ptr, std::size_t bytes) const
{
  auto exported = pool_->export_descriptors(ptr, bytes);
  exported_block result{exported.block.offset_bytes, exported.block.bytes, exported.block.chunk_bytes};
  result.descriptors.reserve(exported.chunks.size());
  for (auto& each : exported.chunks) { result.descriptors.push_back(each.release()); }
  return result;
}

exported_block elastic_pool_functions::export_fabric(void const* ptr, std::size_t bytes) const
{
  auto const exported = pool_->export_fabric(ptr, bytes);
  exported_block result{exported.block.offset_bytes, exported.block.bytes, exported.block.chunk_bytes};
  for (auto const& each : exported.chunks) { result.fabric_handles.emplace_back(each.begin(), each.end()); }
  return result;
}

resource_ptr make_binning(resource_ptr const& upstream, int min_size_exponent, int max_size_exponent)
{
  auto made =
    min_size_exponent == -1 || max_size_exponent == -1
      ? std::make_unique<binning>(upstream.get())
      : std::make_unique<binning>(
          upstream.get(), static_cast<std::int8_t>(min_size_exponent), static_cast<std::int8_t>(max_size_exponent));
  return resource_ptr{made.release(), end_of_binning{upstream, {}}};
}

void add_bin_to(resource_ptr const& resource, std::size_t allocation_size, resource_ptr const& bin)
{
  auto& bins = std::get_deleter<end_of_binning>(resource)->bins;
  bins.push_back(bin);
  static_cast<binning*>(resource.get())->add_bin(allocation_size, bin.get());
}

void check_configuration(std::string const& text) { static_cast<void>(rmm::mr::resource_configuration::parse(text)); }

resource_ptr make_configured(std::string const& configuration, std::string& explanation)
{
  rmm::mr::configured_resource const made{configuration};
  explanation = made.explanation();
  check_captures(innermost(*made));
  return made.share();
}

void pool_sizes::check(std::size_t initial, std::optional<std::size_t> maximum)
{
  pools_own_check::check(initial, maximum);
}

}  // namespace rmm_python
