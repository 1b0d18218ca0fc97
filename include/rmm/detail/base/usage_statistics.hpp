// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// As std::max and std::min, without the header that everyone who includes this one would pay for.
[[nodiscard]] constexpr std::int64_t larger(std::int64_t lhs, std::int64_t rhs) noexcept
{
  return lhs < rhs ? rhs : lhs;
}
[[nodiscard]] constexpr std::int64_t smaller(std::int64_t lhs, std::int64_t rhs) noexcept
{
  return rhs < lhs ? rhs : lhs;
}

/// What is in use of something, the most there was at a time, and the sum over time.
struct usage_counter {
  std::int64_t value{0};  ///< in use; negative if more was freed than allocated
  std::int64_t peak{0};   ///< largest value so far
  std::int64_t total{0};  ///< all that was ever added

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

  /// Adds what `section` counted from zero on, after what this one counted before.
  void add_counters_from_tracked_sub_block(usage_counter const& section)
  {
    if (value + section.peak > peak) { peak = value + section.peak; }
    value += section.value;
    total += section.total;
  }
};

/// Counts bytes and allocations of many threads, exactly, and without a line of memory that all of them write to.
///
/// Values and totals are sums over the threads. A peak is not, so each thread has a limit below which it counts on its own:
/// the limits add up to no more than the peak, so that nothing that happens below them can be a new one. A thread at its
/// limit borrows what other threads do not need. Only if there is nothing to borrow does it stop them all, see what the
/// sum really is, and share out anew. Where that would happen all the time, because what threads have in use changes
/// fast while the sum is near its peak, counting stays behind one mutex for a while.
///
/// Invariants, for bytes and for allocations:
///  I1  the value is base + sum(value of each share), the total outside + sum(added of each share); value == high - room
///  I2  base + sum(limit of each share) + reserve == peak, and reserve >= 0
///  I3  0 <= room and high <= limit in each share; while frozen_, value == limit, high may be more, and no owner is inside its
///      lock
/// So value <= peak at every instant, and peak was a value at some instant of an order of the calls that keeps calls apart
/// which did not overlap: peak grows only while frozen_, to what the value is then.
///
/// Thread-safe. The stack of sections belongs to all threads together.
class usage_statistics {
 public:
  using counters = std::pair<usage_counter, usage_counter>;  ///< bytes, allocations

  /// `number`: see per_thread.
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

  /// The same in a few instructions; where that is not possible they return false and count nothing, and the caller has to call
  /// the other one. A caller that ends with that call keeps its short path free of what the long one needs.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_add(std::size_t bytes) noexcept
  {
    auto* const mine = shares_.mine_at_hand();
    return mine != nullptr && mine->try_add_below_high(static_cast<std::int64_t>(bytes));
  }
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_subtract(std::size_t bytes) noexcept
  {
    auto* const mine = shares_.mine_at_hand();
    return mine != nullptr && mine->try_subtract(static_cast<std::int64_t>(bytes), counts_always);
  }
  RMM_COLD void add_slowly(std::size_t bytes) noexcept
  {
    auto const amount = static_cast<std::int64_t>(bytes);
    auto* const mine  = shares_.mine();
    if (mine == nullptr || !mine->try_add(amount, counts_always)) { add_locked(mine, amount); }
  }
  RMM_COLD void subtract_slowly(std::size_t bytes) noexcept
  {
    auto const amount = static_cast<std::int64_t>(bytes);
    auto* const mine  = shares_.mine();
    if (mine == nullptr || !mine->try_subtract(amount, counts_always)) { subtract_locked(mine, amount); }
  }

  /// Counts an allocation of which `make()` returns the address, and returns that; null, and nothing is counted, if `make()`
  /// returns null, or is not called because counting would wait for a lock. Nobody sees the allocation before it is counted.
  template <class Make>
  [[nodiscard]] void* try_add(std::size_t bytes, Make&& make) noexcept
  {
    auto* const mine = shares_.mine_at_hand();
    void* made       = nullptr;
    if (mine != nullptr) {
      mine->try_add(static_cast<std::int64_t>(bytes), [&] { return (made = make()) != nullptr; });
    }
    return made;
  }

  /// Counts a deallocation if `end()`, which does it, returns true. False, and nothing has changed, if it does not, or if it is
  /// not called for the same reason.
  template <class End>
  [[nodiscard]] bool try_subtract(std::size_t bytes, End&& end) noexcept
  {
    auto* const mine = shares_.mine_at_hand();
    return mine != nullptr && mine->try_subtract(static_cast<std::int64_t>(bytes), end);
  }

  /// Those of the innermost section. Stops the threads for some microseconds.
  [[nodiscard]] counters read() noexcept
  {
    detail::mutex_lock const lock{mutex_};
    bool const was_frozen = frozen_;
    if (!was_frozen) { freeze(nullptr); }
    auto const result = read_frozen();
    if (!was_frozen) { thaw(); }
    return result;
  }

  /// Starts a section that counts from zero. Returns the counters of the one around it.
  counters push()
  {
    detail::mutex_lock const lock{mutex_};
    auto& around = sections_.emplace_back();
    if (!frozen_) { freeze(nullptr); }
    around = read_frozen();
    continue_from({});
    return around;
  }

  /// Ends the innermost section. Returns its counters. Throws std::out_of_range for the outermost one.
  counters pop()
  {
    detail::mutex_lock const lock{mutex_};
    if (sections_.empty()) { throw std::out_of_range("cannot pop the last counter pair"); }
    if (!frozen_) { freeze(nullptr); }
    auto const ended = read_frozen();
    auto around      = sections_.back();
    sections_.pop_back();
    around.first.add_counters_from_tracked_sub_block(ended.first);
    around.second.add_counters_from_tracked_sub_block(ended.second);
    continue_from(around);
    return ended;
  }

 private:
  [[nodiscard]] static bool counts_always() noexcept { return true; }

  /// A thread's share of one of the two counters.
  struct share {
    std::int64_t added{0};
    std::int64_t room{0};  // below high: the two are what most calls look at and change
    std::int64_t high{0};  // largest value since the last time that limits were shared out
    std::int64_t limit{0};
    std::int64_t demand{0};       // what the limit should be, from earlier times
    std::int64_t high_frozen{0};  // while frozen, before that time, and more than the limit is now

    [[nodiscard]] std::int64_t value() const noexcept { return high - room; }

    [[nodiscard]] bool has_room_for(std::int64_t amount) const noexcept { return value() + amount <= limit; }

    void add(std::int64_t amount) noexcept
    {
      added += amount;
      room -= amount;
      if (room < 0) { set_high(value()); }
    }

    /// Not below the value, which stays.
    void set_high(std::int64_t to) noexcept
    {
      room += to - high;
      high = to;
    }

    [[nodiscard]] std::int64_t wanted() const noexcept { return larger(std::int64_t{0}, demand - value()); }
  };

  /// A thread's shares of both.
  struct alignas(64) thread_share {
    thread_share() { lock.begin_keeping_out(); }  // until it is known whether limits are being shared out

    void adopt() noexcept {}
    void release() noexcept {}

    /// Also false if there is room, but the value was never so high.
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

    /// `action()` runs inside the lock where there is room, and says whether there is anything to count.
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

  /// What the shares of one counter stand on.
  struct account {
    std::int64_t base{0};     // value that belongs to no thread
    std::int64_t outside{0};  // the same of the total
    std::int64_t peak{0};
    std::int64_t reserve{0};  // of the peak, in no share's limit

    [[nodiscard]] bool can_lend(share const& to, std::int64_t amount) const noexcept
    {
      return to.value() + amount - to.limit <= reserve;
    }
    /// Requires can_lend(). Lets a share grow by `amount`, and by a little more, of which it is one of `shares`.
    void lend(share& to, std::int64_t amount, std::int64_t shares) noexcept
    {
      auto const missing = larger(std::int64_t{0}, to.value() + amount - to.limit);
      auto const loan    = missing == 0 ? 0 : larger(missing, reserve / (2 * shares));
      to.limit += loan;
      reserve -= loan;
    }

    void add_frozen(share& to, std::int64_t amount) noexcept
    {
      to.add(amount);
      to.limit = to.value();
      reserve -= amount;
      peak -= smaller(std::int64_t{0}, reserve);
      reserve = larger(std::int64_t{0}, reserve);
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
      from.demand      = larger(larger(from.high, from.high_frozen), value + from.wanted() / 4 * 3);
      from.high_frozen = value;
      from.set_high(value);
    }

    /// A share gets what it wants if there is enough for all; else half of the reserve is divided by what each wants.
    void share_out(share& to, double part) noexcept
    {
      auto const loan =
        smaller(reserve, part >= 1 ? to.wanted() : static_cast<std::int64_t>(static_cast<double>(to.wanted()) * part));
      to.limit += loan;
      reserve -= loan;
      to.high_frozen = to.high;
      to.set_high(smaller(to.high, to.limit));
    }
    [[nodiscard]] double part_of_wanted(double wanted) const noexcept
    {
      auto const there = static_cast<double>(reserve);
      return wanted <= there ? 1.0 : there / (2 * wanted);
    }
  };

  void add_locked(thread_share* mine, std::int64_t amount) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    auto& to = mine == nullptr ? unowned_ : *mine;
    if (!frozen_) {
      to.lock.end_keeping_out();  // it is new
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

  void subtract_locked(thread_share* mine, std::int64_t amount) noexcept
  {
    detail::mutex_lock const lock{mutex_};
    auto& from = mine == nullptr ? unowned_ : *mine;
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

  /// Stops all threads at their locks and takes back what they were lent. `mine`: the share of the caller, if it has one.
  void freeze(thread_share const* mine) noexcept
  {
    threads_seen_ = 0;
    bool alone    = true;
    shares_.for_each([&](thread_share& each) {
      each.lock.begin_keeping_out();
      ++threads_seen_;
      alone = alone && &each == mine;
    });
    if (!alone) { process_barrier::pass_all_threads(); }
    for_each_share([&](thread_share& each) {
      each.lock.wait_until_left();
      bytes_.take_back(each.bytes);
      calls_.take_back(each.calls);
    });
    frozen_ = true;
  }

  /// Shares out the reserve, and lets the threads count on their own again.
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

  /// After a freeze(): how many calls to count before the thaw, so that a freeze is paid for by many calls.
  void choose_pause() noexcept
  {
    constexpr std::int64_t worth_it = 256;
    std::int64_t const longest      = threads_seen_ > 1 ? std::int64_t{1} << 16U : worth_it / 4;
    bool const was_worth_it         = total_calls() - calls_at_thaw_ >= worth_it;
    pause_                          = was_worth_it ? pause_ / 4 : smaller(longest, 2 * pause_ + worth_it / 16);
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

  /// While frozen: makes the counters what they are given as, in no thread's share, and thaws.
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

  // Guards what follows, and all shares while frozen_; an owner's own share also when it is not. In another line of the cache
  // than what every call reads.
  alignas(64) detail::mutex mutex_;
  thread_share unowned_;  // for threads that have none
  account bytes_;
  account calls_;
  std::vector<counters> sections_;  // around the one that counts, outermost first
  bool frozen_{false};
  std::int64_t threads_seen_{0};
  std::int64_t calls_at_thaw_{0};
  std::int64_t pause_{0};
  std::int64_t calls_to_go_{0};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
