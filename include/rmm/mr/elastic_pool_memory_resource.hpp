// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/chunk_source.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/detail/parts_by_tag.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>
#include <rmm/tag_scope.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// How an elastic_pool_memory_resource is made.
struct elastic_pool_options {
  std::size_t initial_bytes{};                 ///< taken from the device at once
  std::optional<std::size_t> maximum_bytes{};  ///< in whole chunks, rounded up; nothing: all that the device has
  std::size_t chunk_bytes{};                   ///< a power of two; 0: the device's smallest (see the class)
  std::optional<cuda_device_id> device{};      ///< nothing: the one that is current

  /// What is unused for so long goes back to the device, in calls that grow the pool and in tick(). Nothing: only on request.
  std::optional<std::chrono::milliseconds> decay{};

  bool peer_access{};        ///< lets all devices that can use the memory
  bool share_descriptors{};  ///< chunks can be exported to other processes as file descriptors
  bool share_fabric{};       ///< ... and as fabric handles, to other machines
  bool gpu_direct_rdma{};    ///< network adapters can read and write the memory
};

/// What becomes of the contents of memory that is paused.
enum class paused_contents {
  dropped,        ///< they are lost
  kept_pageable,  ///< they are copied to ordinary memory of the host, and back
  kept_pinned     ///< the same with pinned memory: faster to copy, dearer to get
};

/// A pool that grows in place, loses little to fragmentation, and gives memory back.
///
/// Reserves far more addresses than the device has memory, and puts chunks of memory behind them as they are needed. What is
/// free in pieces becomes one large block by mapping its chunks to neighbouring addresses; chunks that hold no allocation
/// go back to the device by trim_to(). Small chunks leave less behind, large ones are mapped faster: see
/// docs/elastic-pool.md. Where the device has no virtual memory the pool grows by blocks of cudaMalloc, as
/// pool_memory_resource does, and gives back those that are wholly free; it logs that once.
class elastic_pool_memory_resource final : public detail::growing_pool, public trimmable_resource {
 public:
  /// Throws logic_error if a size is not a multiple of 256, the initial one is above the maximum, there is no such device, or it
  /// does not have an option; out_of_memory if the device lacks the initial memory.
  explicit elastic_pool_memory_resource(elastic_pool_options const& options)
    : growing_pool{default_order, options.device ? options.device->value() : -1},
      device_{options.device ? *options.device : cuda_device_id{rmm::detail::known_current_device()}},
      options_{options}
  {
    check_sizes(options.initial_bytes, options.maximum_bytes);
    RMM_EXPECTS(!options.device || (device_.value() >= 0 && device_.value() < get_num_cuda_devices()),
                "There is no device " + std::to_string(device_.value()));
    rmm::detail::device_scope const on_device{device_.value()};
    source_ = make_source();
    take_first(*source_, options.initial_bytes);
  }

  /// On the current device.
  explicit elastic_pool_memory_resource(std::size_t initial_bytes                = 0,
                                        std::optional<std::size_t> maximum_bytes = std::nullopt)
    : elastic_pool_memory_resource{make_options(initial_bytes, maximum_bytes)}
  {}

  ~elastic_pool_memory_resource() override
  {
    parts_.clear();
    rmm::detail::device_scope const on_device{device_.value()};
    source_.reset();
  }

  /// Gives chunks that hold no allocation back to the device until at most `bytes` stay with the pool.
  ///
  /// Returns  the bytes given back, possibly 0.
  /// Failure  does not throw; what cannot be given back stays. Memory whose work cannot be waited for stays mapped, and is
  ///          unusable, until a later call, or an allocation that has to grow the pool, can wait for it.
  /// Threads  may run beside all other calls; allocations that have to grow the pool wait for it.
  /// Stream   waits on the host for the work that may use what is given back; for the device, if that cannot be told.
  /// Cost     O(free blocks), plus the driver's calls.
  std::size_t trim_to(std::size_t bytes) noexcept override
  {
    try {
      std::size_t released{};
      parts_.for_each([&](elastic_pool_memory_resource& part) {
        auto const mapped = mapped_bytes();
        auto const size   = part.pool_size();
        auto const over   = mapped - rmm::detail::min(mapped, bytes);
        released += part.trim_to(size - rmm::detail::min(size, over));
      });
      auto const growing = lock_growth();
      auto const mapped  = mapped_bytes();
      auto const others  = mapped - rmm::detail::min(mapped, source_->held());
      return released + trim_locked(bytes - rmm::detail::min(bytes, others));
    } catch (std::exception const&) {
      return 0;
    }
  }

  /// Gives back what was unused for as long as the options say. Returns the bytes given back. Time passes for the pool only in
  /// calls of this and in those that make it grow.
  std::size_t tick() noexcept
  {
    std::size_t released{};
    parts_.for_each([&](elastic_pool_memory_resource& part) { released += part.tick(); });
    try {
      auto const growing = lock_growth();
      released += tick_locked();
    } catch (std::exception const&) {
      return released;
    }
    return released;
  }

  /// Gives all memory of the pool, but for what can be paused by tag, back to the device, and keeps the addresses of what is
  /// allocated. Until resume() that may not be used, allocating throws logic_error, and freeing works.
  ///
  /// Failure  throws logic_error for a plain pool, for one that is paused, and for one whose memory was exported; bad_alloc if
  ///          the host has no memory for the contents, cuda_error if copying fails; nothing has changed then.
  /// Threads  no other thread may allocate meanwhile.
  /// Stream   waits on the host for the device.
  void pause(paused_contents contents = paused_contents::kept_pageable)
  {
    auto const growing = lock_growth();
    RMM_EXPECTS(!is_suspended(), "The pool is paused already");
    suspend(true);
    rmm::detail::scope_guard undo{[this]() noexcept { suspend(false); }};
    source_->pause(contents != paused_contents::dropped, contents == paused_contents::kept_pinned);
    undo.dismiss();
  }

  /// Puts memory behind those addresses again, and the contents if they were kept. Throws logic_error if the pool is not paused;
  /// out_of_memory if the device lacks the memory, and then it is still paused.
  void resume()
  {
    auto const growing = lock_growth();
    RMM_EXPECTS(is_suspended(), "The pool is not paused");
    source_->resume();
    suspend(false);
  }

  /// Whether the whole pool is paused.
  [[nodiscard]] bool is_paused() const noexcept { return is_suspended(); }

  /// From now on what is allocated under this tag (tag_scope.hpp) lies in chunks of its own, so that it can be paused for
  /// itself. All calls of the pool take some ten nanoseconds more then. Throws logic_error for no tag and for a plain pool.
  void set_pausable(tag which)
  {
    RMM_EXPECTS(which, "What is to be paused needs a tag");
    auto const growing = lock_growth();
    if (parts_.find(which) != nullptr) { return; }
    rmm::detail::owned_ptr<elastic_pool_memory_resource> part{new elastic_pool_memory_resource{*this}};
    part->become_part_of(*this);
    parts_.add(which, std::move(part));
    set_has_parts();
  }

  /// The same as without a tag, for what was allocated under it since set_pausable(). Throws logic_error for another tag too.
  void pause(tag which, paused_contents contents = paused_contents::kept_pageable) { part_of(which).pause(contents); }

  /// Ends that pause, as resume() does. Throws logic_error for another tag too.
  void resume(tag which) { part_of(which).resume(); }

  /// Whether what was allocated under the tag is paused by itself. Throws logic_error for another tag.
  [[nodiscard]] bool is_paused(tag which) const { return part_of(which).is_paused(); }

  /// A block of this pool for other processes: see mr/shared_memory.hpp. It has to stay allocated as long as they use it.
  ///
  /// Throws logic_error if the pool was made without share_descriptors, or the block is not in it, or is paused; cuda_error if the
  /// driver refuses.
  [[nodiscard]] exported_descriptors export_descriptors(void const* ptr, std::size_t bytes) const
  {
    RMM_EXPECTS(options_.share_descriptors, "The pool was made without share_descriptors");
    exported_descriptors exported;
    exported.block = for_each_chunk(ptr, bytes, [&](rmm::detail::physical_memory const& chunk) {
      rmm::detail::file_descriptor descriptor{chunk.export_descriptor()};
      exported.chunks.push_back(std::move(descriptor));
    });
    return exported;
  }

  /// The same for processes on the same fabric; takes share_fabric.
  [[nodiscard]] exported_fabric export_fabric(void const* ptr, std::size_t bytes) const
  {
    RMM_EXPECTS(options_.share_fabric, "The pool was made without share_fabric");
    exported_fabric exported;
    exported.block = for_each_chunk(
      ptr, bytes, [&](rmm::detail::physical_memory const& chunk) { exported.chunks.push_back(chunk.export_fabric()); });
    return exported;
  }

  /// What is allocated and free now, under tags that can be paused too, and how that came about.
  [[nodiscard]] heap_figures figures() const
  {
    auto sum = growing_pool::figures();
    parts_.for_each([&](elastic_pool_memory_resource const& part) { sum = sum + part.figures(); });
    return sum;
  }

  /// All memory of the pool, range by range, with what can be paused by tag; each part's at one moment. Callers include
  /// rmm/memory_snapshot.hpp.
  template <class Snapshot = memory_snapshot>
  [[nodiscard]] Snapshot snapshot() const
  {
    return this->template make_snapshot<Snapshot>([this](auto& made) {
      using view = typename std::remove_reference_t<decltype(made)>::view;
      this->add_to(made, view{has_virtual_memory(), is_paused()});
      parts_.for_each([&](auto const& part) { part.add_to(made, view{true, part.is_paused()}); });
    });
  }

  /// Bytes of the device's memory that the pool holds now, with what can be paused by tag; pool_size() goes on to count what is
  /// paused.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return source_->held_by_all(); }

  /// Whether the pool works as described, and not as a plain one.
  [[nodiscard]] bool has_virtual_memory() const noexcept { return chunk_bytes() != 0; }

  /// Bytes that are mapped, and given back, at a time; 0 for a plain pool.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return source_->chunk_bytes(); }

  /// Whose memory it is.
  [[nodiscard]] cuda_device_id get_device() const noexcept { return device_; }

 private:
  static constexpr recovery_order default_order{recovery_rung::reclaim,
                                                recovery_rung::grow,
                                                recovery_rung::remap,
                                                recovery_rung::synchronize,
                                                recovery_rung::callback};

  friend class detail::parts_by_tag<elastic_pool_memory_resource>;

  // A function: g++ 13 takes a braced initializer's absent options for uninitialized ones.
  [[nodiscard]] static elastic_pool_options make_options(std::size_t initial, std::optional<std::size_t> maximum)
  {
    elastic_pool_options options;
    options.initial_bytes = initial;
    options.maximum_bytes = maximum;
    return options;
  }

  /// A part of `whole`, for what can be paused under one tag: within the same bounds.
  explicit elastic_pool_memory_resource(elastic_pool_memory_resource& whole)
    : growing_pool{default_order, whole.device_.value()},
      device_{whole.device_},
      options_{whole.options_},
      source_{whole.source_->make_part(heap_)}
  {}

  /// Makes a source of chunks, or of blocks where the device has no virtual memory.
  [[nodiscard]] rmm::detail::owned_ptr<detail::memory_source> make_source()
  {
    auto const device    = device_.value();
    auto const& o        = options_;
    bool const is_shared = o.share_descriptors || o.share_fabric || o.gpu_direct_rdma || o.peer_access;
    // A driver that fails to answer is as good as one without, unless there must be one.
    if (is_shared ? rmm::detail::is_known_to_have_virtual_memory(device) : rmm::detail::has_virtual_memory(device)) {
      return rmm::detail::make_owned<detail::chunk_source>(heap_, device, options_);
    }
    RMM_EXPECTS(!is_shared, "The device has no virtual memory, and so none that can be shared");
    rmm::detail::log(
      rmm::detail::log_level::warn,
      "elastic_pool_memory_resource: the device has no virtual memory; the pool grows by blocks of cudaMalloc");
    return rmm::detail::make_owned<detail::block_source<cuda_memory_resource>>(heap_, upstream_, o.maximum_bytes);
  }

  // --- parts that can be paused ---

  [[nodiscard]] elastic_pool_memory_resource& part_of(tag which) const
  {
    auto* const part = parts_.find(which);
    RMM_EXPECTS(part != nullptr, std::string{"The pool was not told to make this pausable: "} + which.name());
    return *part;
  }

  [[nodiscard]] growing_pool* find_part(void const* ptr) const noexcept override
  {
    return ptr == nullptr ? parts_.find(tag::current()) : parts_.find_with(ptr);
  }

  void set_check_capture_of_parts(bool on) noexcept override
  {
    parts_.for_each([&](elastic_pool_memory_resource& part) { part.heap_.set_checks_captures(on); });
  }

  [[nodiscard]] bool contains(void const* ptr) const noexcept { return source_->contains(ptr); }

  /// Visits the memory of each chunk that a block touches.
  template <class Visit>
  [[nodiscard]] shared_block for_each_chunk(void const* ptr, std::size_t bytes, Visit&& visit) const
  {
    if (auto const* const part = parts_.find_with(ptr)) { return part->for_each_chunk(ptr, bytes, visit); }
    auto const growing = lock_growth();
    RMM_EXPECTS(ptr != nullptr && bytes != 0, "Only a block that holds something can be exported");
    auto const found = source_->export_chunks(ptr, bytes);
    for (auto const* const memory : found.memory) { visit(*memory); }
    return {found.offset_bytes, bytes, chunk_bytes()};
  }

  // --- the ladder ---

  [[nodiscard]] bool has_rung(recovery_rung rung) const noexcept override
  {
    return rung != recovery_rung::trim && (rung != recovery_rung::remap || has_virtual_memory());
  }

  [[nodiscard]] void* try_grow(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    static_cast<void>(tick_locked());
    return source_->grow(bytes, stream, tries(recovery_rung::remap), reason);
  }

  [[nodiscard]] void* try_remap(std::size_t bytes, cuda_stream_view stream, detail::failure_reason& reason) override
  {
    return source_->remap(bytes, stream, reason);
  }

  [[nodiscard]] bool could_remap_idle(std::size_t bytes, cuda_stream_view stream) override
  {
    return source_->could_remap_idle(bytes, stream);
  }

  void describe(memory_report& report) const override
  {
    growing_pool::describe(report);
    source_->describe(report);
    report.device = device_.value();
  }

  // --- giving back ---

  [[nodiscard]] std::size_t trim_locked(std::size_t bytes)
  {
    if (is_suspended()) { return 0; }
    rmm::detail::device_scope const on_device{device_.value()};
    rmm::detail::capture_exemption const exemption;
    auto released = source_->trim(bytes);
    if (pool_size() > bytes && heap_.wait_for_all()) { released += source_->trim(bytes); }
    return released;
  }

  [[nodiscard]] std::size_t tick_locked()
  {
    if (!options_.decay || is_suspended()) { return 0; }
    rmm::detail::device_scope const on_device{device_.value()};
    rmm::detail::capture_exemption const exemption;
    auto const now  = std::chrono::steady_clock::now();
    auto const idle = source_->idle_bytes();
    idle_bytes_     = rmm::detail::min(idle_bytes_, idle);
    if (now - idle_since_ < *options_.decay) { return 0; }
    auto const released = idle_bytes_ != 0 ? source_->trim(pool_size() - idle_bytes_) : 0;
    idle_since_         = now;
    idle_bytes_         = idle - rmm::detail::min(idle, released);
    return released;
  }

  cuda_device_id device_;
  elastic_pool_options options_;
  cuda_memory_resource cuda_;
  detail::suballocator_upstream<cuda_memory_resource> upstream_{&cuda_, device_.value()};  // of a source of blocks
  rmm::detail::owned_ptr<detail::memory_source> source_;
  std::chrono::steady_clock::time_point idle_since_{std::chrono::steady_clock::now()};
  std::size_t idle_bytes_{};  // whole chunks that were free all the time since then
  detail::parts_by_tag<elastic_pool_memory_resource> parts_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
