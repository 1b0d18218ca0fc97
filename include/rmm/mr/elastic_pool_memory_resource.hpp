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

/// Options of an elastic_pool_memory_resource.
struct elastic_pool_options {
  std::size_t initial_bytes{};  ///< bytes to take in the constructor
  std::optional<std::size_t>
    maximum_bytes{};                       ///< the most bytes to hold, rounded up to whole chunks; nothing: no limit
  std::size_t chunk_bytes{};               ///< bytes of the smallest chunk, a power of two; 0: the device's least
  std::optional<cuda_device_id> device{};  ///< nothing: the current device

  /// Memory that is unused for one to two of these periods goes back to the device, in calls that grow the pool and in tick(). If not set,
  /// memory goes back only on request. Ignored if the device has no virtual memory.
  std::optional<std::chrono::milliseconds> decay{};

  bool peer_access{};        ///< all devices that can access the memory may use it
  bool share_descriptors{};  ///< chunks can be exported to other processes as file descriptors
  bool share_fabric{};       ///< chunks can be exported to other machines as fabric handles
  bool gpu_direct_rdma{};    ///< network adapters can read and write the memory
};

/// What pause() does with the contents of the memory.
enum class paused_contents {
  dropped,        ///< loses them
  kept_pageable,  ///< copies them to ordinary memory of the host, and back
  kept_pinned     ///< copies them to pinned memory of the host: a faster copy, but the memory takes longer to get
};

/// A pool that grows in place, loses little to fragmentation, and gives memory back. Use it if sizes vary much, or if other programs use
/// the device too.
///
/// It reserves far more addresses than the device has memory, and maps chunks of memory to them when they are needed. It joins free pieces
/// to one large block by mapping their chunks to neighbouring addresses. trim_to() gives chunks without an allocation back to the
/// device. One allocation keeps a whole chunk in the pool, so with small chunks more memory can go back. Large chunks are mapped faster, so
/// large requests get larger chunks; see docs/elastic-pool.md.
///
/// UCX, as Dask uses it, sends this memory from device to device only with UCX_RNDV_PIPELINE_ERROR_HANDLING=y, else through the host; see
/// docs/dask.md.
///
/// If the device has no virtual memory, the pool is plain: it grows by blocks of cudaMalloc, as pool_memory_resource does, and gives back
/// blocks that are wholly free. Each such pool logs that.
///
/// @code{.cpp}
/// rmm::mr::elastic_pool_memory_resource pool;  // holds no memory yet
/// {
///   rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, pool};
/// }
/// pool.trim_to(0);  // the device has the memory again
/// @endcode
class elastic_pool_memory_resource final : public detail::growing_pool, public trimmable_resource {
 public:
  /// Throws logic_error if a size is not a multiple of 256, the initial size is above the maximum, `chunk_bytes` is neither 0 nor a power
  /// of two from the device's smallest chunk to 1 GiB, the device does not exist, or it does not support an option. Throws out_of_memory
  /// if the device does not have the initial size, and another bad_alloc if there are no addresses.
  explicit elastic_pool_memory_resource(elastic_pool_options const& options)
    : growing_pool{default_order, options.device ? options.device->value() : -1},
      device_{options.device ? *options.device : cuda_device_id{rmm::detail::known_current_device()}},
      options_{options}
  {
    check_sizes(options.initial_bytes, options.maximum_bytes);
    RMM_EXPECTS(!options.device || (device_.value() >= 0 && device_.value() < get_num_cuda_devices()),
                "Device " + std::to_string(device_.value()) +
                  " does not exist. Number of devices: " + std::to_string(get_num_cuda_devices()));
    rmm::detail::device_scope const on_device{device_.value()};
    source_ = make_source();
    if (!has_virtual_memory()) { set_recovery_order(plain_order); }
    take_first(*source_, options.initial_bytes);
  }

  /// Makes a pool on the current device.
  explicit elastic_pool_memory_resource(std::size_t initial_bytes                = 0,
                                        std::optional<std::size_t> maximum_bytes = std::nullopt)
    : elastic_pool_memory_resource{make_options(initial_bytes, maximum_bytes)}
  {}

  ~elastic_pool_memory_resource() override
  {
    parts_.clear();
    if (!heap_.is_of_this_process()) { return; }
    rmm::detail::device_scope const on_device{device_.value()};
    source_.~owned_ptr();
  }

  /// Gives chunks without an allocation back to the device, until the pool holds at most `bytes`.
  ///
  /// Returns  the bytes given back, possibly 0.
  /// Failure  does not throw; memory that cannot be given back stays. If the wait for its work or the driver's unmapping fails, it stays
  ///          mapped, but unusable until a later call succeeds. A paused pool or tag gives nothing back; the other parts of the pool do.
  /// Threads  may run at the same time as all other calls. Allocations that have to grow the pool wait for it. While it waits for the
  ///          device, all other allocations and frees wait, too. So do not call it while a kernel waits for a host thread that may allocate
  ///          or free: neither would ever go on.
  /// Stream   waits on the host for the work that may use the memory. If the pool does not know that work, waits for the device, unless
  ///          that would break a capture.
  /// Cost     O(free blocks), plus the calls of the driver.
  std::size_t trim_to(std::size_t bytes) noexcept override
  {
    std::size_t released{};
    try {
      auto const growing = lock_growth();  // the parts have the same lock
      parts_.for_each([&](elastic_pool_memory_resource& part) {
        auto const mapped = mapped_bytes();
        auto const over   = mapped - rmm::detail::min(mapped, bytes);
        auto const size   = part.pool_size();
        released += part.trim_locked(size - rmm::detail::min(size, over));
      });
      auto const mapped = mapped_bytes();
      auto const others = mapped - rmm::detail::min(mapped, source_->held());
      released += trim_locked(bytes - rmm::detail::min(bytes, others));
    } catch (std::exception const&) {
      return released;
    }
    return released;
  }

  /// Gives memory back that has stayed free for a whole period `decay`. Returns the bytes given back; 0 until a period ends, and always 0
  /// without `decay`. Does not wait for the end of a period. The pool looks only here and in calls that grow it, so call it from time to
  /// time.
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

  /// Gives the memory of the pool back to the device, and keeps the addresses of allocations. Until resume(), the memory must not be used,
  /// allocations throw logic_error, and frees work. Memory of tags that set_pausable() named is not part of it.
  ///
  /// Failure  throws logic_error for a plain pool, for a paused pool, if a block of this memory was exported, and if a capture forbids the
  ///          wait. Throws bad_alloc if the host has no memory for the contents, and cuda_error if a wait or copy fails. Changes nothing
  ///          then.
  /// Threads  no other thread may allocate at the same time.
  /// Stream   waits on the host for the device; with peer_access, for all devices that can access the memory.
  void pause(paused_contents contents = paused_contents::kept_pageable)
  {
    auto const growing = lock_growth();
    RMM_EXPECTS(!is_suspended(), "The pool is paused already: call resume() first");
    suspend(true);
    rmm::detail::scope_guard undo{[this]() noexcept { suspend(false); }};
    source_->pause(contents != paused_contents::dropped, contents == paused_contents::kept_pinned);
    undo.dismiss();
  }

  /// Maps memory to the addresses again, and restores the contents if they were kept. Throws logic_error if the pool is not paused. Throws
  /// out_of_memory if the device does not have the memory, and cuda_error if a copy fails; the pool is still paused then.
  void resume()
  {
    auto const growing = lock_growth();
    RMM_EXPECTS(is_suspended(), "The pool is not paused, so resume() has nothing to do");
    source_->resume();
    suspend(false);
  }

  /// Whether the pool is paused.
  [[nodiscard]] bool is_paused() const noexcept { return is_suspended(); }

  /// Gives later allocations under this tag (tag_scope.hpp) chunks of their own, so that they can be paused alone. All calls of the pool
  /// take some tens of nanoseconds more then. Throws logic_error for an empty tag and for a plain pool.
  void set_pausable(tag which)
  {
    RMM_EXPECTS(which, "Only memory under a tag can be made pausable, and this tag is empty");
    auto const growing = lock_growth();
    if (parts_.find(which) != nullptr) { return; }
    rmm::detail::owned_ptr<elastic_pool_memory_resource> part{new elastic_pool_memory_resource{*this, as_a_part{}}};
    part->become_part_of(*this);
    parts_.add(which, std::move(part));
    set_has_parts();
  }

  /// Pauses the allocations that were made under this tag since set_pausable(). As pause() without a tag, but throws logic_error also if
  /// set_pausable() was not called for the tag.
  void pause(tag which, paused_contents contents = paused_contents::kept_pageable) { part_of(which).pause(contents); }

  /// Ends the pause of this tag, as resume() does. Throws logic_error also if set_pausable() was not called for the tag.
  void resume(tag which) { part_of(which).resume(); }

  /// Whether the allocations under the tag are paused. Throws logic_error if set_pausable() was not called for the tag.
  [[nodiscard]] bool is_paused(tag which) const { return part_of(which).is_paused(); }

  /// With `true`, resume() keeps the host memory that held the contents, for the next pause of the pool or tag. Pauses with the same
  /// paused_contents and about the same size are then faster, because pinned memory takes long to get. With `false`, which is the initial
  /// setting, resume() frees that memory; the call itself frees what earlier calls of resume() kept.
  void retain_host_memory(bool on = true)
  {
    auto const growing = lock_growth();  // the parts have the same lock
    source_->retain_host_memory(on);
    parts_.for_each([&](elastic_pool_memory_resource& part) { part.source_->retain_host_memory(on); });
  }

  /// Returns the address of the host's copy of `bytes` bytes at `ptr`, if they belong to a pool or tag that is paused with its contents.
  /// Valid until resume(). Returns null if the memory is not paused, or if its contents were dropped.
  [[nodiscard]] void const* kept_contents(void const* ptr, std::size_t bytes) const
  {
    if (auto const* const part = parts_.find_with(ptr)) { return part->kept_contents(ptr, bytes); }
    auto const growing = lock_growth();
    return source_->kept_contents(ptr, bytes);
  }

  /// Exports a block to other processes; see mr/shared_memory.hpp. The block has to stay allocated as long as they use it. If the block was
  /// allocated under a pausable tag, that tag cannot be paused any more. Otherwise the rest of the pool, without its pausable tags, cannot.
  ///
  /// Throws logic_error if the pool was made without share_descriptors, or if the block is not in the pool or is paused. Throws cuda_error
  /// if the driver fails.
  [[nodiscard]] exported_descriptors export_descriptors(void const* ptr, std::size_t bytes) const
  {
    RMM_EXPECTS(options_.share_descriptors,
                "The pool was made without the option share_descriptors, which exports need");
    exported_descriptors exported;
    exported.block = for_each_chunk(ptr, bytes, [&](rmm::detail::physical_memory const& chunk) {
      rmm::detail::file_descriptor descriptor{chunk.export_descriptor()};
      exported.chunks.push_back(std::move(descriptor));
    });
    return exported;
  }

  /// Exports a block to processes on machines of the same fabric. Throws as export_descriptors() does, and needs share_fabric.
  [[nodiscard]] exported_fabric export_fabric(void const* ptr, std::size_t bytes) const
  {
    RMM_EXPECTS(options_.share_fabric, "The pool was made without the option share_fabric, which exports need");
    exported_fabric exported;
    exported.block = for_each_chunk(
      ptr, bytes, [&](rmm::detail::physical_memory const& chunk) { exported.chunks.push_back(chunk.export_fabric()); });
    return exported;
  }

  /// Returns the figures of the pool, with memory of tags that can be paused.
  [[nodiscard]] heap_figures figures() const
  {
    auto sum = growing_pool::figures();
    parts_.for_each([&](elastic_pool_memory_resource const& part) { sum = sum + part.figures(); });
    return sum;
  }

  /// Returns all memory of the pool, range by range, with memory of tags that can be paused. The ranges of each of these parts are from
  /// one moment. Needs rmm/memory_snapshot.hpp.
  template <class Snapshot = memory_snapshot>
  [[nodiscard]] Snapshot snapshot() const
  {
    return this->template make_snapshot<Snapshot>([this](auto& made) {
      using view = typename std::remove_reference_t<decltype(made)>::view;
      this->add_to(made, view{has_virtual_memory(), is_paused()});
      parts_.for_each([&](auto const& part) { part.add_to(made, view{true, part.is_paused()}); });
    });
  }

  /// Returns the bytes of device memory that the pool and its pausable tags hold, without paused memory, except what the driver did not
  /// unmap. pool_size() counts paused memory, but no tags.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return source_->held_by_all(); }

  /// Whether the pool uses virtual memory; false for a plain pool.
  [[nodiscard]] bool has_virtual_memory() const noexcept { return chunk_bytes() != 0; }

  /// Returns the bytes of the smallest chunk; 0 for a plain pool.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return source_->chunk_bytes(); }

  [[nodiscard]] std::optional<std::size_t> maximum_bytes() const noexcept override { return source_->maximum(); }

  /// Returns the device of the memory.
  [[nodiscard]] cuda_device_id get_device() const noexcept { return device_; }

 private:
  static constexpr recovery_order default_order{recovery_rung::reclaim,
                                                recovery_rung::grow,
                                                recovery_rung::remap,
                                                recovery_rung::synchronize,
                                                recovery_rung::callback};
  static constexpr recovery_order plain_order{
    recovery_rung::reclaim, recovery_rung::grow, recovery_rung::synchronize, recovery_rung::callback};

  friend class detail::parts_by_tag<elastic_pool_memory_resource>;

  struct as_a_part {};  // tells the constructor of a part from the copy constructor

  // A function, because g++ 13 warns that options which a braced initializer leaves out are uninitialized.
  [[nodiscard]] static elastic_pool_options make_options(std::size_t initial, std::optional<std::size_t> maximum)
  {
    elastic_pool_options options;
    options.initial_bytes = initial;
    options.maximum_bytes = maximum;
    return options;
  }

  /// Makes a part of `whole` for one tag that can be paused. It shares the maximum of `whole`.
  elastic_pool_memory_resource(elastic_pool_memory_resource& whole, as_a_part)
    : growing_pool{default_order, whole.device_.value()},
      device_{whole.device_},
      options_{whole.options_},
      source_{whole.source_->make_part(heap_)}
  {}

  /// Makes a source of chunks, or a source of blocks if the device has no virtual memory.
  [[nodiscard]] rmm::detail::owned_ptr<detail::memory_source> make_source()
  {
    auto const device      = device_.value();
    auto const needing     = options_that_need_virtual_memory();
    bool const is_required = !needing.empty();
    // If the driver does not answer, the pool is plain, unless an option needs virtual memory.
    if (is_required ? rmm::detail::is_known_to_have_virtual_memory(device) : rmm::detail::has_virtual_memory(device)) {
      return rmm::detail::make_owned<detail::chunk_source>(heap_, device, options_);
    }
    RMM_EXPECTS(!is_required,
                "Device " + std::to_string(device) + " has no virtual memory, which these options need: " + needing);
    rmm::detail::log(
      rmm::detail::log_level::warn,
      "elastic_pool_memory_resource: the device has no virtual memory; the pool grows by blocks of cudaMalloc");
    return rmm::detail::make_owned<detail::block_source<cuda_memory_resource>>(
      heap_, upstream_, options_.maximum_bytes);
  }

  // Returns the names of the set options that need virtual memory; empty if none is set.
  [[nodiscard]] std::string options_that_need_virtual_memory() const
  {
    std::string names;
    auto const add_if = [&names](bool is_set, char const* name) {
      if (is_set) { names.append(names.empty() ? "" : ", ").append(name); }
    };
    add_if(options_.peer_access, "peer_access");
    add_if(options_.share_descriptors, "share_descriptors");
    add_if(options_.share_fabric, "share_fabric");
    add_if(options_.gpu_direct_rdma, "gpu_direct_rdma");
    return names;
  }

  // --- parts that can be paused ---

  [[nodiscard]] elastic_pool_memory_resource& part_of(tag which) const
  {
    auto* const part = parts_.find(which);
    RMM_EXPECTS(part != nullptr,
                std::string{"The tag '"} + which.name() + "' cannot be paused: call set_pausable() for it first");
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

  /// Calls visit(memory) for each chunk that a block touches.
  template <class Visit>
  [[nodiscard]] shared_block for_each_chunk(void const* ptr, std::size_t bytes, Visit&& visit) const
  {
    if (auto const* const part = parts_.find_with(ptr)) { return part->for_each_chunk(ptr, bytes, visit); }
    auto const growing = lock_growth();
    RMM_EXPECTS(ptr != nullptr && bytes != 0, "A null pointer or a block of 0 bytes cannot be exported");
    auto const found = source_->export_chunks(ptr, bytes);
    for (auto const* const memory : found.memory) { visit(*memory); }
    source_->note_export();
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
    parts_.for_each([&](elastic_pool_memory_resource const& part) {
      if (!part.is_paused()) { report.pool = report.pool + part.figures(); }  // the others gave theirs back
    });
  }

  // --- giving back ---

  [[nodiscard]] std::size_t trim_locked(std::size_t bytes) noexcept
  {
    if (is_suspended()) { return 0; }
    rmm::detail::device_scope const on_device{device_.value()};
    rmm::detail::capture_exemption const exemption;
    return detail::trim_as_far_as_possible(*source_, heap_, bytes);
  }

  [[nodiscard]] std::size_t tick_locked()
  {
    if (!options_.decay || is_suspended()) { return 0; }
    rmm::detail::device_scope const on_device{device_.value()};
    rmm::detail::capture_exemption const exemption;
    auto const now  = std::chrono::steady_clock::now();
    auto const idle = source_->idle_bytes();
    idle_bytes_     = rmm::detail::min(idle_bytes_, idle);
    // In milliseconds: a `decay` of hundreds of years would overflow in nanoseconds.
    if (std::chrono::duration_cast<std::chrono::milliseconds>(now - idle_since_) < *options_.decay) { return 0; }
    auto const size     = pool_size();
    auto const released = source_->trim(size - idle_bytes_);  // also what an earlier call could not unmap
    idle_since_         = now;
    idle_bytes_         = idle - rmm::detail::min(idle, size - pool_size());
    return released;
  }

  cuda_device_id device_;
  elastic_pool_options options_;
  cuda_memory_resource cuda_;
  detail::suballocator_upstream<cuda_memory_resource> upstream_{&cuda_, device_.value()};  // used by a plain pool
  union {  // as the heap in basic_suballocator
    rmm::detail::owned_ptr<detail::memory_source> source_{};
  };
  std::chrono::steady_clock::time_point idle_since_{std::chrono::steady_clock::now()};
  std::size_t idle_bytes_{};  // bytes of whole chunks that were free at each look since idle_since_
  detail::parts_by_tag<elastic_pool_memory_resource> parts_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
