// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/byte_budget.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/chunked_space.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/saved_memory.hpp>
#include <rmm/detail/cuda/stream.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/placement.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/block_source.hpp>
#include <rmm/mr/detail/failure_reason.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A source that maps chunks of device memory to addresses, of which it reserves far more than the device has memory.
///
/// A chunk is mapped, or spare: unmapped, and kept for the next place that needs one. chunk_bytes() is the smallest size. Memory is
/// leaving if it is out of the heap and still mapped, because the wait for its work or the driver's unmapping failed.
///
/// Invariants:
///  C1  the mapped chunks, which include those that a paused source has dropped, are the heap's blocks and the memory that is leaving
///  C2  the budget counts the mapped and spare chunks of the source and its parts, and limits them to the maximum, in whole chunks. It
///      does not count what paused sources have dropped
///  C3  memory is unmapped only after it has left the heap and its work has ended
class chunk_source final : public memory_source {
 public:
  /// Requires that `device` is current. `options` are those of an elastic pool. Throws logic_error if the device does not support an
  /// option, and bad_alloc if the addresses cannot be reserved.
  template <class Options>
  chunk_source(rmm::detail::stream_ordered_heap& heap, int device, Options const& options)
    : heap_{heap},
      device_{device},
      maximum_bytes_{options.maximum_bytes},
      physical_{options.share_descriptors, options.share_fabric, options.gpu_direct_rdma}
  {
    auto const& physical = physical_;
    if (physical.descriptors || physical.fabric || physical.gpu_direct_rdma) {
      auto const supported = rmm::detail::supported_physical_memory_options(device);
      RMM_EXPECTS(supported.descriptors || !physical.descriptors,
                  "The device cannot export memory as file descriptors: make the pool without share_descriptors");
      RMM_EXPECTS(supported.fabric || !physical.fabric,
                  "The device cannot export memory as fabric handles: make the pool without share_fabric");
      RMM_EXPECTS(supported.gpu_direct_rdma || !physical.gpu_direct_rdma,
                  "The device has no GPUDirect RDMA: make the pool without gpu_direct_rdma");
    }
    auto const unit = rmm::detail::virtual_memory_granularity(device, physical);
    chunk_bytes_    = options.chunk_bytes != 0 ? options.chunk_bytes : unit;
    RMM_EXPECTS(is_pow2(chunk_bytes_) && chunk_bytes_ % unit == 0 && chunk_bytes_ <= largest_chunk,
                "The chunk size is " + rmm::detail::format_bytes(chunk_bytes_) +
                  ", but has to be a power of two from " + rmm::detail::format_bytes(unit) +
                  ", the device's unit, to 1 GiB");
    access_ = options.peer_access ? rmm::detail::devices_with_access_to(device) : std::vector<int>{device};
    // Rounded up to whole chunks, so that one request can have all bytes of the maximum.
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    auto const maximum  = options.maximum_bytes.value_or(most);
    bounds_ =
      rmm::detail::make_counted<bounds>(maximum <= most - chunk_bytes_ ? align_up(maximum, chunk_bytes_) : most);
    reserve_addresses();
  }

  ~chunk_source() override
  {
    rmm::detail::device_scope const on_device{device_};
    heap_.release_blocks(
      [this](void* block, std::size_t bytes) { space_->unmap(reinterpret_cast<std::uintptr_t>(block), bytes); });
    rmm::detail::capture_exemption const exemption;
    if (!try_finish_leaving()) {
      unmap(leaving_);
    }  // a failed wait does not matter: nothing may use the memory any more
    saved_.reset();
    retained_ = {};
    auto& all = bounds_->sources;
    all.erase(std::remove(all.begin(), all.end(), this), all.end());
  }

  [[nodiscard]] std::size_t held() const noexcept override { return space_->held_bytes(); }
  [[nodiscard]] std::size_t held_by_all() const noexcept override { return bounds_->budget.used(); }

  [[nodiscard]] std::optional<std::size_t> maximum() const noexcept override
  {
    return maximum_bytes_ ? std::optional{bounds_->budget.limit()} : std::nullopt;
  }

  void describe(memory_report& report) const override { report.maximum_bytes = maximum(); }

  [[nodiscard]] bool try_take(std::size_t bytes, failure_reason& reason) override
  {
    // In the smallest chunks: the requests are not known yet, so each part has to be movable.
    return try_fill({addresses_.begin, rmm::detail::checked_align_up(bytes, chunk_bytes_)}, chunk_bytes_, true, reason);
  }

  /// Maps free chunks that no work uses to one place, and takes the missing chunks from the device.
  [[nodiscard]] void* grow(std::size_t bytes, cuda_stream_view stream, bool may_remap, failure_reason& reason) override
  {
    return place(bytes, stream, leaving::at_once, may_remap, reason);
  }

  /// As grow(), but also maps free chunks that work still uses, and waits for that work.
  [[nodiscard]] void* remap(std::size_t bytes, cuda_stream_view stream, failure_reason& reason) override
  {
    return place(bytes, stream, leaving::after_a_wait, true, reason);
  }

  [[nodiscard]] bool could_remap_idle(std::size_t bytes, cuda_stream_view stream) override
  {
    if (!rmm::detail::query_capture(stream.value()).is_none()) { return false; }
    auto const empty  = space_->empty_ranges();
    auto const free   = free_runs_for(bytes, empty, true);
    auto const target = find_place(free, empty, bytes, leaving::after_a_wait);
    return target && can_fill(target, free);
  }

  std::size_t trim(std::size_t bytes) override
  {
    auto const size = heap_.block_bytes();
    if (size > bytes) {
      static_cast<void>(try_withdraw(find_unused(size - bytes, false), leaving::after_a_wait));
    } else {
      static_cast<void>(try_finish_leaving());
    }
    return give_back_spare();
  }

  [[nodiscard]] std::size_t unused_bytes(std::size_t bytes, bool with_unfenced) override
  {
    auto const size = heap_.block_bytes();
    return size <= bytes ? 0 : total_of(find_unused(size - bytes, with_unfenced));
  }

  [[nodiscard]] std::size_t idle_bytes() override { return unused_bytes(0, false); }

  void pause(bool keeps_contents, bool pinned) override
  {
    RMM_EXPECTS(!is_exported_,
                "The pool cannot be paused, because its memory was exported and other processes would keep it");
    rmm::detail::device_scope const on_device{device_};
    if (!wait_for_users() || !heap_.wait_for_all()) {
      RMM_EXPECTS(
        rmm::detail::may_wait_for_device(),
        "The pool cannot be paused while a stream captures, because the device cannot be waited for then: end "
        "the capture first");
      rmm::detail::synchronize_device();  // throws the error of the device, if it still fails
      RMM_EXPECTS(wait_for_users() && heap_.wait_for_all(),
                  "The pool cannot be paused: the device cannot be waited for",
                  rmm::cuda_error);
    }
    unmap(leaving_);
    if (keeps_contents) {
      auto live = rmm::detail::without(heap_.blocks(), heap_.free_runs());
      saved_.emplace(std::move(live), pinned, waiting_.value(), std::move(retained_));
    }
    give_back_spare();
    drop();
    is_paused_ = true;
  }

  void resume() override
  {
    rmm::detail::device_scope const on_device{device_};
    rmm::detail::capture_exemption const exemption;
    map_again();
    if (saved_) {
      rmm::detail::scope_guard drop_again{[this]() noexcept { drop(); }};
      saved_->restore(waiting_.value());
      drop_again.dismiss();
      if (retains_) { retained_ = saved_->release(); }
      saved_.reset();
    }
    is_paused_ = false;
  }

  void retain_host_memory(bool on) noexcept override
  {
    retains_ = on;
    if (on) { return; }
    rmm::detail::device_scope const on_device{device_};
    rmm::detail::capture_exemption const exemption;
    retained_ = {};
  }

  [[nodiscard]] void const* kept_contents(void const* ptr, std::size_t bytes) const noexcept override
  {
    return saved_ ? saved_->find(reinterpret_cast<std::uintptr_t>(ptr), bytes) : nullptr;
  }

  [[nodiscard]] rmm::detail::owned_ptr<memory_source> make_part(rmm::detail::stream_ordered_heap& heap) override
  {
    rmm::detail::device_scope const on_device{device_};
    return rmm::detail::owned_ptr<memory_source>{new chunk_source{heap, *this}};
  }

  [[nodiscard]] exported_chunks export_chunks(void const* ptr, std::size_t bytes) override
  {
    auto const offset = reinterpret_cast<std::uintptr_t>(ptr) - addresses_.begin;
    RMM_EXPECTS(contains(ptr) && bytes <= addresses_.bytes - offset,
                "The block of " + std::to_string(bytes) + " bytes does not come from this pool");
    exported_chunks found{offset % chunk_bytes_, {}};
    for (std::size_t at = 0; at < found.offset_bytes + bytes; at += chunk_bytes_) {
      found.memory.push_back(space_->find(reinterpret_cast<std::uintptr_t>(ptr) - found.offset_bytes + at));
      RMM_EXPECTS(found.memory.back() != nullptr,
                  "The block of " + std::to_string(bytes) + " bytes does not come from this pool, or is paused");
    }
    return found;
  }

  void note_export() noexcept override { is_exported_ = true; }

 private:
  using leaving = rmm::detail::leaving;
  using ranges  = std::vector<rmm::detail::address_range>;

  static constexpr std::size_t addresses_per_byte = 8;  // bytes of addresses for each byte of the device's memory
  static constexpr std::size_t most_per_maximum =
    64;  // bytes of addresses for each byte of the pool's maximum, at most
  static constexpr std::size_t growth_fraction     = 128;  // growth takes 1/128 of the pool more than needed ...
  static constexpr std::size_t most_growth_in_hand = std::size_t{256} << 20;  // ... up to this
  static constexpr std::size_t worth_asking        = std::size_t{64}
                                              << 20;  // from here on the device is asked how much it has
  static constexpr std::size_t largest_chunk              = std::size_t{1} << 30;
  static constexpr std::size_t chunks_per_request         = 32;  // at least, where it is large enough
  static constexpr std::size_t chunks_per_request_if_full = 128;
  static constexpr std::size_t largest_new_chunk          = std::size_t{64} << 20;  // unless chunk_bytes is larger
  static constexpr int most_turns                         = 8;

  /// The data that a source shares with its parts.
  struct bounds {
    explicit bounds(std::size_t limit) noexcept : budget{limit} {}
    rmm::detail::byte_budget budget;
    std::vector<chunk_source*> sources{};  // the first is the whole, the others are its parts
  };

  /// Makes a part of `whole`.
  chunk_source(rmm::detail::stream_ordered_heap& heap, chunk_source const& whole)
    : heap_{heap},
      device_{whole.device_},
      maximum_bytes_{whole.maximum_bytes_},
      physical_{whole.physical_},
      access_{whole.access_},
      bounds_{whole.bounds_},
      retains_{whole.retains_}
  {
    chunk_bytes_ = whole.chunk_bytes_;
    reserve_addresses();
  }

  /// Reserves the addresses. Halves their number until the driver has as many.
  void reserve_addresses()
  {
    auto const total   = align_up(available_device_memory().second, chunk_bytes_);
    auto const maximum = align_up(std::min(maximum_bytes_.value_or(total), total), chunk_bytes_);
    for (auto bytes = std::min(total * addresses_per_byte, maximum * most_per_maximum); space_ == nullptr; bytes /= 2) {
      bytes      = std::max(align_down(bytes, chunk_bytes_), maximum);
      addresses_ = {0, bytes + chunk_bytes_};
      try {
        space_ = rmm::detail::make_owned<rmm::detail::chunked_space>(
          device_, addresses_.bytes, chunk_bytes_, physical_, access_);
      } catch (rmm::bad_alloc const&) {
        if (bytes == maximum) { throw; }
      }
    }
    addresses_.begin = space_->begin();
    bounds_->sources.push_back(this);
  }

  /// Waits for all devices of the process that can access the memory. Returns false if a wait fails.
  [[nodiscard]] bool wait_for_users() const noexcept
  {
    for (int const device : access_) {
      if (!rmm::detail::may_have_context(device)) { continue; }
      rmm::detail::device_scope const on_device{device};
      if (!rmm::detail::try_wait_for_device()) { return false; }
    }
    return true;
  }

  /// Fills the place that lacks the fewest chunks, and allocates from it. Tries again if another thread has allocated from the place.
  [[nodiscard]] void* place(
    std::size_t bytes, cuda_stream_view stream, leaving when, bool may_remap, failure_reason& reason)
  {
    rmm::detail::capture_exemption const exemption;
    // A stream that captures can only have memory that no work uses. Newly mapped chunks are such memory.
    bool const captures = !rmm::detail::query_capture(stream.value()).is_none();
    static_cast<void>(try_finish_leaving());
    for (int turn = 0; turn != most_turns; ++turn) {
      auto const empty  = space_->empty_ranges();
      auto const free   = free_runs_for(bytes, empty, false);
      auto const usable = captures ? ranges{} : free;
      auto const target = find_place(usable, empty, bytes, when);
      if (!target) {
        reason = "no " + rmm::detail::format_bytes(bytes) + " of the pool's addresses are free in one piece";
        return nullptr;
      }
      while (target.missing_bytes > space_->spare_bytes() && !gather(free, target, when)) {
        auto const rest = uncovered(target, find_all_chunks(free, target));
        if (when == leaving::after_a_wait && others_give(rest, rest) != 0) { continue; }
        bool const lacks_leaving = !leaving_.empty() && can_take(rest - std::min(rest, total_of(leaving_)));
        reason = lacks_leaving ? "free memory cannot be unmapped, or the work that used it cannot be waited for"
                               : shortage(rest);
        give_back_spare();
        return nullptr;
      }
      bool const may_take_more = when == leaving::at_once && turn == 0;
      if (target.missing_bytes == 0 || fill_place(target.where, may_take_more, reason)) {
        if (void* const ptr = heap_.try_allocate(bytes, stream)) {
          give_back_spare();
          return ptr;
        }
      } else if (when == leaving::at_once) {
        if (!may_remap) { give_back_spare(); }  // else remap() will use the spare chunks
        return nullptr;
      }
    }
    give_back_spare();
    return nullptr;
  }

  /// Returns the place that lacks the fewest chunks. If the pool cannot fill that one, returns the place that takes the fewest. The
  /// device is asked what it has only if a wait is allowed, too.
  [[nodiscard]] rmm::detail::placement find_place(ranges const& free,
                                                  ranges const& empty,
                                                  std::size_t bytes,
                                                  leaving when) const
  {
    auto const found = rmm::detail::find_placement(free, empty, bytes, chunk_bytes_);
    if (!found) { return found; }
    bool const fits = when == leaving::at_once ? is_within_maximum(found.missing_bytes) ||
                                                   is_within_maximum(uncovered(found, find_chunks(free, found)))
                                               : can_fill(found, free);
    if (fits) { return found; }
    constexpr auto all = std::numeric_limits<std::size_t>::max() / 2;
    return rmm::detail::find_densest_placement(free, empty, find_chunks(free, all, {}), bytes, chunk_bytes_);
  }

  /// Whether free chunks, spare ones, and what the pool can still take, are as much as a place lacks.
  [[nodiscard]] bool can_fill(rmm::detail::placement const& target, ranges const& free) const
  {
    return find_enough_chunks(free, target, false).has_value();
  }

  /// Gives the mapped memory back to the device until map_again().
  void drop() noexcept
  {
    auto const before = held();
    space_->drop();
    bounds_->budget.release(before - held());
    unmap(leaving_);  // memory that was leaving does not come back
  }

  /// Maps memory to the addresses of a paused source, if necessary after the other sources have given unused memory back.
  void map_again()
  {
    for (;;) {
      auto bytes = space_->dropped_bytes();
      std::exception_ptr refusal;  // of the device
      if (bounds_->budget.try_reserve(bytes)) {
        auto const before = held();
        rmm::detail::scope_guard settle{[&]() noexcept { bounds_->budget.release(before + bytes - held()); }};
        try {
          return space_->restore();
        } catch (rmm::out_of_memory const&) {
          refusal = std::current_exception();
        }
      }
      bytes                = space_->dropped_bytes();  // fewer if restore() left chunks mapped
      auto const available = most_to_take();
      // If nothing is lacking, the device has refused what it seems to have.
      auto const lacking = available < bytes ? bytes - available : bytes;
      if (others_give(bytes, lacking) != 0) { continue; }
      if (refusal) { std::rethrow_exception(refusal); }
      RMM_FAIL("The pool cannot be resumed, because its " + rmm::detail::format_bytes(bytes) +
                 " do not fit: " + shortage(bytes),
               rmm::out_of_memory);
    }
  }

  /// Makes the other sources with the same maximum give back up to `most` bytes of free memory, so that `bytes` bytes can be taken. Waits
  /// for the work that uses that memory. Returns the bytes given back; 0, and gives nothing back, if all free memory would not be enough.
  std::size_t others_give(std::size_t bytes, std::size_t most)
  {
    constexpr auto all = std::numeric_limits<std::size_t>::max() / 2;
    std::size_t unused{};
    for_each_other(
      [&](chunk_source& other) { unused += total_of(other.find_unused(all, true)) + total_of(other.leaving_); });
    if (!can_take(bytes - std::min(bytes, unused))) { return 0; }
    std::size_t given{};
    for_each_other([&](chunk_source& other) {
      auto const size = other.heap_.block_bytes();
      if (given < most) { given += trim_as_far_as_possible(other, other.heap_, size - std::min(size, most - given)); }
    });
    return given;
  }

  /// Calls visit(source) for each other source with the same maximum that is not paused.
  template <class Visit>
  void for_each_other(Visit&& visit)
  {
    for (auto* const other : bounds_->sources) {
      if (other != this && !other->is_paused_) { visit(*other); }
    }
  }

  /// Returns free chunks of `bytes` together, or all if they are fewer.
  [[nodiscard]] ranges find_unused(std::size_t bytes, bool with_unfenced)
  {
    return find_chunks(heap_.free_runs({chunk_bytes_, nullptr, with_unfenced}), bytes, {});
  }

  /// Returns free chunks outside of the place, as many as it lacks, or all if they are fewer.
  [[nodiscard]] ranges find_chunks(ranges const& free, rmm::detail::placement const& target) const
  {
    return find_chunks(free, uncovered(target, {}), target.where);
  }

  /// As find_chunks(), with the chunks that the place cuts. They can be mapped again where the place lacks memory, and more of them
  /// lies in it then.
  [[nodiscard]] ranges find_all_chunks(ranges const& free, rmm::detail::placement const& target) const
  {
    return rmm::detail::merged(find_chunks(free, target), find_cut_chunks(free, target.where));
  }

  /// Returns such chunks, if the pool can take what they leave of the place; those that the place cuts only if it needs them.
  /// `may_be_none`: whether it is enough that there are none outside of the place.
  [[nodiscard]] std::optional<ranges> find_enough_chunks(ranges const& free,
                                                         rmm::detail::placement const& target,
                                                         bool may_be_none) const
  {
    auto chunks = find_chunks(free, target);
    if ((may_be_none && chunks.empty()) || can_take(uncovered(target, chunks))) { return chunks; }
    auto const cut = find_cut_chunks(free, target.where);
    if (cut.empty()) { return std::nullopt; }
    chunks = rmm::detail::merged(chunks, cut);
    if (!can_take(uncovered(target, chunks))) { return std::nullopt; }
    return chunks;
  }

  /// Returns the free chunks of which one part lies in the units of the place, and one outside.
  [[nodiscard]] ranges find_cut_chunks(ranges const& free, rmm::detail::address_range where) const
  {
    auto const units = units_of(where);
    ranges cut;
    for (auto const range : free) {
      if (range.end() <= units.begin || units.end() <= range.begin) { continue; }
      space_->visit_chunks_down(range, [&](rmm::detail::address_range chunk) {
        auto const shared = rmm::detail::shared_part(chunk, units).bytes;
        if (shared != 0 && shared != chunk.bytes) { cut.push_back(chunk); }
        return true;
      });
    }
    std::sort(cut.begin(), cut.end(), [](auto left, auto right) { return left.begin < right.begin; });
    return cut;
  }

  /// Returns the units, of chunk_bytes_ each, that a place touches.
  [[nodiscard]] rmm::detail::address_range units_of(rmm::detail::address_range where) const noexcept
  {
    auto const begin = addresses_.begin + (where.begin - addresses_.begin) / chunk_bytes_ * chunk_bytes_;
    return {begin, align_up(where.end() - begin, chunk_bytes_)};
  }

  [[nodiscard]] ranges find_chunks(ranges const& free, std::size_t bytes, rmm::detail::address_range keep) const
  {
    auto const visit_chunks_down = [&](rmm::detail::address_range range, auto&& visit) {
      space_->visit_chunks_down(range, visit);
    };
    return rmm::detail::find_free_chunks(free, bytes, chunk_bytes_, visit_chunks_down, keep);
  }

  /// Returns the size of new chunks for a request. The driver takes as long for a large chunk as for a small one, but a chunk cannot
  /// move while one byte of it is in use. So the chunks are small beside the block that they are made for, and smaller if the pool will
  /// hold more than half of its maximum: then it will have to move chunks.
  [[nodiscard]] std::size_t largest_chunk_for(std::size_t bytes) const noexcept
  {
    if (physical_.descriptors || physical_.fabric) { return chunk_bytes_; }  // exported_chunks have one size
    auto const& budget      = bounds_->budget;
    bool const will_be_full = maximum_bytes_ && budget.used() + bytes > budget.limit() / 2;
    auto const chunks       = will_be_full ? chunks_per_request_if_full : chunks_per_request;
    auto size               = chunk_bytes_;
    while (size < largest_new_chunk && 2 * size <= bytes / chunks) { size *= 2; }
    return size;
  }

  /// Returns the bytes of a place that neither spare chunks nor `chunks` can fill. Without `chunks` the place lacks the units that it has
  /// of them.
  [[nodiscard]] std::size_t uncovered(rmm::detail::placement const& target, ranges const& chunks) const noexcept
  {
    auto missing = target.missing_bytes;
    for (auto const range : chunks) { missing += rmm::detail::shared_part(range, units_of(target.where)).bytes; }
    return missing - std::min(missing, space_->spare_bytes() + total_of(chunks));
  }

  /// Whether the maximum allows so many bytes more.
  [[nodiscard]] bool is_within_maximum(std::size_t bytes) const noexcept
  {
    return bytes <= bounds_->budget.limit() - bounds_->budget.used();
  }

  /// Whether the maximum allows so many bytes more, and the device has them.
  [[nodiscard]] bool can_take(std::size_t bytes) const
  {
    return is_within_maximum(bytes) && (bytes == 0 || bytes <= most_to_take());
  }

  /// The bytes that the maximum allows and the device has.
  [[nodiscard]] std::size_t most_to_take() const
  {
    auto const allowed = bounds_->budget.limit() - bounds_->budget.used();
    try {
      return std::min(allowed, free_on_device());
    } catch (cuda_error const&) {  // the device decides when memory is taken
      return allowed;
    }
  }

  /// Unmaps free chunks to fill a place, as far as `when` allows. Returns false, and unmaps none, if a wait fails, or if the chunks are
  /// too few and the rest cannot be taken.
  [[nodiscard]] bool gather(ranges const& free, rmm::detail::placement const& target, leaving when)
  {
    // Without chunks there is nothing to unmap, so the driver may refuse the missing memory later.
    auto const chunks = find_enough_chunks(free, target, when == leaving::at_once);
    return chunks && try_withdraw(*chunks, when);
  }

  /// Maps chunks to the parts of a place that have none.
  [[nodiscard]] bool fill_place(rmm::detail::address_range where, bool may_take_more, failure_reason& reason)
  {
    auto const largest = largest_chunk_for(where.bytes);
    auto const units   = units_of(where);
    for (auto const range : space_->empty_ranges()) {
      auto const part = rmm::detail::shared_part(range, units);
      auto const last = part.end();
      if (part.bytes == 0) { continue; }
      if (!try_fill(part, largest, true, reason)) { return false; }
      if (!may_take_more || last != units.end()) { continue; }
      auto const most = align_down(std::min(heap_.block_bytes() / growth_fraction, most_growth_in_hand), chunk_bytes_);
      auto const more = std::min(most, range.end() - last);
      failure_reason ignored;
      if (more != 0 && space_->spare_bytes() == 0) {
        static_cast<void>(try_fill({last, more}, largest_chunk_for(more), false, ignored));
      }
    }
    return true;
  }

  /// Maps chunks to empty addresses and gives them to the heap. Returns false, and sets `reason` if they are `needed`, on failure.
  [[nodiscard]] bool try_fill(rmm::detail::address_range range,
                              std::size_t largest,
                              bool needed,
                              failure_reason& reason)
  {
    auto const fresh = range.bytes - std::min(range.bytes, space_->spare_bytes());
    if (!bounds_->budget.try_reserve(fresh)) {
      if (needed) { reason = shortage(fresh); }
      return false;
    }
    auto const before = held();
    rmm::detail::scope_guard settle{[&]() noexcept { bounds_->budget.release(before + fresh - held()); }};
    if (fresh >= worth_asking &&
        fresh > free_on_device()) {  // so that the pool does not take all memory before it fails
      rmm::detail::expect_usable_device(fresh);
      if (needed) { reason = shortage(fresh); }
      return false;
    }
    auto const mapped = space_->mapped_bytes();
    rmm::detail::scope_guard note_leaving{[&]() noexcept {
      if (auto const left = space_->mapped_bytes() - mapped; left != 0) { leaving_.push_back({range.begin, left}); }
    }};
    try {
      leaving_.reserve(leaving_.size() + 1);
      space_->map(range.begin, range.bytes, largest);
    } catch (rmm::detail::shareable_memory_refused const&) {
      rmm::detail::expect_usable_device(fresh);
      if (needed) { throw; }  // not missing memory: no other rung helps
      return false;
    } catch (std::bad_alloc const& e) {
      rmm::detail::expect_usable_device(fresh);
      if (needed) { reason = failure_reason::from_current(e); }
      return false;
    }
    try {
      heap_.extend(range);
    } catch (std::bad_alloc const&) {
      space_->unmap(range.begin, range.bytes);
      reason = "host memory ran out when the pool recorded mapped chunks";
      return false;
    }
    note_leaving.dismiss();
    return true;
  }

  /// Takes free chunks out of the heap and makes them spare. Returns false, and makes none spare, if a wait for their work, or for memory
  /// that is leaving, fails.
  [[nodiscard]] bool try_withdraw(ranges const& chunks, leaving when)
  {
    bool const waits = when != leaving::at_once;
    if (waits && !try_finish_leaving()) { return false; }
    leaving_.reserve(leaving_.size() + chunks.size());
    auto gone = heap_.withdraw(chunks, when, waiting_);
    if (!waits) { unmap(gone); }
    leaving_.insert(leaving_.end(), gone.begin(), gone.end());
    return !waits || try_finish_leaving();
  }

  /// Waits for the work of the memory that is leaving, and makes its chunks spare, unless the driver does not unmap them. Returns false if
  /// the wait fails.
  [[nodiscard]] bool try_finish_leaving() noexcept
  {
    if (leaving_.empty()) { return true; }
    if (!rmm::detail::try_synchronize_stream(waiting_.value())) { return false; }
    unmap(leaving_);
    return true;
  }

  /// Makes the chunks of ranges spare that have left the heap and that no work uses. The ranges that the driver does not unmap stay in
  /// `gone`.
  void unmap(ranges& gone) noexcept
  {
    auto const before      = held();
    auto const is_unmapped = [this](auto const range) { return space_->unmap(range.begin, range.bytes); };
    gone.erase(std::remove_if(gone.begin(), gone.end(), is_unmapped), gone.end());
    bounds_->budget.release(before - held());  // chunks that could not be kept as spare ones
  }

  std::size_t give_back_spare() noexcept
  {
    RMM_ASSERT(heap_.block_bytes() + total_of(leaving_) == space_->mapped_bytes());  // C1; each change ends here
    auto const bytes = space_->release_spare();
    bounds_->budget.release(bytes);
    return bytes;
  }

  [[nodiscard]] std::size_t free_on_device() const
  {
    rmm::detail::device_scope const on_device{device_};
    return available_device_memory().first;
  }

  /// Says why the source cannot take so many bytes more: the maximum, or else the device.
  [[nodiscard]] std::string shortage(std::size_t bytes) const
  {
    auto const bound = is_within_maximum(bytes)
                         ? "the device has less than " + rmm::detail::format_bytes(bytes) + " left"
                         : "the pool holds " +
                             rmm::detail::format_bytes(bounds_->budget.used() - space_->spare_bytes()) +
                             " of at most " + rmm::detail::format_bytes(bounds_->budget.limit());
    return bound + ", and the free memory of the pool has too few whole chunks";
  }

  /// Returns the free runs that can be part of a place for `bytes` bytes, or that have whole chunks. Leaves out the others, of which there
  /// can be very many.
  [[nodiscard]] ranges free_runs_for(std::size_t bytes, ranges const& empty, bool with_unfenced)
  {
    std::vector<std::uintptr_t> edges;
    edges.reserve(2 * empty.size());
    for (auto const range : empty) {
      edges.push_back(range.begin);
      edges.push_back(range.end());
    }
    return heap_.free_runs({std::min(bytes, chunk_bytes_), &edges, with_unfenced});
  }

  rmm::detail::stream_ordered_heap& heap_;
  int device_;
  std::optional<std::size_t> maximum_bytes_;
  rmm::detail::physical_memory_options physical_;
  std::vector<int> access_;                  // devices that can use the memory
  rmm::detail::counted_ptr<bounds> bounds_;  // shared with the parts
  rmm::detail::owned_ptr<rmm::detail::chunked_space> space_;
  cuda_stream waiting_{cuda_stream::flags::non_blocking};  // waits for the events of memory that leaves the heap
  ranges leaving_;  // out of the heap, but mapped: a wait on waiting_, or the unmapping, failed
  std::optional<rmm::detail::saved_memory> saved_;  // while paused
  rmm::detail::host_block retained_;                // for the next pause
  bool retains_{false};
  bool is_paused_{false};
  bool is_exported_{false};
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
