// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Free memory in no cache: of one stream, or, without a stream, of all.
///
/// What is in `ranges` is stamped with the number of a ticket: an event recorded on the stream after the memory was freed.
/// Another stream may have it once it waits for that event, or once the event is reached. `unmarked` memory has no event;
/// it is for its stream alone, until that stream is marked or the device was synchronised.
///
/// Invariants:
///  F1  tickets are in the order of their numbers; memory with a stamp below that of the first may be used by all
///  F2  no stamp is above the number of the last ticket that there was
///  F3  the event of a ticket was recorded after the events of all tickets below it: a wait for one is a wait for all of them
///
/// Guarded by the lock of the heap that it belongs to, and a template for the same reason.
template <class Unused>
class basic_free_store {
 public:
  /// `identity` is that of the stream, and `device` its device. An identity of 0 stands for memory that no stream is known of:
  /// all may have it, after the tickets if there are any.
  explicit basic_free_store(std::uint64_t identity, int device = -1) noexcept : identity_{identity}, device_{device} {}

  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] range_set& ranges() noexcept { return ranges_; }
  [[nodiscard]] range_set const& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::vector<address_range>& unmarked() noexcept { return unmarked_; }
  [[nodiscard]] std::vector<address_range> const& unmarked() const noexcept { return unmarked_; }

  /// Adds memory without an event. False if the host has no memory to note it.
  [[nodiscard]] bool try_add_unmarked(address_range range) noexcept
  {
    try {
      unmarked_.push_back(range);
    } catch (std::exception const&) {
      return false;
    }
    return true;
  }

  [[nodiscard]] bool is_empty() const noexcept { return ranges_.empty() && unmarked_.empty(); }

  /// The stamp of what is covered by the newest ticket.
  [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }

  /// Gets room for `more` ranges. Returns whether there is.
  [[nodiscard]] bool try_make_room(std::size_t more) noexcept { return ranges_.try_reserve(ranges_.count() + more); }

  /// Adds a ticket, whose event was recorded on this store's stream after those of all tickets before. False, and the event
  /// stays with the caller, if the host has no memory for that.
  [[nodiscard]] bool try_add_ticket(owned_event& event) noexcept
  {
    try {
      tickets_.emplace_back(newest_ + 1, std::move(event));  // moves the event once there is memory for the ticket
    } catch (std::exception const&) {
      return false;
    }
    ++newest_;
    return true;
  }

  /// Makes later work of `stream` wait until memory with this stamp is free. Returns whether it does. Waits for one event at
  /// most, by F3.
  [[nodiscard]] bool try_make_wait(cudaStream_t stream, std::uint64_t stamp) const noexcept
  {
    auto const first = std::lower_bound(
      oldest(), tickets_.end(), stamp, [](ticket const& each, std::uint64_t at) { return each.number < at; });
    return stamp <= reached() || (first != tickets_.end() && first->event.try_make_wait(stream));
  }

  /// Notes that the caller needs memory with this stamp, for try_make_noted_wait().
  void note_wait(std::uint64_t stamp) noexcept
  {
    noted_stamp_ = std::max(noted_stamp_, stamp);
    wait_noted_  = true;
  }

  /// Makes later work of `stream` wait for all memory that was noted since the last call, for one event at most. Returns whether
  /// it does; true if there is nothing to wait for. `may_wait`: whether the stream may.
  [[nodiscard]] bool try_make_noted_wait(cudaStream_t stream, bool may_wait) noexcept
  {
    auto const stamp = std::exchange(noted_stamp_, 0);
    if (!std::exchange(wait_noted_, false) || stamp <= reached()) { return true; }
    return may_wait && try_make_wait(stream, stamp);
  }

  /// Asks the oldest event whether it is reached. If it is, forgets its ticket, into `spare` if there is place, and returns
  /// true.
  [[nodiscard]] bool poll(std::vector<owned_event>& spare) noexcept
  {
    if (!has_tickets() || !oldest()->event.is_reached()) { return false; }
    drop_first_ticket(spare);
    return true;
  }

  /// Waits on the host for all events.
  void synchronize() const noexcept
  {
    if (has_tickets()) { tickets_.back().event.synchronize_no_throw(); }
  }

  /// The device was synchronised: all events are reached.
  void all_reached(std::vector<owned_event>& spare) noexcept
  {
    while (has_tickets()) { drop_first_ticket(spare); }
  }

  [[nodiscard]] bool has_tickets() const noexcept { return !tickets_.empty(); }

  /// The highest stamp whose memory is free for all.
  [[nodiscard]] std::uint64_t reached() const noexcept { return has_tickets() ? oldest()->number - 1 : newest_; }

 private:
  struct ticket {
    ticket(std::uint64_t which, owned_event&& recorded) noexcept : number{which}, event{std::move(recorded)} {}

    std::uint64_t number;
    owned_event event;
  };

  [[nodiscard]] typename std::vector<ticket>::const_iterator oldest() const noexcept
  {
    return tickets_.begin() + static_cast<std::ptrdiff_t>(dropped_);
  }

  void drop_first_ticket(std::vector<owned_event>& spare) noexcept
  {
    owned_event event{std::move(tickets_[dropped_].event)};
    if (spare.size() < spare.capacity()) { spare.push_back(std::move(event)); }
    ++dropped_;
    if (2 * dropped_ < tickets_.size()) { return; }  // moves each ticket once for each that is dropped, at most
    tickets_.erase(tickets_.begin(), oldest());
    dropped_ = 0;
  }

  std::uint64_t identity_;
  int device_;
  std::uint64_t newest_{};
  std::uint64_t noted_stamp_{};
  bool wait_noted_{false};
  range_set ranges_;
  std::vector<address_range> unmarked_;
  std::vector<ticket>
    tickets_;              // behind the dropped ones; a queue, where std::deque is 2,200 lines more for who includes it
  std::size_t dropped_{};  // at the beginning of tickets_, and without an event; never all of them
};

using free_store = basic_free_store<void>;

}  // namespace detail
}  // namespace RMM_NAMESPACE
