// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/invariant_clock.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_device.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>
#include <rmm/detail/stream/asker.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/free_store.hpp>
#include <rmm/detail/stream/stream_cache.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The free memory of a heap that lies in no cache, where all threads find it. Each stream has a store, whose events tell when other
/// streams may use the memory. The idle store has memory that no work uses. Memory moves there when its events are found reached. Memory
/// that has lost its stream waits in the heap's reserve until its devices were synchronised.
///
/// Invariants:
///  L1  any stream may use memory in the idle store at once, whatever its epoch
///  L2  a stream has a second store only if an older event would otherwise follow a newer one in its store (F3)
///  L3  lost_devices() has the bit of each device whose work may use memory in the reserve
///  L4  no two free pieces here overlap
///  L5  only the idle store has the identity 0; it has no fences and no unfenced memory
///  L6  at most most_spare_events events are kept, in places that were reserved
///
/// Guarded by the lock of its heap.
///
/// Order: only is_behind_ is read without the lock. It guards no data: an owner of a cache that reads an old value takes the lock once too
/// often, or leaves memory in its store until the next call.
class shared_free_lists {
 public:
  /// The most ranges that move from one set to another in one call, which takes a fifth of a millisecond at most.
  static constexpr std::size_t most_moved = 256;

  /// Throws std::bad_alloc.
  explicit shared_free_lists(heap_limits& limits) : limits_{limits} { spare_events_.reserve(most_spare_events); }
  shared_free_lists(shared_free_lists const&)            = delete;
  shared_free_lists& operator=(shared_free_lists const&) = delete;

  [[nodiscard]] free_store& idle() noexcept { return idle_; }
  [[nodiscard]] free_store const& idle() const noexcept { return idle_; }

  /// Returns the stores of streams.
  [[nodiscard]] std::vector<detail::owned_ptr<free_store>> const& stores() const noexcept { return stores_; }

  // --- stores ---

  [[nodiscard]] free_store* find(std::uint64_t identity) const noexcept
  {
    if (identity == 0) { return nullptr; }
    auto const found =
      detail::find_if(identities_.begin(), identities_.end(), [&](auto const each) { return each == identity; });
    return found == identities_.end() ? nullptr : stores_[static_cast<std::size_t>(found - identities_.begin())].get();
  }

  /// Returns the store of a stream, and makes one if there is none. Null if the stream is unknown, or host memory runs out.
  [[nodiscard]] free_store* find_or_make(std::uint64_t identity, int device) noexcept
  {
    if (identity == 0) { return nullptr; }
    auto* const found = find(identity);
    RMM_ASSERT_EXPENSIVE(found != nullptr || has_none_of(identity));  // L2
    return found != nullptr ? found : try_add(identity, device);
  }

  /// Adds another store for a stream. Returns null if host memory runs out.
  [[nodiscard]] free_store* try_add(std::uint64_t identity, int device) noexcept
  {
    RMM_ASSERT(identity != 0);  // L5
    try {
      drop_empty();
      identities_.reserve(stores_.size() + 1);
      stores_.push_back(detail::make_owned<free_store>(identity, device));
      identities_.push_back(identity);
    } catch (std::exception const&) {
      return nullptr;
    }
    RMM_ASSERT_EXPENSIVE(!is_check_due<shared_free_lists>(check_steps()) || check_invariants());
    return stores_.back().get();
  }

  // --- events ---

  /// Records a fence for `store` on its own stream, in a call that the program makes with `stream`. `from`: the caller's cache, or null.
  [[nodiscard]] bool try_add_fence(free_store& store, cudaStream_t stream, void const* from = nullptr) noexcept
  {
    try {
      owned_event event = take_spare_event(store.device());
      return event.try_record(stream) && store.try_add_fence(event, from);
    } catch (std::exception const&) {
      return false;
    }
  }

  /// Returns an event that streams of `device` can record, and whose work is done; none if none is kept.
  [[nodiscard]] owned_event take_spare_event_if_any(int device) noexcept
  {
    auto const spare = spare_event_of(device);
    return spare != spare_events_.rend() ? take_spare_event(spare) : owned_event{nullptr};
  }

  /// Keeps an event whose work is done, if there is place.
  void keep_spare_event(owned_event event) noexcept
  {
    if (event && spare_events_.size() < spare_events_.capacity()) { spare_events_.push_back(std::move(event)); }
  }

  /// Adds a fence for memory that `who` frees to the store of its stream. `is_recorded`: whether the owner of the caller's cache has
  /// recorded its next event for that. If that cannot be the next fence, records one here.
  [[nodiscard]] bool try_add_fence_of(asker const& who, free_store& store, bool is_recorded) noexcept
  {
    bool const can_follow = store.can_follow(who.cache);
    if (who.cache != nullptr) { who.cache->set_records_next(can_follow); }
    if (!is_recorded || !can_follow) { return try_add_fence(store, who.stream, who.cache); }
    auto& event = who.cache->next_event();
    if (!store.try_add_fence(event, who.cache)) { return false; }
    if (auto spare = take_spare_event_if_any(store.device())) { event = std::move(spare); }
    RMM_ASSERT(store.can_follow(who.cache));
    return true;
  }

  /// Fences memory that ended threads have left unfenced in a stream's store, in a call that the program makes with that stream.
  void fence_left(free_store& store, cudaStream_t stream) noexcept
  {
    if (store.unfenced().empty() || !store.try_make_room(store.unfenced().size()) || !try_add_fence(store, stream)) {
      return;
    }
    insert_unfenced(store, store);
    RMM_ASSERT_EXPENSIVE(!is_check_due<shared_free_lists>(check_steps()) || check_invariants());
  }

  /// Asks up to `most` events whether they are reached, of the stores in turn. Moves ranges whose fences are reached to the idle store: up
  /// to most_moved ranges, and all ranges of a store at once if its set can be exchanged with that of the idle store. Searches find the
  /// others where they are, and need no wait for them.
  void poll(std::size_t most) noexcept
  {
    std::optional<capture_exemption> exemption;
    if (detail::any_of(stores_.begin(), stores_.end(), [](auto const& store) { return store->has_fences(); })) {
      exemption.emplace();
    }
    auto moves = most_moved;
    for (std::size_t visited = 0; visited != stores_.size() && most != 0; ++visited) {
      auto& store  = *stores_[next_polled_++ % stores_.size()];
      bool reached = false;
      while (most != 0 && store.has_fences()) {
        --most;
        if (!store.poll(spare_events_)) { break; }
        bool const is_first = !std::exchange(reached, true);
        if (is_first && most != 0 && store.has_many_fences()) {  // one answer may serve for all
          --most;
          static_cast<void>(store.poll_newest(spare_events_));
        }
      }
      if (reached || (!store.has_fences() && !store.ranges().empty())) { move_reached(store, moves); }
    }
    is_behind_.store(moves == 0, std::memory_order_relaxed);
    RMM_ASSERT_EXPENSIVE(!is_check_due<shared_free_lists>(check_steps()) || check_invariants());
  }

  /// Whether the last poll() found as much reached memory as may move in one call, so that there may be more. Without the lock too.
  [[nodiscard]] bool is_behind() const noexcept { return is_behind_.load(std::memory_order_relaxed); }

  /// Notes that no work uses the memory, after all devices that may use it were synchronised: all fences are reached. Unfenced and lost
  /// memory moves to the idle store as far as host memory allows, fenced memory as in one call of poll().
  void all_reached() noexcept
  {
    auto moves = most_moved;
    for (auto const& store : stores_) {
      store->all_reached(spare_events_);
      if (idle_.try_make_room(store->unfenced().size())) { insert_unfenced(*store, idle_); }
      move_reached(*store, moves);
    }
    limits_.reserve.take([&](address_range range) {
      bool const has_room = idle_.try_make_room(1);
      if (has_room) { idle_.ranges().insert(range, 0, limits_.seams()); }
      return has_room;
    });
    RMM_ASSERT(idle_.unfenced().empty() && !idle_.has_fences());  // L5
    if (limits_.reserve.waiting() == 0) { lost_devices_ = 0; }
    RMM_ASSERT_EXPENSIVE(!is_check_due<shared_free_lists>(check_steps()) || check_invariants());
  }

  // --- memory ---

  /// Takes `bytes` bytes from the idle store or from the caller's own store, whichever fits better; no wait is needed. Returns nothing if
  /// neither has a large enough piece. `own` may be null.
  [[nodiscard]] taken_range take_own_or_idle(std::size_t bytes, free_store* own) noexcept
  {
    auto const idle_fit = idle_.ranges().good_fit(bytes);
    auto const own_fit  = own != nullptr ? own->ranges().good_fit(bytes) : 0;
    if (own_fit != 0 && (idle_fit == 0 || own_fit <= idle_fit)) { return own->ranges().take_good(bytes); }
    return idle_fit != 0 ? idle_.ranges().take_good(bytes) : taken_range{};
  }

  /// Takes `bytes` bytes from the best fit in the stores of other streams, after a wait. If the stream cannot wait for that store, tries
  /// the next best one. Skips `own`.
  [[nodiscard]] taken_range take_from_other(std::size_t bytes, free_store const* own, asker const& who) noexcept
  {
    using place         = std::pair<std::size_t, std::size_t>;  // how large the range is, and which store has it
    constexpr auto none = range_set::no_limit;
    for (place refused{0, none};;) {
      place best{none, none};
      for (std::size_t at = 0; at != stores_.size(); ++at) {
        auto const& store = *stores_[at];
        place const here{&store == own ? 0 : store.ranges().good_fit(bytes), at};
        if (here.first == 0 || here <= refused || best <= here) { continue; }
        if (who.may_wait || who.is_of_stream(store.identity())) { best = here; }
      }
      RMM_ASSERT_EXPENSIVE(best.first != none || refused.first != 0 || !who.may_wait || !can_serve(bytes, own));
      if (best.first == none) { return {}; }
      auto& store      = *stores_[best.second];
      auto const taken = store.ranges().take_good(bytes);
      if (who.is_of_stream(store.identity())) { return taken; }  // a thread that ended left it
      if (store.try_make_wait(who.stream, store.epoch_of(taken.epoch))) {
        ++waits_for_others_;
        return taken;
      }
      store.ranges().insert({taken.begin, bytes}, taken.epoch, limits_.seams());  // where it was, so there is room
      refused = best;
    }
  }

  /// Returns how often take_from_other() took memory of another stream.
  [[nodiscard]] std::uint64_t waits_for_others() const noexcept { return waits_for_others_; }

  /// Keeps freed memory that no event can cover, until these devices were synchronised.
  void lose(address_range range, std::uint64_t devices) noexcept
  {
    RMM_ASSERT(devices != 0);  // L3
    lost_devices_ |= devices;
    limits_.reserve.put(range);
    RMM_ASSERT(limits_.reserve.waiting() != 0);
  }

  [[nodiscard]] std::uint64_t lost_devices() const noexcept { return lost_devices_; }

  /// Returns the bytes that any stream can have, some after a wait.
  [[nodiscard]] std::size_t fenced_bytes() const noexcept
  {
    auto sum = idle_.ranges().total_bytes();
    for (auto const& store : stores_) { sum += store->ranges().total_bytes(); }
    return sum;
  }

  /// Calls visit(range) for all memory that no event covers.
  template <class Visit>
  void for_each_unfenced(Visit&& visit) const
  {
    for (auto const& store : stores_) {
      for (auto const range : store->unfenced()) { visit(range); }
    }
    limits_.reserve.for_each(visit);
  }

  void clear() noexcept
  {
    stores_.clear();
    identities_.clear();
    idle_.ranges().clear();
    limits_.reserve.take([](address_range) { return true; });
    RMM_ASSERT(idle_.is_empty() && limits_.reserve.waiting() == 0);
  }

  /// Whether L3 to L6 hold, as far as they can be told, and those of all stores; O(ranges * log ranges). Defined in
  /// shared_free_lists_validation.hpp.
  [[nodiscard]] bool check_invariants() const noexcept;

 private:
  static constexpr std::size_t most_spare_events    = 32;
  static constexpr std::size_t most_unfenced_stores = 64;

  [[nodiscard]] inline std::size_t check_steps() const noexcept;
  [[nodiscard]] inline bool has_none_of(std::uint64_t identity) const noexcept;
  [[nodiscard]] inline bool can_serve(std::size_t bytes, free_store const* left_out) const noexcept;

  /// Removes stores that are not needed, because streams come and go: unused ones if they are many, have much host memory, or are the second
  /// of their stream, and the oldest of those that hold only unfenced memory, which then counts as lost. Other unused stores stay, because
  /// a thread that frees large blocks uses its store again and again.
  void drop_empty() noexcept
  {
    auto unfenced =
      detail::count_if(stores_.begin(), stores_.end(), [](auto const& store) { return is_stale(*store); });
    for (auto const& store : stores_) {
      if (unfenced < static_cast<std::ptrdiff_t>(most_unfenced_stores)) { break; }
      if (!is_stale(*store)) { continue; }
      for (auto const range : store->unfenced()) { lose(range, device_waits::every_device); }
      store->unfenced().clear();
      --unfenced;
    }
    auto const unused =
      detail::count_if(stores_.begin(), stores_.end(), [](auto const& store) { return store->is_unused(); });
    bool const many = static_cast<std::size_t>(unused) > limits_.most_unused_stores;
    for (auto at = stores_.size(); at-- != 0;) {
      auto const& store = *stores_[at];
      if (!store.is_unused() || !(many || !store.is_small() || find(store.identity()) != &store)) { continue; }
      stores_.erase(stores_.begin() + static_cast<std::ptrdiff_t>(at));
      identities_.erase(identities_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  [[nodiscard]] static bool is_stale(free_store const& store) noexcept
  {
    return !store.unfenced().empty() && store.ranges().empty() && !store.has_fences();
  }

  using place_of_event = std::vector<owned_event>::reverse_iterator;

  /// An event that streams of `device` can record. Throws cuda_error.
  [[nodiscard]] owned_event take_spare_event(int device)
  {
    auto spare = take_spare_event_if_any(device);
    return spare ? std::move(spare) : owned_event{device};
  }

  [[nodiscard]] place_of_event spare_event_of(int device) noexcept
  {
    return detail::find_if(
      spare_events_.rbegin(), spare_events_.rend(), [&](owned_event const& each) { return each.device() == device; });
  }

  [[nodiscard]] owned_event take_spare_event(place_of_event place) noexcept
  {
    std::swap(*place, spare_events_.back());
    owned_event event = std::move(spare_events_.back());
    spare_events_.pop_back();
    return event;
  }

  /// Moves the unfenced memory of one store to the ranges of another, which has room and whose newest fence covers it. Releases the
  /// claims of these blocks.
  void insert_unfenced(free_store& from, free_store& to) noexcept
  {
    RMM_ASSERT(to.ranges().count() + from.unfenced().size() <= to.ranges().capacity());
    for (auto const range : from.unfenced()) { to.ranges().insert(range, to.newest(), limits_.seams()); }
    limits_.reserve.release(from.unfenced().size());
    from.unfenced().clear();
  }

  /// Moves ranges of a store whose fences are reached to the idle store: up to `moves`, which it counts down.
  void move_reached(free_store& store, std::size_t& moves) noexcept
  {
    RMM_ASSERT(&store != &idle_ && moves <= most_moved);
    auto& ranges = store.ranges();
    if (!store.has_fences()) {
      if (ranges.count() > moves && idle_.ranges().count() <= moves) {
        static_cast<void>(idle_.try_take_all_of(ranges, limits_.seams()));
        return;
      }
      auto const count = detail::min(ranges.count(), moves);
      if (!idle_.try_make_room(count)) { return; }
      ranges.move_to(idle_.ranges(), limits_.seams(), count);
      moves -= count;
      return;
    }
    if (store.epoch_of(0) > store.reached() || !idle_.try_make_room(detail::min(ranges.count(), moves))) { return; }
    std::array<address_range, most_moved> free;
    std::size_t count{};
    ranges.for_some(store.next_looked_at(), 4 * most_moved, [&](address_range range, std::uint64_t epoch) {
      if (epoch <= store.reached() && count != moves) { free[count++] = range; }
    });
    for (std::size_t i = 0; i != count; ++i) {
      auto const taken = ranges.take_exact(free[i]);
      RMM_ASSERT(taken && taken.epoch <= store.reached());
      idle_.ranges().insert({taken.begin, free[i].bytes}, 0, limits_.seams());
    }
    moves -= count;
  }

  heap_limits& limits_;
  free_store idle_{0};
  std::vector<detail::owned_ptr<free_store>> stores_;
  std::vector<std::uint64_t> identities_;  // of the stores, side by side: find() reads few cache lines
  std::vector<owned_event> spare_events_;
  std::size_t next_polled_{};
  std::atomic<bool> is_behind_{false};
  std::uint64_t lost_devices_{};
  std::uint64_t waits_for_others_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#include <rmm/detail/stream/shared_free_lists_validation.hpp>
#endif
