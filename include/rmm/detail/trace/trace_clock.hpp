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

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] inline std::uint64_t clock_ns() noexcept
{
  std::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// The clocks of a machine: its counter of ticks, and CLOCK_MONOTONIC.
struct machine_clocks {
  [[nodiscard]] static bool has_counter() noexcept { return time_counter::is_usable(); }
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t ticks() noexcept { return time_counter::now(); }
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t about_ticks() noexcept { return time_counter::about_now(); }
  [[nodiscard]] static std::uint64_t ns() noexcept { return clock_ns(); }
};

/// A linear function from the ticks of a counter to time. It is valid for `length` ticks from `begin` on.
struct clock_line {
  std::uint64_t begin{0};
  std::uint64_t length{0};
  std::uint64_t time_ns{0};  // the time at `begin`
  std::uint64_t slope{0};    // nanoseconds per tick, times 2^32

  /// Returns the time at `ticks` ticks after `begin`. Requires `ticks <= length`.
  [[nodiscard]] RMM_ALWAYS_INLINE std::uint64_t time_after(std::uint64_t ticks) const noexcept
  {
    return time_ns + (ticks * slope >> 32U);
  }
};

/// The clock of a trace: CLOCK_MONOTONIC since the trace began, at the cost of reading the processor's counter of ticks.
///
/// All threads compute the time from the counter with one clock_line. A line ends after some milliseconds. The first thread that needs a
/// later time compares the counter with the clock, and begins the next line. There is no line while the rate of the counter is not known:
/// in the first 0.2 ms, and after the counter and the clock have disagreed, for example because the machine was suspended. Then threads
/// read the clock itself, one at a time. If there is no counter, or it disagrees many times in a row, the clock is used for good, without
/// a lock.
///
/// Invariants:
///  C1  times never decrease: the slope of a line is not negative, and a line begins at or after the end of the line before, and the times
///      that were read from the clock since
///  C2  a line begins only if two measurements of the rate, over two adjacent periods, agree to 1/256. It is at most twice as long as the
///      second period, so its error at its end is that of a few comparisons of the clocks. Each comparison is the best of three
///  C3  a time ahead of the clock is not taken back: the next line has a smaller slope, and meets the clock at its end. It is ahead by at
///      most longest_ns, if the machine was suspended within a line
///  C4  no product overflows: a line has at most longest_ns < 2^23, so its ticks times its slope are less than 2^55, and a rate times the
///      time that a line is ahead is less than 2^61
/// With C1 and the ordering of time_counter::now(), a thread that receives something from another thread, and reads the time in order,
/// gets no earlier time than that thread had.
///
/// Order: the mutex guards all that changes, except for counts_. A thread computes the time with its own copy of a line, without the
/// mutex; C1 holds for any two lines, and the order of the values is that of the counter. Once counts_ is false, threads read
/// latest_counted_ without the mutex: it was written before counts_ was released, and counts() acquires. tests/models/trace_model.cpp
/// tries all executions.
///
/// `Clocks` is machine_clocks, or the clocks of a test. Thread-safe.
template <class Clocks>
class basic_trace_clock {
 public:
  static constexpr std::uint64_t shortest_ns    = 100'000;    // the shortest period to measure a rate over
  static constexpr std::uint64_t longest_ns     = 8'000'000;  // the longest line
  static constexpr unsigned most_contradictions = 64;  // after so many in a row, the counter is not used any more

  /// `begin_ns` is the time of CLOCK_MONOTONIC at the beginning of the trace.
  RMM_COLD explicit basic_trace_clock(std::uint64_t begin_ns, Clocks clocks = {}) noexcept
    : clocks_{clocks}, begin_ns_{begin_ns}, counts_{clocks_.has_counter()}
  {
    if (counts()) { compared_ = compare(); }
  }

  basic_trace_clock(basic_trace_clock const&)            = delete;
  basic_trace_clock& operator=(basic_trace_clock const&) = delete;

  /// Returns nanoseconds since the trace began. `line` is the caller's copy of the newest line, initially empty. With `in_order`, the time
  /// is not earlier than that of events in other threads that happened before the call.
  [[nodiscard]] RMM_ALWAYS_INLINE std::uint64_t now(clock_line& line, bool in_order) noexcept
  {
    if (line.length != 0) {
      auto const ticks = in_order ? clocks_.ticks() : clocks_.about_ticks();
      auto const since = ticks - line.begin;  // larger than any length if the counter went back
      if (since < line.length) { return line.time_after(since); }
    }
    return now_beyond(line);
  }

  /// Whether the counter has not been given up.
  [[nodiscard]] bool counts() const noexcept { return counts_.load(std::memory_order_acquire); }

 private:
  /// The values of the counter and the clock at one moment.
  struct moment {
    std::uint64_t ticks{0};
    std::uint64_t ns{0};
  };

  static constexpr std::uint64_t flattest = std::uint64_t{1} << 28U;  // the least rate: 16 ticks per nanosecond
  static constexpr std::uint64_t steepest = std::uint64_t{1} << 38U;  // the largest rate: 64 ns per tick

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

  /// Begins a line if two measurements of the rate agree. Gives the counter up after too many contradictions.
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

  /// Reads the clock between two reads of the counter, three times, and returns the result of the fastest attempt.
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

  /// Returns nanoseconds per tick, times 2^32; 0 if the counter did not advance.
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

  detail::mutex mutex_;  // guards the members below
  clock_line newest_;
  std::uint64_t latest_{0};  // the latest time that was returned, except for times of newest_
  moment compared_;
  std::uint64_t rate_{0};
  unsigned contradictions_{0};
};

using trace_clock = basic_trace_clock<machine_clocks>;

}  // namespace trace
}  // namespace detail
}  // namespace RMM_NAMESPACE
