// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/export.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

/// @file
/// The time and the thread of a log line.

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the thread id that the system gave the calling thread.
[[nodiscard]] inline long thread_number() noexcept
{
  static thread_local long const number{::syscall(SYS_gettid)};
  return number;
}

/// Local time of day.
struct time_of_day {
  int hour;
  int minute;
  int second;
  long microsecond;
};

/// A clock of local time.
class wall_clock {
 public:
  [[nodiscard]] static time_of_day now() noexcept
  {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    auto const local = now.tv_sec + ahead_of_utc(now.tv_sec);
    return {static_cast<int>(local / 3600 % 24),
            static_cast<int>(local / 60 % 60),
            static_cast<int>(local % 60),
            now.tv_nsec / 1000};
  }

 private:
  /// Returns the seconds that local time is ahead of UTC.
  ///
  /// Calls localtime_r() once in a quarter of an hour, because it is slow. A forked child keeps the number of its parent: localtime_r() has
  /// a lock, which a thread of the parent may have held.
  ///
  /// Order: `known` has the quarter and the seconds, plus `zero`, in one word. It guards no data, so it is relaxed: a thread that reads an
  /// older quarter asks the system itself.
  [[nodiscard]] static std::int64_t ahead_of_utc(std::time_t second) noexcept
  {
    constexpr std::int64_t zero = std::int64_t{1} << 19U;  // more than two days
    static std::atomic<std::int64_t> known{zero};
    auto const quarter = std::int64_t{second} / 900;
    auto packed        = known.load(std::memory_order_relaxed);
    first_user<wall_clock>::note_use();
    if (packed / (2 * zero) != quarter && !first_user<wall_clock>::is_a_parent()) {
      std::tm local{};
      ::localtime_r(&second, &local);
      packed = quarter * 2 * zero + zero + local.tm_gmtoff;
      known.store(packed, std::memory_order_relaxed);
    }
    return packed % (2 * zero) - zero;
  }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
