// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The free memory of one stream that lies in no cache; the idle store has no stream, and its memory is for all.
///
/// Each range has an epoch: the number of a fence, an event that the stream recorded after the free. Another stream may have the range
/// after a wait for that event, or when the event is reached. `unfenced` memory has no event. Only its own stream may have it, until a
/// fence is recorded or the device was synchronised.
///
/// Invariants:
///  F1  fences have ascending numbers without a gap, up to newest(); any stream may use memory with an epoch below that of the first
///  F2  no epoch is above newest(), except in the idle store; nor is least_epoch_
///  F3  the event of a fence was recorded after the events of all fences below it that are not reached: a wait for one is a wait for all of
///      them
///  F4  fewer than half of the fences that are noted are dropped ones
///  F5  no unfenced range is empty
///
/// Guarded by the lock of its heap. A template only so that translation units that make no heap do not compile its members.
template <class Unused>
class basic_free_store {
 public:
  /// `identity` and `device` are those of the stream. The identity 0 is for the idle store.
  explicit basic_free_store(std::uint64_t identity, int device = -1) noexcept : identity_{identity}, device_{device} {}

  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] range_set& ranges() noexcept { return ranges_; }
  [[nodiscard]] range_set const& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::vector<address_range>& unfenced() noexcept { return unfenced_; }
  [[nodiscard]] std::vector<address_range> const& unfenced() const noexcept { return unfenced_; }

  /// Adds memory without an event. Returns false if host memory runs out.
  [[nodiscard]] bool try_add_unfenced(address_range range) noexcept
  {
    RMM_ASSERT(range.bytes != 0);
    try {
      unfenced_.push_back(range);
    } catch (std::exception const&) {
      return false;
    }
    return true;
  }

  /// Takes all ranges of a set that has more of them than this store. All ranges of the store get the epoch of the newest fence. Returns
  /// false, and changes nothing, if host memory runs out. O(ranges of this store).
  [[nodiscard]] bool try_take_all_of(range_set& larger, seam_list const* seams) noexcept
  {
    if (!larger.try_reserve(larger.count() + ranges_.count())) { return false; }
    ranges_.take_all_of(larger, seams);
    least_epoch_ = newest_;
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_free_store>(ranges_.count() + fences_.size()) || check_invariants());
    return true;
  }

  /// Returns the epoch of a range that has the epoch `noted` in the set.
  [[nodiscard]] std::uint64_t epoch_of(std::uint64_t noted) const noexcept { return detail::max(noted, least_epoch_); }

  /// The position at which range_set::for_some() continues.
  [[nodiscard]] std::size_t& next_looked_at() noexcept { return next_looked_at_; }

  [[nodiscard]] bool is_empty() const noexcept { return ranges_.empty() && unfenced_.empty(); }
  [[nodiscard]] bool is_unused() const noexcept { return is_empty() && !has_fences(); }

  /// Whether the store has little host memory.
  [[nodiscard]] bool is_small() const noexcept
  {
    return detail::max(ranges_.capacity(), detail::max(unfenced_.capacity(), fences_.capacity())) <= most_in_small;
  }

  /// Returns the number of the newest fence.
  [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }

  /// Gets room for `more` ranges. Returns false if host memory runs out.
  [[nodiscard]] bool try_make_room(std::size_t more) noexcept { return ranges_.try_reserve(ranges_.count() + more); }

  /// Whether an event that the owner of `cache` has recorded on this store's stream without the lock can be the next fence (F3). That is
  /// so if the newest fence is also from that cache: then its owner added it in an earlier call.
  [[nodiscard]] bool can_follow(void const* cache) const noexcept { return !has_fences() || newest_is_from_ == cache; }

  /// Adds a fence. Its event was recorded on this store's stream as F3 demands. Returns false, and leaves the
  /// event with the caller, if host memory runs out. `from`: the cache whose owner calls it, for can_follow(); it is only compared.
  [[nodiscard]] bool try_add_fence(owned_event& event, void const* from = nullptr) noexcept
  {
    try {
      fences_.emplace_back(newest_ + 1, std::move(event));  // moves the event once there is memory for the fence
    } catch (std::exception const&) {
      return false;
    }
    ++newest_;
    newest_is_from_ = from;
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_free_store>(ranges_.count() + fences_.size()) || check_invariants());
    return true;
  }

  /// Makes later work of `stream` wait until memory with this epoch is free, for one event at most (F3). Returns whether that succeeded.
  [[nodiscard]] bool try_make_wait(cudaStream_t stream, std::uint64_t epoch) const noexcept
  {
    RMM_ASSERT(identity_ == 0 || epoch <= newest_);  // F2
    auto const first = detail::lower_bound(
      oldest(), fences_.end(), epoch, [](fence const& each, std::uint64_t at) { return each.number < at; });
    RMM_ASSERT(epoch <= reached() || first->number == epoch);  // F1
    return epoch <= reached() || (first != fences_.end() && first->event.try_make_wait(stream));
  }

  /// Notes that the caller needs memory with this epoch, for try_make_noted_wait().
  void note_wait(std::uint64_t epoch) noexcept
  {
    RMM_ASSERT(identity_ == 0 || epoch <= newest_);  // F2
    noted_epoch_ = detail::max(noted_epoch_, epoch);
    wait_noted_  = true;
    RMM_ASSERT(noted_epoch_ >= epoch);
  }

  /// Makes later work of `stream` wait for all memory that was noted since the last call, for one event at most. Returns whether that
  /// succeeded; true if there is nothing to wait for. `may_wait`: whether the stream may wait for events.
  [[nodiscard]] bool try_make_noted_wait(cudaStream_t stream, bool may_wait) noexcept
  {
    auto const epoch = std::exchange(noted_epoch_, 0);
    if (!std::exchange(wait_noted_, false) || epoch <= reached()) { return true; }
    return may_wait && try_make_wait(stream, epoch);
  }

  /// Returns whether the oldest event is reached. If so, removes its fence, and moves the event to `spare` if there is place.
  [[nodiscard]] bool poll(std::vector<owned_event>& spare) noexcept
  {
    if (!has_fences() || !oldest()->event.is_reached()) { return false; }
    [[maybe_unused]] auto const before = reached();
    drop_first_fence(spare);
    RMM_ASSERT(reached() == before + 1);
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_free_store>(ranges_.count() + fences_.size()) || check_invariants());
    return true;
  }

  /// Waits on the host for all events.
  void synchronize() const noexcept
  {
    if (has_fences()) { fences_.back().event.synchronize_no_throw(); }
  }

  /// Returns whether the newest event is reached. If so, removes all fences (F3), as poll() removes one. Requires has_fences().
  [[nodiscard]] bool poll_newest(std::vector<owned_event>& spare) noexcept
  {
    RMM_ASSERT(has_fences());
    if (!fences_.back().event.is_reached()) { return false; }
    all_reached(spare);
    return true;
  }

  /// Removes all fences, after the device was synchronised or the newest event was found reached.
  void all_reached(std::vector<owned_event>& spare) noexcept
  {
    while (has_fences()) { drop_first_fence(spare); }
    RMM_ASSERT(reached() == newest_);
    RMM_ASSERT_EXPENSIVE(!is_check_due<basic_free_store>(ranges_.count() + fences_.size()) || check_invariants());
  }

  [[nodiscard]] bool has_fences() const noexcept { return !fences_.empty(); }
  [[nodiscard]] bool has_many_fences() const noexcept { return fences_.size() - dropped_ >= many_fences; }

  /// Returns the highest epoch whose memory any stream may use.
  [[nodiscard]] std::uint64_t reached() const noexcept { return has_fences() ? oldest()->number - 1 : newest_; }

  /// Whether F1, F2, F4 and F5 hold; O(ranges + fences). F3 is for the simulator to check.
  [[nodiscard]] bool check_invariants() const noexcept
  {
    bool good   = dropped_ == 0 || 2 * dropped_ < fences_.size();  // F4
    auto number = newest_;
    for (auto at = fences_.size(); good && at-- > dropped_; --number) { good = fences_[at].number == number; }  // F1
    ranges_.for_each(
      [&](address_range, std::uint64_t epoch) { good = good && (identity_ == 0 || epoch <= newest_); });  // F2
    return good && noted_epoch_ <= newest_ && least_epoch_ <= newest_ &&
           detail::all_of(
             unfenced_.begin(), unfenced_.end(), [](auto const& range) { return range.bytes != 0; });  // F5
  }

 private:
  static constexpr std::size_t many_fences   = 8;
  static constexpr std::size_t most_in_small = 256;

  struct fence {
    fence(std::uint64_t which, owned_event&& recorded) noexcept : number{which}, event{std::move(recorded)} {}

    std::uint64_t number;
    owned_event event;
  };

  [[nodiscard]] typename std::vector<fence>::const_iterator oldest() const noexcept
  {
    return fences_.begin() + static_cast<std::ptrdiff_t>(dropped_);
  }

  void drop_first_fence(std::vector<owned_event>& spare) noexcept
  {
    RMM_ASSERT(dropped_ < fences_.size());
    owned_event event{std::move(fences_[dropped_].event)};
    if (spare.size() < spare.capacity()) { spare.push_back(std::move(event)); }
    ++dropped_;
    if (2 * dropped_ < fences_.size()) { return; }  // moves each fence once for each that is dropped, at most
    fences_.erase(fences_.begin(), oldest());
    dropped_ = 0;
  }

  std::uint64_t identity_;
  int device_;
  range_set ranges_;
  std::uint64_t newest_{};
  void const* newest_is_from_{};
  std::uint64_t least_epoch_{};  // no range has a lower epoch, whatever is noted in the set
  std::vector<fence> fences_;    // a queue behind the dropped fences; std::deque would add 2,200 lines to the header
  std::size_t dropped_{};        // at the beginning of fences_, and without an event; never all of them
  std::vector<address_range> unfenced_;
  std::uint64_t noted_epoch_{};
  bool wait_noted_{false};
  std::size_t next_looked_at_{};
};

using free_store = basic_free_store<void>;
RMM_COMPILED_ONCE(basic_free_store<void>);

}  // namespace detail
}  // namespace RMM_NAMESPACE
