// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/byte_budget.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/chunked_space.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/saved_memory.hpp>
#include <rmm/detail/cuda/stream.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/heap/placement.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/detail/parts_by_tag.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>
#include <rmm/tag_scope.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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
///
/// Invariants:
///  E1  the heap's blocks, and what is leaving, are what is mapped
///  E2  what is mapped and spare together is at most maximum_bytes, in whole chunks, and is what the budget counts
///  E3  memory is unmapped only when it is out of the heap and no work uses it; where that cannot be waited for it is leaving
class elastic_pool_memory_resource final : public detail::growing_pool, public trimmable_resource {
 public:
  /// Throws logic_error if a size is not a multiple of 256, the initial one is above the maximum, there is no such device, or it
  /// does not have an option; out_of_memory if the device lacks the initial memory.
  explicit elastic_pool_memory_resource(elastic_pool_options const& options)
    : growing_pool{default_order, options.device ? options.device->value() : -1},
      device_{options.device ? *options.device : cuda_device_id{rmm::detail::known_current_device()}},
      maximum_bytes_{options.maximum_bytes},
      decay_{options.decay},
      options_{options}
  {
    check_sizes(options.initial_bytes, options.maximum_bytes);
    RMM_EXPECTS(!options.device || (device_.value() >= 0 && device_.value() < get_num_cuda_devices()),
                "There is no device " + std::to_string(device_.value()));
    rmm::detail::device_scope const on_device{device_.value()};
    waiting_.emplace(cuda_stream::flags::non_blocking);
    bool const is_shared =
      options.share_descriptors || options.share_fabric || options.gpu_direct_rdma || options.peer_access;
    // A driver that fails to answer is as good as one without, unless there must be one.
    if (is_shared ? rmm::detail::is_known_to_have_virtual_memory(device_.value())
                  : rmm::detail::has_virtual_memory(device_.value())) {
      make_space(options);
    } else {
      RMM_EXPECTS(!is_shared, "The device has no virtual memory, and so none that can be shared");
      budget_ = make_budget(options.maximum_bytes, CUDA_ALLOCATION_ALIGNMENT);
      rmm::detail::log(
        rmm::detail::log_level::warn,
        "elastic_pool_memory_resource: the device has no virtual memory; the pool grows by blocks of cudaMalloc");
      blocks_.emplace(heap(), upstream_, budget_->limit());
    }
    take_initial(options.initial_bytes);
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
    if (space_ == nullptr) { return; }
    heap().release_blocks(
      [this](void* block, std::size_t bytes) { space_->unmap(reinterpret_cast<std::uintptr_t>(block), bytes); });
    if (!try_finish_leaving()) { unmap(leaving_); }  // as above: what cannot be waited for goes all the same
    waiting_.reset();
    space_.reset();
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
        auto const over   = mapped - std::min(mapped, bytes);
        released += part.trim_to(size - std::min(size, over));
      });
      auto const growing = lock_growth();
      auto const mapped  = mapped_bytes();
      auto const others  = mapped - std::min(mapped, space_ != nullptr ? held() : pool_size());
      return released + trim_locked(bytes - std::min(bytes, others));
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
    pause_locked(contents);
  }

  /// Puts memory behind those addresses again, and the contents if they were kept. Throws logic_error if the pool is not paused;
  /// out_of_memory if the device lacks the memory, and then it is still paused.
  void resume()
  {
    auto const growing = lock_growth();
    resume_locked();
  }

  /// Whether the whole pool is paused.
  [[nodiscard]] bool is_paused() const noexcept { return is_suspended(); }

  /// From now on what is allocated under this tag (tag_scope.hpp) lies in chunks of its own, so that it can be paused for
  /// itself. All calls of the pool take some ten nanoseconds more then. Throws logic_error for no tag and for a plain pool.
  void set_pausable(tag which)
  {
    RMM_EXPECTS(which, "What is to be paused needs a tag");
    RMM_EXPECTS(space_ != nullptr, "Pausing takes virtual memory, which the device does not have");
    auto const growing = lock_growth();
    if (parts_.find(which) != nullptr) { return; }
    std::unique_ptr<elastic_pool_memory_resource> part{new elastic_pool_memory_resource{*this}};
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
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return space_ != nullptr ? budget_->used() : pool_size(); }

  /// Whether the pool works as described, and not as a plain one.
  [[nodiscard]] bool has_virtual_memory() const noexcept { return space_ != nullptr; }

  /// Bytes that are mapped, and given back, at a time; 0 for a plain pool.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return space_ != nullptr ? space_->chunk_bytes() : 0; }

  /// Whose memory it is.
  [[nodiscard]] cuda_device_id get_device() const noexcept { return device_; }

 private:
  using leaving = rmm::detail::stream_ordered_heap::leaving;

  static constexpr recovery_order default_order{recovery_rung::reclaim,
                                                recovery_rung::grow,
                                                recovery_rung::remap,
                                                recovery_rung::synchronize,
                                                recovery_rung::callback};
  static constexpr std::size_t addresses_per_byte  = 8;    // of the device's memory
  static constexpr std::size_t most_per_maximum    = 64;   // bytes of addresses for a byte of the pool's maximum
  static constexpr std::size_t growth_fraction     = 128;  // of the pool, that it grows by beyond what is asked
  static constexpr std::size_t most_growth_in_hand = std::size_t{256} << 20;
  static constexpr std::size_t worth_asking        = std::size_t{64} << 20;  // the device how much it has
  static constexpr std::size_t largest_chunk       = std::size_t{1} << 30;
  static constexpr int most_turns                  = 8;

  friend class detail::parts_by_tag<elastic_pool_memory_resource>;

  /// A part of `whole`, for what can be paused under one tag: within the same bounds.
  explicit elastic_pool_memory_resource(elastic_pool_memory_resource& whole)
    : growing_pool{default_order, whole.device_.value()},
      device_{whole.device_},
      maximum_bytes_{whole.maximum_bytes_},
      decay_{whole.decay_},
      budget_{whole.budget_},
      options_{whole.options_},
      whole_{&whole}
  {
    rmm::detail::device_scope const on_device{device_.value()};
    waiting_.emplace(cuda_stream::flags::non_blocking);
    make_space(options_);
  }

  [[nodiscard]] static elastic_pool_options make_options(std::size_t initial, std::optional<std::size_t> maximum)
  {
    elastic_pool_options options;
    options.initial_bytes = initial;
    options.maximum_bytes = maximum;
    return options;
  }

  /// In whole units, so that a pool of so many bytes serves one request for all of them.
  [[nodiscard]] static std::shared_ptr<rmm::detail::byte_budget> make_budget(std::optional<std::size_t> maximum,
                                                                             std::size_t unit)
  {
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    bool const bounded  = maximum.has_value() && *maximum <= most - unit;
    return std::make_shared<rmm::detail::byte_budget>(bounded ? align_up(*maximum, unit) : most);
  }

  void make_space(elastic_pool_options const& options)
  {
    auto const device = device_.value();
    rmm::detail::physical_memory_options physical;
    physical.descriptors     = options.share_descriptors;
    physical.fabric          = options.share_fabric;
    physical.gpu_direct_rdma = options.gpu_direct_rdma;
    if (physical.descriptors || physical.fabric || physical.gpu_direct_rdma) {
      auto const supported = rmm::detail::supported_physical_memory_options(device);
      RMM_EXPECTS(supported.descriptors || !physical.descriptors,
                  "The device cannot export memory as file descriptors");
      RMM_EXPECTS(supported.fabric || !physical.fabric, "The device cannot export memory as fabric handles");
      RMM_EXPECTS(supported.gpu_direct_rdma || !physical.gpu_direct_rdma, "The device has no GPUDirect RDMA");
    }

    auto const unit  = rmm::detail::virtual_memory_granularity(device, physical);
    auto const chunk = options.chunk_bytes != 0 ? options.chunk_bytes : unit;
    RMM_EXPECTS(
      is_pow2(chunk) && chunk % unit == 0 && chunk <= largest_chunk,
      "A chunk has to be a power of two from the device's unit, " + rmm::detail::format_bytes(unit) + ", to 1 GiB");
    access_ = options.peer_access ? rmm::detail::devices_with_access_to(device) : std::vector<int>{device};
    if (budget_ == nullptr) { budget_ = make_budget(options.maximum_bytes, chunk); }
    auto const total   = align_up(available_device_memory().second, chunk);
    auto const maximum = align_up(std::min(options.maximum_bytes.value_or(total), total), chunk);
    for (auto bytes = std::min(total * addresses_per_byte, maximum * most_per_maximum);; bytes /= 2) {
      bytes = std::max(align_down(bytes, chunk), maximum);
      try {
        space_ = std::make_unique<rmm::detail::chunked_space>(device, bytes + chunk, chunk, physical, access_);
        break;
      } catch (rmm::bad_alloc const&) {
        if (bytes == maximum) { throw; }
      }
    }
  }

  void take_initial(std::size_t bytes)
  {
    if (space_ == nullptr) { return take_first(*blocks_, bytes); }
    if (bytes == 0) { return; }
    std::string reason;
    if (!try_fill({space_->begin(), rmm::detail::checked_align_up(bytes, space_->chunk_bytes())}, true, reason)) {
      throw_exhausted({bytes, cuda_stream_legacy, reason});
    }
  }

  // --- parts that can be paused ---

  [[nodiscard]] elastic_pool_memory_resource& part_of(tag which) const
  {
    auto* const part = parts_.find(which);
    RMM_EXPECTS(part != nullptr, std::string{"The pool was not told to make this pausable: "} + which.name());
    return *part;
  }

  [[nodiscard]] growing_pool* part_for_current_tag() const noexcept override { return parts_.find(tag::current()); }

  [[nodiscard]] growing_pool* part_that_holds(void const* ptr) const noexcept override { return parts_.find_with(ptr); }

  void set_check_capture_of_parts(bool on) noexcept override
  {
    parts_.for_each([&](elastic_pool_memory_resource& part) { part.heap().set_checks_captures(on); });
  }

  /// Whether a block lies in the addresses of the pool. Requires virtual memory.
  [[nodiscard]] bool contains(void const* ptr) const noexcept
  {
    return space_->contains(reinterpret_cast<std::uintptr_t>(ptr));
  }

  /// Visits the memory of each chunk that a block touches.
  template <class Visit>
  [[nodiscard]] shared_block for_each_chunk(void const* ptr, std::size_t bytes, Visit&& visit) const
  {
    if (auto const* const part = parts_.find_with(ptr)) { return part->for_each_chunk(ptr, bytes, visit); }
    auto const growing = lock_growth();
    RMM_EXPECTS(ptr != nullptr && bytes != 0, "Only a block that holds something can be exported");
    RMM_EXPECTS(space_ != nullptr, "Exporting takes virtual memory, which the device does not have");
    auto const begin = reinterpret_cast<std::uintptr_t>(ptr);
    auto const chunk = space_->chunk_bytes();
    RMM_EXPECTS(space_->contains(begin), "The block does not come from this pool");
    is_exported_.store(true, std::memory_order_relaxed);
    shared_block const block{(begin - space_->begin()) % chunk, bytes, chunk};
    for (std::size_t i = 0; i != block.chunks(); ++i) {
      auto const* const memory = space_->find(begin - block.offset_bytes + i * chunk);
      RMM_EXPECTS(memory != nullptr, "The block does not come from this pool, or is paused");
      visit(*memory);
    }
    return block;
  }

  void pause_locked(paused_contents contents)
  {
    RMM_EXPECTS(space_ != nullptr, "Pausing takes virtual memory, which the device does not have");
    RMM_EXPECTS(!is_suspended(), "The pool is paused already");
    RMM_EXPECTS(!is_exported_.load(std::memory_order_relaxed),
                "Memory of the pool was exported: other processes would keep what is paused");
    rmm::detail::device_scope const on_device{device_.value()};
    suspend(true);
    rmm::detail::scope_guard undo{[this]() noexcept { suspend(false); }};
    if (!wait_for_users() || !heap().wait_for_all()) {
      RMM_EXPECTS(rmm::detail::may_wait_for_device(),
                  "Nothing can be paused while a stream captures: the device cannot be waited for");
      rmm::detail::synchronize_device();  // says what is wrong, if it still is
      RMM_EXPECTS(wait_for_users() && heap().wait_for_all(),
                  "Nothing can be paused: the device cannot be waited for",
                  rmm::cuda_error);
    }
    unmap(leaving_);
    leaving_.clear();
    if (contents != paused_contents::dropped) {
      saved_.emplace(live_ranges(), contents == paused_contents::kept_pinned, waiting_->value());
    }
    give_back_spare();
    auto const bytes = held();
    space_->drop();
    budget_->release(bytes);
    undo.dismiss();
  }

  /// Waits for all work that may use live blocks: that of each device with access that the process uses.
  [[nodiscard]] bool wait_for_users() const noexcept
  {
    for (int const device : access_) {
      if (!rmm::detail::may_have_context(device)) { continue; }
      rmm::detail::device_scope const on_device{device};
      if (!rmm::detail::try_wait_for_device()) { return false; }
    }
    return true;
  }

  void resume_locked()
  {
    RMM_EXPECTS(is_suspended(), "The pool is not paused");
    rmm::detail::device_scope const on_device{device_.value()};
    auto const bytes = held();
    while (!budget_->try_reserve(bytes)) {
      if (family_gives(bytes) != 0) { continue; }
      RMM_FAIL("What is paused, " + rmm::detail::format_bytes(bytes) + ", does not fit: " + shortage(),
               rmm::out_of_memory);
    }
    rmm::detail::scope_guard undo{[&]() noexcept { budget_->release(bytes); }};
    space_->restore();
    undo.dismiss();
    if (saved_) {
      rmm::detail::scope_guard drop_again{[&]() noexcept {
        space_->drop();
        budget_->release(bytes);
      }};
      saved_->restore(waiting_->value());
      drop_again.dismiss();
      saved_.reset();
    }
    suspend(false);
  }

  /// The blocks less what is free of them.
  [[nodiscard]] std::vector<std::pair<std::uintptr_t, std::size_t>> live_ranges()
  {
    std::vector<std::pair<std::uintptr_t, std::size_t>> live;
    auto const free = heap().free_runs();
    auto next       = free.begin();
    for (auto const block : heap().blocks()) {
      auto at = block.begin;
      for (; next != free.end() && next->begin < block.end(); ++next) {
        if (next->begin > at) { live.emplace_back(at, next->begin - at); }
        at = next->end();
      }
      if (at < block.end()) { live.emplace_back(at, block.end() - at); }
    }
    return live;
  }

  // --- the ladder ---

  [[nodiscard]] bool has_rung(recovery_rung rung) const noexcept override
  {
    return rung != recovery_rung::trim && (rung != recovery_rung::remap || space_ != nullptr);
  }

  /// Maps what no work uses any more to where it is needed, and takes from the device what is then lacking.
  [[nodiscard]] void* try_grow(std::size_t bytes, cuda_stream_view stream, std::string& reason) override
  {
    static_cast<void>(tick_locked());
    if (space_ != nullptr) { return place(bytes, stream, leaving::at_once, reason); }
    rmm::detail::device_scope const on_device{device_.value()};
    return blocks_->grow(pool_size(), bytes, stream, reason);
  }

  /// The same with all that is free, also if that has to be waited for.
  [[nodiscard]] void* try_remap(std::size_t bytes, cuda_stream_view stream, std::string& reason) override
  {
    return space_ != nullptr ? place(bytes, stream, leaving::after_a_wait, reason) : nullptr;
  }

  [[nodiscard]] bool could_remap_idle(std::size_t bytes, cuda_stream_view stream) override
  {
    if (space_ == nullptr || !rmm::detail::query_capture(stream.value()).is_none()) { return false; }
    auto const free   = heap().free_runs(true);
    auto const target = rmm::detail::find_placement(free, empty_ranges(), bytes, space_->chunk_bytes());
    return target && covers(free, target);
  }

  void describe(memory_report& report) const override
  {
    if (maximum_bytes_) { report.maximum_bytes = budget_->limit(); }  // in whole chunks
    report.device = device_.value();
  }

  /// Makes the place that lacks the fewest chunks, and allocates. Other threads allocate meanwhile, and may be faster: then again.
  [[nodiscard]] void* place(std::size_t bytes, cuda_stream_view stream, leaving when, std::string& reason)
  {
    rmm::detail::capture_exemption const exemption;
    // A graph can only have memory that no work uses, and what is mapped for it is that.
    bool const captures = !rmm::detail::query_capture(stream.value()).is_none();
    static_cast<void>(try_finish_leaving());
    for (int turn = 0; turn != most_turns; ++turn) {
      auto const free   = heap().free_runs();
      auto const usable = captures ? std::vector<rmm::detail::address_range>{} : free;
      auto const target = rmm::detail::find_placement(usable, empty_ranges(), bytes, space_->chunk_bytes());
      if (!target) {
        reason = "no " + rmm::detail::format_bytes(bytes) + " of the pool's addresses are free in one piece";
        return nullptr;
      }
      while (target.missing_bytes > space_->spare_bytes() && !gather(free, target, when)) {
        if (family_gives(bytes) != 0) { continue; }
        reason = leaving_.empty() ? shortage() : "the work that used free memory cannot be waited for";
        give_back_spare();
        return nullptr;
      }
      bool const may_take_more = when == leaving::at_once && turn == 0;
      if (target.missing_bytes == 0 || fill_place(target.where, may_take_more, reason)) {
        if (void* const ptr = heap().try_allocate(bytes, stream)) {
          give_back_spare();
          return ptr;
        }
      } else if (when == leaving::at_once) {
        if (!tries(recovery_rung::remap)) { give_back_spare(); }  // else what was gathered is of use to that
        return nullptr;
      }
    }
    give_back_spare();
    return nullptr;
  }

  /// Makes the pool of which this is a part, and its other parts, give back up to `bytes` of what they do not use: the bound is
  /// that of all together. Returns what they gave.
  std::size_t family_gives(std::size_t bytes)
  {
    auto& whole = whole_ != nullptr ? *whole_ : *this;
    std::size_t released{};
    auto const ask = [&](elastic_pool_memory_resource& other) {
      if (&other == this || other.is_suspended() || released >= bytes) { return; }
      auto const size = other.pool_size();
      released += other.trim_what_is_fenced(size - std::min(size, bytes - released));
    };
    ask(whole);
    whole.parts_.for_each(ask);
    return released;
  }

  /// Unmaps free chunks elsewhere: as many as the place lacks, as far as `when` allows. False if all that can be waited for is too
  /// little, with what the budget and the device leave, or the wait fails; then none are unmapped.
  [[nodiscard]] bool gather(std::vector<rmm::detail::address_range> const& free,
                            rmm::detail::placement const& target,
                            leaving when)
  {
    if (when == leaving::after_a_wait && !covers(free, target)) { return false; }
    return try_withdraw(chunks_for(free, target), when);
  }

  /// Free chunks elsewhere, as many as the place lacks.
  [[nodiscard]] std::vector<rmm::detail::address_range> chunks_for(std::vector<rmm::detail::address_range> const& free,
                                                                   rmm::detail::placement const& target) const
  {
    auto const lacking = target.missing_bytes - std::min(target.missing_bytes, space_->spare_bytes());
    if (lacking == 0) { return {}; }
    return rmm::detail::find_free_chunks(free, space_->begin(), space_->chunk_bytes(), lacking, target.where);
  }

  /// Whether these, and what the budget and the device leave, are all that the place lacks.
  [[nodiscard]] bool covers(std::vector<rmm::detail::address_range> const& free,
                            rmm::detail::placement const& target) const
  {
    auto const lacking = target.missing_bytes - std::min(target.missing_bytes, space_->spare_bytes());
    auto const found   = total_of(chunks_for(free, target));
    auto const rest    = lacking - std::min(lacking, found);
    return rest <= room() && (rest == 0 || rest <= free_on_device());
  }

  /// Maps chunks behind what a place lacks.
  [[nodiscard]] bool fill_place(rmm::detail::address_range where, bool may_take_more, std::string& reason)
  {
    auto const chunk = space_->chunk_bytes();
    auto const begin = space_->begin() + (where.begin - space_->begin()) / chunk * chunk;
    auto const end   = space_->begin() + align_up(where.end() - space_->begin(), chunk);
    for (auto const range : empty_ranges()) {
      auto const first = std::max(begin, range.begin);
      auto const last  = std::min(end, range.end());
      if (first >= last) { continue; }
      if (!try_fill({first, last - first}, true, reason)) { return false; }
      if (!may_take_more || last != end) { continue; }
      auto const more =
        std::min(align_down(std::min(pool_size() / growth_fraction, most_growth_in_hand), chunk), range.end() - last);
      std::string ignored;
      if (more != 0 && space_->spare_bytes() == 0) { static_cast<void>(try_fill({last, more}, false, ignored)); }
    }
    return true;
  }

  /// Maps chunks behind empty addresses and gives them to the heap.
  [[nodiscard]] bool try_fill(rmm::detail::address_range range, bool needed, std::string& reason)
  {
    auto const fresh = range.bytes - std::min(range.bytes, space_->spare_bytes());
    if (!budget_->try_reserve(fresh)) {
      if (needed) { reason = shortage(); }
      return false;
    }
    auto const before = held();
    rmm::detail::scope_guard settle{[&]() noexcept { budget_->release(before + fresh - held()); }};
    if (fresh >= worth_asking && fresh > free_on_device()) {  // rather than take all that there is, and fail then
      if (needed) { reason = "the device has less than " + rmm::detail::format_bytes(fresh) + " left"; }
      return false;
    }
    try {
      space_->map(range.begin, range.bytes);
    } catch (std::bad_alloc const& e) {
      if (needed) { reason = e.what(); }
      return false;
    }
    try {
      heap().extend(range);
    } catch (std::bad_alloc const&) {
      space_->unmap(range.begin, range.bytes);
      reason = "the host has no memory to note what was mapped";
      return false;
    }
    return true;
  }

  /// Takes free chunks out of the heap and makes them spare. False if the work that used them, or what left before them, cannot be
  /// waited for; none are spare then.
  [[nodiscard]] bool try_withdraw(std::vector<rmm::detail::address_range> const& chunks, leaving when)
  {
    if (when == leaving::at_once) {
      unmap(heap().withdraw(chunks, when, *waiting_));
      return true;
    }
    if (!try_finish_leaving()) { return false; }
    leaving_ = heap().withdraw(chunks, when, *waiting_);
    return try_finish_leaving();
  }

  /// Waits for the work that used what left the heap, and makes it spare. False if that cannot be waited for.
  [[nodiscard]] bool try_finish_leaving() noexcept
  {
    if (leaving_.empty()) { return true; }
    if (!rmm::detail::try_synchronize_stream(waiting_->value())) { return false; }
    unmap(leaving_);
    leaving_.clear();
    return true;
  }

  /// Makes spare what left the heap and no work uses.
  void unmap(std::vector<rmm::detail::address_range> const& ranges) noexcept
  {
    if (ranges.empty()) { return; }
    auto const before = held();
    for (auto const range : ranges) { space_->unmap(range.begin, range.bytes); }
    budget_->release(before - held());  // what could not be kept
  }

  std::size_t give_back_spare() noexcept
  {
    auto const bytes = space_->release_spare();
    budget_->release(bytes);
    return bytes;
  }

  [[nodiscard]] std::size_t free_on_device() const
  {
    rmm::detail::device_scope const on_device{device_.value()};
    return available_device_memory().first;
  }

  [[nodiscard]] std::size_t held() const noexcept { return space_->mapped_bytes() + space_->spare_bytes(); }
  [[nodiscard]] std::size_t room() const noexcept { return budget_->limit() - budget_->used(); }

  [[nodiscard]] std::string shortage() const
  {
    return "the pool holds " + rmm::detail::format_bytes(pool_size()) + " of at most " +
           rmm::detail::format_bytes(budget_->limit()) + ", and what is free of it has too few whole chunks";
  }

  [[nodiscard]] std::vector<rmm::detail::address_range> empty_ranges() const
  {
    std::vector<rmm::detail::address_range> all;
    for (auto const& [begin, bytes] : space_->empty_ranges()) { all.push_back({begin, bytes}); }
    return all;
  }

  [[nodiscard]] static std::size_t total_of(std::vector<rmm::detail::address_range> const& ranges) noexcept
  {
    std::size_t sum{};
    for (auto const range : ranges) { sum += range.bytes; }
    return sum;
  }

  // --- giving back ---

  [[nodiscard]] std::size_t trim_locked(std::size_t bytes)
  {
    if (is_suspended()) { return 0; }
    rmm::detail::device_scope const on_device{device_.value()};
    rmm::detail::capture_exemption const exemption;
    auto released = trim_what_is_fenced(bytes);
    if (pool_size() > bytes && heap().wait_for_all()) { released += trim_what_is_fenced(bytes); }
    return released;
  }

  [[nodiscard]] std::size_t trim_what_is_fenced(std::size_t bytes)
  {
    auto const surplus = pool_size() - std::min(pool_size(), bytes);
    if (space_ == nullptr) {
      return blocks_->give_back(blocks_->unused_blocks(bytes), *waiting_, leaving::after_a_wait, true);
    }
    if (surplus != 0) {
      auto const chunks =
        rmm::detail::find_free_chunks(heap().free_runs(), space_->begin(), space_->chunk_bytes(), surplus);
      static_cast<void>(try_withdraw(chunks, leaving::after_a_wait));
    } else {
      static_cast<void>(try_finish_leaving());
    }
    return give_back_spare();
  }

  [[nodiscard]] std::size_t tick_locked()
  {
    if (!decay_ || space_ == nullptr || is_suspended()) { return 0; }
    rmm::detail::device_scope const on_device{device_.value()};
    rmm::detail::capture_exemption const exemption;
    auto const now    = std::chrono::steady_clock::now();
    auto const chunks = rmm::detail::find_free_chunks(
      heap().free_runs(), space_->begin(), space_->chunk_bytes(), std::numeric_limits<std::size_t>::max() / 2);
    idle_bytes_ = std::min(idle_bytes_, total_of(chunks));
    if (now - idle_since_ < *decay_) { return 0; }
    auto const released = idle_bytes_ != 0 ? trim_what_is_fenced(pool_size() - idle_bytes_) : 0;
    idle_since_         = now;
    idle_bytes_         = total_of(chunks) - std::min(total_of(chunks), released);
    return released;
  }

  cuda_device_id device_;
  std::optional<std::size_t> maximum_bytes_;
  std::optional<std::chrono::milliseconds> decay_;
  std::shared_ptr<rmm::detail::byte_budget> budget_;  // of the pool and its parts
  elastic_pool_options options_;
  std::vector<int> access_;                            // devices that can use the memory
  std::unique_ptr<rmm::detail::chunked_space> space_;  // null where there is no virtual memory
  std::optional<cuda_stream> waiting_;                 // for events of memory that leaves
  std::vector<rmm::detail::address_range> leaving_;    // out of the heap, and mapped: the wait on that stream failed
  cuda_memory_resource cuda_;
  detail::suballocator_upstream<cuda_memory_resource> upstream_{&cuda_, device_.value()};
  std::optional<detail::block_source<cuda_memory_resource>> blocks_;  // used where space_ is null
  std::chrono::steady_clock::time_point idle_since_{std::chrono::steady_clock::now()};
  std::size_t idle_bytes_{};                        // whole chunks that were free all the time since then
  std::optional<rmm::detail::saved_memory> saved_;  // while paused
  elastic_pool_memory_resource* whole_{nullptr};    // of which this is a part
  mutable std::atomic<bool> is_exported_{false};
  detail::parts_by_tag<elastic_pool_memory_resource> parts_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
