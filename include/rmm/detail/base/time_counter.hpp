// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>

// Whether the processor has a time counter that programs can read. A build may define it as 0.
#if !defined(RMM_DETAIL_HAS_TIME_COUNTER)
#if defined(__GNUC__) && defined(__linux__) && defined(__x86_64__)
#define RMM_DETAIL_HAS_TIME_COUNTER 1
#else
#define RMM_DETAIL_HAS_TIME_COUNTER 0
#endif
#endif
#if RMM_DETAIL_HAS_TIME_COUNTER
#include <cpuid.h>
#include <cstdio>
#include <cstring>
#endif

namespace RMM_NAMESPACE {
namespace detail {

/// The time counter of the processor: on x86-64 the time-stamp counter.
///
/// If is_usable(), it advances at a constant rate, and agrees on all processors. Otherwise callers read the system's clock.
class time_counter {
 public:
  /// Whether now() may be called. Determined once.
  [[nodiscard]] static bool is_usable() noexcept
  {
    static bool const usable = is_invariant() && is_clock_of_system();
    return usable;
  }

  /// Returns the counter, read in order with loads and stores: after earlier loads have completed, and before later stores are visible.
  /// If a thread reads it and then passes data to another thread, that thread reads no smaller value. Requires is_usable().
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t now() noexcept
  {
#if RMM_DETAIL_HAS_TIME_COUNTER
    std::uint32_t low{};
    std::uint32_t high{};
    // Without the fence the processor may read the counter before an earlier load has completed. Later stores need no fence: they
    // become visible only after rdtsc has completed.
    asm volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
    return std::uint64_t{high} << 32U | low;
#else
    return 0;
#endif
  }

  /// Returns the counter without the order that now() guarantees: the value may be slightly older. Costs half as much as now().
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t about_now() noexcept
  {
#if RMM_DETAIL_HAS_TIME_COUNTER
    std::uint32_t low{};
    std::uint32_t high{};
    asm volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return std::uint64_t{high} << 32U | low;
#else
    return 0;
#endif
  }

 private:
#if RMM_DETAIL_HAS_TIME_COUNTER
  /// Whether the processor says that the rate is independent of its frequency and its sleep states.
  [[nodiscard]] RMM_COLD static bool is_invariant() noexcept
  {
    unsigned a{};
    unsigned b{};
    unsigned c{};
    unsigned d{};
    return __get_cpuid(0x8000'0007U, &a, &b, &c, &d) != 0 && (d >> 8U & 1U) != 0;
  }

  /// Whether the system's clock uses this counter. The system uses another source if the counters of its processors disagree, or, in a
  /// virtual machine, if the counter is not reliable.
  [[nodiscard]] RMM_COLD static bool is_clock_of_system() noexcept
  {
    auto* const file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (file == nullptr) { return false; }
    char name[16]{};
    bool const is_read = std::fgets(name, sizeof name, file) != nullptr;
    std::fclose(file);
    return is_read && std::strcmp(name, "tsc\n") == 0;
  }
#else
  [[nodiscard]] static bool is_invariant() noexcept { return false; }
  [[nodiscard]] static bool is_clock_of_system() noexcept { return false; }
#endif
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
