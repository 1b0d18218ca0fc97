// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/time_counter.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {
namespace trace {

/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] inline std::uint64_t clock_ns() noexcept
{
  std::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// What a machine tells the time with.
struct machine_clocks {
  [[nodiscard]] static bool has_counter() noexcept { return time_counter::is_usable(); }
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t ticks() noexcept { return time_counter::now(); }
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t about_ticks() noexcept { return time_counter::about_now(); }
  [[nodiscard]] static std::uint64_t ns() noexcept { return clock_ns(); }
};

/// A straight line from the ticks of a counter to time. It holds for `length` ticks from `begin` on; for none if that is 0.
struct clock_line {
  std::uint64_t begin{0};
  std::uint64_t length{0};
  std::uint64_t time_ns{0};  // at its begin
  std::uint64_t slope{0};    // nanoseconds a tick, times 2^32

  /// Requires `ticks <= length`: since its begin.
  [[nodiscard]] RMM_ALWAYS_INLINE std::uint64_t time_after(std::uint64_t ticks) const noexcept
  {
    return time_ns + (ticks * slope >> 32U);
  }
};

/// The time of a trace: CLOCK_MONOTONIC since it began, for the price of reading the processor's counter of time.
///
/// Time is a straight line over the ticks of the counter, the same one for all threads. It ends after some milliseconds; who needs
/// a later time compares the counter with the clock, and begins the next line. While it is not known how fast the counter is,
/// there is no line, and the clock itself is read, by one thread at a time: in the first 0.2 ms, and where the two do not fit together
/// any more, because the machine was suspended or moved for instance. Where they never fit, or there is no counter, it
/// is so for good, and threads do not wait for each other.
///
/// Invariants:
///  C1  times never decrease: not along a line, whose slope is not negative, and a line begins with no less than the one before
///      ended with, and than what the clock told meanwhile
///  C2  a line is begun when two measurements of the rate, over one stretch of time and the next, agree to 1/256. It is at most
///      twice as long as the second stretch, so at its end it is wrong by what some comparisons of the clocks are wrong by, each
///      of which is the best of three
///  C3  time that is ahead of the clock is not taken back: the next line is flatter, so that it meets the clock where it ends. It is
///      ahead by longest_ns at most, where the machine was suspended within a line
///  C4  no product wraps: a line has at most longest_ns < 2^23, so its ticks times its slope are less than 2^55, and a rate times
///      what time is ahead by is less than 2^61
/// By C1 and the order that time_counter::now() keeps, a thread that gets something from another one has no earlier time than that had
/// before, if it reads the time in order.
///
/// `Clocks`: machine_clocks, or what a test has in their place. Thread-safe.
template <class Clocks>
class basic_trace_clock {
 public:
  static constexpr std::uint64_t shortest_ns    = 100'000;    // that a rate is measured over
  static constexpr std::uint64_t longest_ns     = 8'000'000;  // of a line
  static constexpr unsigned most_contradictions = 64;         // one after the other, until the counter is given up

  /// `begin_ns`: when the trace began, as CLOCK_MONOTONIC has it.
  RMM_COLD explicit basic_trace_clock(std::uint64_t begin_ns, Clocks clocks = {}) noexcept
    : clocks_{clocks}, begin_ns_{begin_ns}, counts_{clocks_.has_counter()}
  {
    if (counts()) { compared_ = compare(); }
  }

  basic_trace_clock(basic_trace_clock const&)            = delete;
  basic_trace_clock& operator=(basic_trace_clock const&) = delete;

  /// Nanoseconds since the trace began. `line`: the newest one that the caller knows, empty at first. `in_order`: whether the time may
  /// be no earlier than what the caller got from other threads has.
  [[nodiscard]] RMM_ALWAYS_INLINE std::uint64_t now(clock_line& line, bool in_order) noexcept
  {
    if (line.length != 0) {
      auto const ticks = in_order ? clocks_.ticks() : clocks_.about_ticks();
      auto const since = ticks - line.begin;  // larger than any length if the counter went back
      if (since < line.length) { return line.time_after(since); }
    }
    return now_beyond(line);
  }

  /// Whether the counter is used, or would be if it fitted to the clock.
  [[nodiscard]] bool counts() const noexcept { return counts_.load(std::memory_order_acquire); }

 private:
  /// What both tell at one moment.
  struct moment {
    std::uint64_t ticks{0};
    std::uint64_t ns{0};
  };

  static constexpr std::uint64_t flattest = std::uint64_t{1} << 28U;  // a rate is: 16 ticks a nanosecond
  static constexpr std::uint64_t steepest = std::uint64_t{1} << 38U;  // 64 ns a tick

  [[nodiscard]] std::uint64_t clock_now() const noexcept { return clocks_.ns() - begin_ns_; }

  [[nodiscard]] RMM_COLD std::uint64_t now_beyond(clock_line& line) noexcept
  {
    line = {};
    detail::mutex_lock lock;
    if (counts()) { lock = detail::mutex_lock{mutex_}; }
    if (!counts()) { return detail::max(clock_now(), latest_counted_); }
    auto const since = clocks_.ticks() - newest_.begin;
    if (since < newest_.length) {
      line = newest_;
      return line.time_after(since);
    }
    auto const now = clock_now();
    latest_        = detail::max({latest_, newest_.time_after(newest_.length), now});
    newest_        = {};
    if (now - compared_.ns >= shortest_ns) { begin_line(); }
    line = newest_;
    return latest_;
  }

  /// If the counter can be relied on.
  void begin_line() noexcept
  {
    auto const here     = compare();
    auto const before   = std::exchange(compared_, here);
    auto const rate     = rate_between(before, here);
    auto const previous = std::exchange(rate_, rate);
    latest_             = detail::max(latest_, here.ns);
    if (rate < flattest || rate > steepest || difference(rate, previous) > rate / 256) {
      if (++contradictions_ < most_contradictions) { return; }
      latest_counted_ = latest_;
      counts_.store(false, std::memory_order_release);
      return;
    }
    contradictions_      = 0;
    auto const length_ns = detail::min(2 * (here.ns - before.ns), longest_ns);
    auto const ahead_ns  = detail::min(latest_ - here.ns, length_ns);
    newest_              = {here.ticks, (length_ns << 32U) / rate, latest_, rate - rate * ahead_ns / length_ns};
  }

  /// The best of three: the clock is read between two looks at the counter.
  [[nodiscard]] moment compare() const noexcept
  {
    moment result;
    auto best = ~std::uint64_t{0};
    for (int i = 0; i < 3; ++i) {
      auto const before = clocks_.ticks();
      auto const ns     = clock_now();
      auto const took   = clocks_.ticks() - before;
      if (took >= best) { continue; }
      best   = took;
      result = {before + took / 2, ns};
    }
    return result;
  }

  /// Nanoseconds a tick, times 2^32; 0 if the counter went back.
  [[nodiscard]] static std::uint64_t rate_between(moment const& from, moment const& to) noexcept
  {
    auto ns    = to.ns - from.ns;
    auto ticks = to.ticks - from.ticks;
    for (; ns >> 32U != 0; ns >>= 1U) { ticks >>= 1U; }
    return ticks == 0 ? 0 : (ns << 32U) / ticks;
  }

  [[nodiscard]] static std::uint64_t difference(std::uint64_t lhs, std::uint64_t rhs) noexcept
  {
    return lhs < rhs ? rhs - lhs : lhs - rhs;
  }

  Clocks clocks_;
  std::uint64_t begin_ns_;
  std::atomic<bool> counts_;
  std::uint64_t latest_counted_{0};  // written before counts_ becomes false for good

  detail::mutex mutex_;  // guards what follows
  clock_line newest_;
  std::uint64_t latest_{0};  // time that was told, apart from what newest_ told
  moment compared_;
  std::uint64_t rate_{0};
  unsigned contradictions_{0};
};

using trace_clock = basic_trace_clock<machine_clocks>;

}  // namespace trace
}  // namespace detail
}  // namespace RMM_NAMESPACE
