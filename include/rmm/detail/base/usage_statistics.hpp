// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/biased_lock.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/thread_slots.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A counter of an amount in use, its peak, and the sum of all that was added.
struct usage_counter {
  std::int64_t value{0};  ///< amount in use; negative if more was freed than allocated
  std::int64_t peak{0};   ///< largest value so far
  std::int64_t total{0};  ///< sum of all amounts added

  usage_counter& operator+=(std::int64_t amount)
  {
    value += amount;
    total += amount;
    if (value > peak) { peak = value; }
    return *this;
  }

  usage_counter& operator-=(std::int64_t amount)
  {
    value -= amount;
    return *this;
  }

  /// Adds the counters of a section that began at zero when this counter stopped.
  void add_counters_from_tracked_sub_block(usage_counter const& section)
  {
    if (value + section.peak > peak) { peak = value + section.peak; }
    value += section.value;
    total += section.total;
  }
};

/// Exact counters of bytes and allocations for many threads, without a cache line that all of them write to.
///
/// Values and totals are sums over the threads, but a peak is not. So each thread has a limit, and counts alone below it. The limits
/// add up to at most the peak, so that no calls below them can raise it. A thread at its limit borrows from the reserve. If the reserve
/// is too small, the thread stops all others, adds up the true value, and shares out the peak again. That would happen often while the
/// value is near its peak and changes fast. So after such a stop, all threads count under one mutex for a number of calls (`frozen_`),
/// and the peak is shared out after these calls.
///
/// Invariants, for bytes and for allocations:
///  I1  the value is base + sum(value of each share), the total is outside + sum(added of each share); value == high - room
///  I2  base + sum(limit of each share) + reserve == peak, and reserve >= 0
///  I3  0 <= room and high <= limit in each share; while frozen_, value == limit, high may be more, and no owner is inside its
///      lock
/// So value <= peak at every instant. The peak is a value that the counter really had, if calls that overlap are put in some order: it
/// only grows while frozen_, to the value at that moment.
///
/// Order: a share's members are plain variables. Its thread uses them inside the share's biased lock; another thread uses them when it
/// has locked that thread out, with the mutex held. Invariant O2 of biased_lock makes each see what the other wrote. A new share is locked
/// out, so its thread first takes the mutex, and sees whether all are frozen. All other members are guarded by the mutex.
/// tests/models/statistics_model.cpp tries all executions.
///
/// Thread-safe. All threads share one stack of sections.
class usage_statistics {
 public:
  using counters = std::pair<usage_counter, usage_counter>;  ///< bytes, allocations

  /// `number`: see the constructor of per_thread.
  explicit usage_statistics(std::uint64_t number) : shares_{number} {}

  usage_statistics(usage_statistics const&)            = delete;
  usage_statistics& operator=(usage_statistics const&) = delete;

  /// Counts an allocation.
  void add(std::size_t bytes) noexcept
  {
    if (!try_add(bytes)) { add_slowly(bytes); }
  }

  /// Counts a deallocation.
  void subtract(std::size_t bytes) noexcept
  {
    if (!try_subtract(bytes)) { subtract_slowly(bytes); }
  }

  /// Count as add() and subtract(), in a few instructions. If that is not possible they return false and count nothing; call
  /// add_slowly() or subtract_slowly() then. If a function does that in its last call, its short path needs no stack frame.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_add(std::size_t bytes) noexcept
  {
    auto* const own_share = shares_.mine_at_hand();
    return own_share != nullptr && own_share->try_add_below_high(static_cast<std::int64_t>(bytes));
  }
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_subtract(std::size_t bytes) noexcept
  {
    auto* const own_share = shares_.mine_at_hand();
    return own_share != nullptr && own_share->try_subtract(static_cast<std::int64_t>(bytes), counts_always);
  }
  RMM_COLD void add_slowly(std::size_t bytes) noexcept
  {
    auto const amount     = static_cast<std::int64_t>(bytes);
    auto* const own_share = shares_.mine();
    if (own_share == nullptr || !own_share->try_add(amount, counts_always)) { add_locked(own_share, amount); }
  }
  RMM_COLD void subtract_slowly(std::size_t bytes) noexcept
  {
    auto const amount     = static_cast<std::int64_t>(bytes);
    auto* const own_share = shares_.mine();
    if (own_share == nullptr || !own_share->try_subtract(amount, counts_always)) { subtract_locked(own_share, amount); }
  }

  /// Calls `make()`, counts the allocation that it returns, and returns its address. The result is not visible before it is counted.
  ///
  /// Returns null, and counts nothing, in two cases: if counting would need a lock, without a call of `make()`; and if `make()` returns
  /// null.
  template <class Make>
  [[nodiscard]] void* try_add(std::size_t bytes, Make&& make) noexcept
  {
    auto* const own_share = shares_.mine_at_hand();
    void* made            = nullptr;
    if (own_share != nullptr) {
      own_share->try_add(static_cast<std::int64_t>(bytes), [&] { return (made = make()) != nullptr; });
    }
    return made;
  }

  /// Calls `end()`, which deallocates, and counts the deallocation if it returns true.
  ///
  /// Returns false, and counts nothing, in two cases: if counting would need a lock, without a call of `end()`; and if `end()` returns
  /// false.
  template <class End>
  [[nodiscard]] bool try_subtract(std::size_t bytes, End&& end) noexcept
  {
    auto* const own_share = shares_.mine_at_hand();
    return own_share != nullptr && own_share->try_subtract(static_cast<std::int64_t>(bytes), end);
  }

  /// Returns the counters of the innermost section. Stops the counting threads for some microseconds.
  [[nodiscard]] counters read() noexcept
  {
    detail::mutex_lock const lock{mutex_};
    bool const was_frozen = frozen_;
    if (!was_frozen) { freeze(nullptr); }
    auto const result = read_frozen();
    if (!was_frozen) { thaw(); }
    return result;
  }

  /// Starts a section that counts from zero. Returns the counters of the section around it.
  counters push()
  {
    detail::mutex_lock const lock{mutex_};
    auto& outer = sections_.emplace_back();
    if (!frozen_) { freeze(nullptr); }
    outer = read_frozen();
    continue_from({});
    return outer;
  }

  /// Ends the innermost section. Returns its counters. Throws std::out_of_range if it is the outermost one.
  counters pop()
  {
    detail::mutex_lock const lock{mutex_};
    if (sections_.empty()) {
      throw std::out_of_range("cannot pop the last counter pair: call push_counters() before each pop_counters()");
    }
    if (!frozen_) { freeze(nullptr); }
    auto const ended = read_frozen();
    auto outer       = sections_.back();
    sections_.pop_back();
    outer.first.add_counters_from_tracked_sub_block(ended.first);
    outer.second.add_counters_from_tracked_sub_block(ended.second);
    continue_from(outer);
    return ended;
  }

 private:
  [[nodiscard]] static bool counts_always() noexcept { return true; }

  /// A thread's share of one of the two counters.
  struct share {
    std::int64_t added{0};
    std::int64_t room{0};  // high - value; most calls only change room and added
    std::int64_t high{0};  // largest value since limits were last shared out
    std::int64_t limit{0};
    std::int64_t demand{0};       // the limit that earlier calls would have needed
    std::int64_t high_frozen{0};  // largest value of the last frozen period, which may exceed the present limit

    [[nodiscard]] std::int64_t value() const noexcept { return high - room; }

    [[nodiscard]] bool has_room_for(std::int64_t amount) const noexcept { return value() + amount <= limit; }

    void add(std::int64_t amount) noexcept
    {
      added += amount;
      room -= amount;
      if (room < 0) { set_high(value()); }
    }

    /// Changes high, to no less than the value; the value stays.
    void set_high(std::int64_t to) noexcept
    {
      room += to - high;
      high = to;
    }

    [[nodiscard]] std::int64_t wanted() const noexcept { return detail::max(std::int64_t{0}, demand - value()); }
  };

  /// A thread's shares of both counters.
  struct alignas(64) thread_share {
    thread_share() { lock.begin_keeping_out(); }  // until the thread has seen frozen_, under the mutex

    void adopt() noexcept {}
    void release() noexcept {}

    /// Counts if neither value exceeds its high. The limit may leave room when this returns false.
    [[nodiscard]] RMM_ALWAYS_INLINE bool try_add_below_high(std::int64_t amount) noexcept
    {
      if (!lock.try_enter()) { return false; }
      auto const room_of_bytes = bytes.room - amount;
      auto const room_of_calls = calls.room - 1;
      bool const fits          = (room_of_bytes | room_of_calls) >= 0;
      if (fits) {
        bytes.room = room_of_bytes;
        calls.room = room_of_calls;
        bytes.added += amount;
        calls.added += 1;
      }
      lock.leave();
      return fits;
    }

    /// Runs `action()` inside the lock if there is room, and counts if it returns true.
    template <class Action>
    RMM_ALWAYS_INLINE bool try_add(std::int64_t amount, Action&& action) noexcept
    {
      if (!lock.try_enter()) { return false; }
      bool const counts = bytes.has_room_for(amount) && calls.has_room_for(1) && action();
      if (counts) {
        bytes.add(amount);
        calls.add(1);
      }
      lock.leave();
      return counts;
    }

    template <class Action>
    RMM_ALWAYS_INLINE bool try_subtract(std::int64_t amount, Action&& action) noexcept
    {
      if (!lock.try_enter()) { return false; }
      bool const counts = action();
      if (counts) {
        bytes.room += amount;
        calls.room += 1;
      }
      lock.leave();
      return counts;
    }

    biased_lock lock;
    share bytes;
    share calls;
  };

  /// The part of one counter that is outside of the shares.
  struct account {
    std::int64_t base{0};     // the part of the value that is in no share
    std::int64_t outside{0};  // the part of the total that is in no share
    std::int64_t peak{0};
    std::int64_t reserve{0};  // the part of the peak that is in no share's limit

    [[nodiscard]] bool can_lend(share const& to, std::int64_t amount) const noexcept
    {
      return to.value() + amount - to.limit <= reserve;
    }
    /// Raises the limit of one of `shares` shares, so that it can grow by `amount` and a little more. Requires can_lend().
    void lend(share& to, std::int64_t amount, std::int64_t shares) noexcept
    {
      auto const missing = detail::max(std::int64_t{0}, to.value() + amount - to.limit);
      auto const loan    = missing == 0 ? 0 : detail::max(missing, reserve / (2 * shares));
      to.limit += loan;
      reserve -= loan;
    }

    void add_frozen(share& to, std::int64_t amount) noexcept
    {
      to.add(amount);
      to.limit = to.value();
      reserve -= amount;
      peak -= detail::min(std::int64_t{0}, reserve);
      reserve = detail::max(std::int64_t{0}, reserve);
    }
    void subtract_frozen(share& from, std::int64_t amount) noexcept
    {
      from.room += amount;
      from.limit = from.value();
      reserve += amount;
    }

    void take_back(share& from) noexcept
    {
      auto const value = from.value();
      reserve += from.limit - value;
      from.limit       = value;
      from.demand      = detail::max({from.high, from.high_frozen, value + from.wanted() / 4 * 3});
      from.high_frozen = value;
      from.set_high(value);
    }

    /// Gives a share its `part` of what it wants; see part_of_wanted().
    void share_out(share& to, double part) noexcept
    {
      auto const loan = detail::min(
        reserve, part >= 1 ? to.wanted() : static_cast<std::int64_t>(static_cast<double>(to.wanted()) * part));
      to.limit += loan;
      reserve -= loan;
      to.high_frozen = to.high;
      to.set_high(detail::min(to.high, to.limit));
    }
    /// Returns the part of its wish that each share gets: all of it if the reserve is enough, else from half of the reserve.
    [[nodiscard]] double part_of_wanted(double wanted) const noexcept
    {
      auto const available = static_cast<double>(reserve);
      return wanted <= available ? 1.0 : available / (2 * wanted);
    }
  };

  void add_locked(thread_share* own_share, std::int64_t amount) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    auto& to = own_share == nullptr ? unowned_ : *own_share;
    if (!frozen_) {
      to.lock.end_keeping_out();  // a new share is locked out at first
      if (bytes_.can_lend(to.bytes, amount) && calls_.can_lend(to.calls, 1)) {
        bytes_.lend(to.bytes, amount, threads_seen_ + 1);
        calls_.lend(to.calls, 1, threads_seen_ + 1);
        to.bytes.add(amount);
        to.calls.add(1);
        return;
      }
      freeze(&to);
      choose_pause();
    }
    bytes_.add_frozen(to.bytes, amount);
    calls_.add_frozen(to.calls, 1);
    count_frozen_call();
  }

  void subtract_locked(thread_share* own_share, std::int64_t amount) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    auto& from = own_share == nullptr ? unowned_ : *own_share;
    if (!frozen_) {
      from.lock.end_keeping_out();
      from.bytes.room += amount;
      from.calls.room += 1;
      return;
    }
    bytes_.subtract_frozen(from.bytes, amount);
    calls_.subtract_frozen(from.calls, 1);
    count_frozen_call();
  }

  template <class Action>
  void for_each_share(Action&& action)
  {
    action(unowned_);
    shares_.for_each(action);
  }

  /// Locks all threads out of their shares, and takes their limits back. `own_share` is the share of the caller, or null.
  void freeze(thread_share const* own_share) noexcept
  {
    threads_seen_ = 0;
    bool alone    = true;
    shares_.for_each([&](thread_share& each) {
      each.lock.begin_keeping_out();
      ++threads_seen_;
      alone = alone && &each == own_share;
    });
    if (!alone) { process_barrier::pass_all_threads(); }
    for_each_share([&](thread_share& each) {
      each.lock.wait_until_left();
      bytes_.take_back(each.bytes);
      calls_.take_back(each.calls);
    });
    frozen_ = true;
  }

  /// Shares out the reserve, and lets the threads count alone again.
  void thaw() noexcept
  {
    double bytes_wanted = 0;
    double calls_wanted = 0;
    for_each_share([&](thread_share& each) {
      bytes_wanted += static_cast<double>(each.bytes.wanted());
      calls_wanted += static_cast<double>(each.calls.wanted());
    });
    auto const part_of_bytes = bytes_.part_of_wanted(bytes_wanted);
    auto const part_of_calls = calls_.part_of_wanted(calls_wanted);
    for_each_share([&](thread_share& each) {
      bytes_.share_out(each.bytes, part_of_bytes);
      calls_.share_out(each.calls, part_of_calls);
    });
    frozen_        = false;
    calls_at_thaw_ = total_calls();
    for_each_share([&](thread_share& each) { each.lock.end_keeping_out(); });
  }

  /// Chooses after a freeze() how many calls are counted before the thaw, so that many calls share the cost of the freeze.
  void choose_pause() noexcept
  {
    constexpr std::int64_t worth_it = 256;
    std::int64_t const longest      = threads_seen_ > 1 ? std::int64_t{1} << 16U : worth_it / 4;
    bool const was_worth_it         = total_calls() - calls_at_thaw_ >= worth_it;
    pause_                          = was_worth_it ? pause_ / 4 : detail::min(longest, 2 * pause_ + worth_it / 16);
    calls_to_go_                    = pause_;
  }

  void count_frozen_call() noexcept
  {
    if (--calls_to_go_ < 0) { thaw(); }
  }

  [[nodiscard]] std::int64_t total_calls() noexcept
  {
    auto total = calls_.outside;
    for_each_share([&](thread_share& each) { total += each.calls.added; });
    return total;
  }

  [[nodiscard]] counters read_frozen() noexcept
  {
    counters result{{bytes_.base, bytes_.peak, bytes_.outside}, {calls_.base, calls_.peak, calls_.outside}};
    for_each_share([&](thread_share& each) {
      result.first.value += each.bytes.value();
      result.first.total += each.bytes.added;
      result.second.value += each.calls.value();
      result.second.total += each.calls.added;
    });
    return result;
  }

  /// Sets the counters, with nothing in the threads' shares, and thaws. Requires frozen_.
  void continue_from(counters const& from) noexcept
  {
    for_each_share([](thread_share& each) {
      each.bytes = {};
      each.calls = {};
    });
    bytes_ = {from.first.value, from.first.total, from.first.peak, from.first.peak - from.first.value};
    calls_ = {from.second.value, from.second.total, from.second.peak, from.second.peak - from.second.value};
    thaw();
  }

  per_thread<thread_share> shares_;

  // Guards the members below and, while frozen_, all shares. A thread that holds it may also use its own share, without the lock of the
  // share. It has its own cache line, apart from the data that every call reads.
  alignas(64) detail::mutex mutex_;
  thread_share unowned_;  // for threads without a share
  account bytes_;
  account calls_;
  std::vector<counters> sections_;  // the sections around the innermost one, outermost first
  bool frozen_{false};
  std::int64_t threads_seen_{0};
  std::int64_t calls_at_thaw_{0};
  std::int64_t pause_{0};
  std::int64_t calls_to_go_{0};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
