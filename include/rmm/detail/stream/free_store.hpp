// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
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
///  F3  `ranges` has room for as many more as `claims` says, if that is positive: blocks that are cut from it come back
///
/// Guarded by the lock of the heap that it belongs to.
class free_store {
 public:
  /// `identity` is that of the stream; 0 for memory that all streams may have. Throws std::bad_alloc.
  explicit free_store(std::uint64_t identity) : identity_{identity} {}

  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  [[nodiscard]] range_set& ranges() noexcept { return ranges_; }
  [[nodiscard]] range_set const& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::vector<address_range>& unmarked() noexcept { return unmarked_; }
  [[nodiscard]] std::vector<address_range> const& unmarked() const noexcept { return unmarked_; }
  [[nodiscard]] bool is_empty() const noexcept { return ranges_.empty() && unmarked_.empty(); }

  /// The stamp of what is covered by the newest ticket.
  [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }

  /// Gets room for `more` ranges beside those that F3 keeps room for. Returns whether there is.
  [[nodiscard]] bool try_make_room(std::size_t more) noexcept
  {
    auto const claimed = claims_ > 0 ? static_cast<std::size_t>(claims_) : 0;
    return ranges_.try_reserve(ranges_.count() + claimed + more);
  }

  /// A block that is given out will come back here. False if the host has no memory for that.
  [[nodiscard]] bool try_claim() noexcept
  {
    if (!try_make_room(1)) { return false; }
    ++claims_;
    return true;
  }

  /// The claims of a cache whose memory this store takes over, or of a block that comes back.
  void add_claims(std::int64_t claims) noexcept { claims_ += claims; }
  [[nodiscard]] std::int64_t claims() const noexcept { return claims_; }

  /// Adds a ticket, whose event was recorded on this store's stream. False, and the event stays with the caller, if the host
  /// has no memory for that.
  [[nodiscard]] bool try_add_ticket(owned_event& event) noexcept
  {
    try {
      tickets_.emplace_back();
    } catch (std::exception const&) {
      return false;
    }
    tickets_.back().number = ++newest_;
    tickets_.back().event.emplace(std::move(event));
    return true;
  }

  /// Makes later work of `stream` wait until memory with this stamp is free. Returns whether it does. Waits for all tickets up
  /// to that stamp: joined memory has the newest stamp of its parts, and a newer ticket may have an older event.
  [[nodiscard]] bool try_make_wait(cudaStream_t stream, std::uint64_t stamp) const noexcept
  {
    for (auto const& each : tickets_) {
      if (!each.event->try_make_wait(stream)) { return false; }
      if (each.number >= stamp) { break; }
    }
    return true;
  }

  /// Asks the oldest event whether it is reached. If it is, forgets its ticket, into `spare` if there is place, and returns
  /// true.
  [[nodiscard]] bool poll(std::vector<owned_event>& spare) noexcept
  {
    if (tickets_.empty() || !tickets_.front().event->is_reached()) { return false; }
    drop_first_ticket(spare);
    return true;
  }

  /// Waits on the host for all events.
  void synchronize() const noexcept
  {
    for (auto const& each : tickets_) { each.event->synchronize_no_throw(); }
  }

  /// The device was synchronised: all events are reached.
  void all_reached(std::vector<owned_event>& spare) noexcept
  {
    while (!tickets_.empty()) { drop_first_ticket(spare); }
  }

  [[nodiscard]] bool has_tickets() const noexcept { return !tickets_.empty(); }

  /// The highest stamp whose memory is free for all.
  [[nodiscard]] std::uint64_t reached() const noexcept
  {
    return tickets_.empty() ? newest_ : tickets_.front().number - 1;
  }

 private:
  struct ticket {
    std::uint64_t number{};
    std::optional<owned_event> event;
  };

  void drop_first_ticket(std::vector<owned_event>& spare) noexcept
  {
    if (spare.size() < spare.capacity()) { spare.push_back(std::move(*tickets_.front().event)); }
    tickets_.pop_front();
  }

  std::uint64_t identity_;
  std::uint64_t newest_{};
  std::int64_t claims_{};
  range_set ranges_;
  std::vector<address_range> unmarked_;
  std::deque<ticket> tickets_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
