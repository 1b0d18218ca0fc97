// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <sys/syscall.h>
#include <unistd.h>
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

/// A clock of local time. It keeps the last converted second, because the conversion to local time is slow.
///
/// Threads  Not thread-safe.
class wall_clock {
 public:
  [[nodiscard]] time_of_day now() noexcept
  {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    if (now.tv_sec != known_second_) {
      ::localtime_r(&now.tv_sec, &local_);
      known_second_ = now.tv_sec;
    }
    return {local_.tm_hour, local_.tm_min, local_.tm_sec, now.tv_nsec / 1000};
  }

 private:
  std::time_t known_second_{-1};
  std::tm local_{};  // known_second_ in local time
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
