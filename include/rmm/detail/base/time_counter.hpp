// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>

// Whether the processor has a counter of time that programs may read; a build may define that it has none.
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

/// The counter of time in the processor: on x86-64 the time-stamp counter.
///
/// Where is_usable(), it advances at one rate whatever the processor's clock does, and all processors of the machine count alike.
/// On other machines the system's clock is read instead; what that costs more on aarch64 has not been measured.
class time_counter {
 public:
  /// Whether now() may be called, and means something; asked once.
  [[nodiscard]] static bool is_usable() noexcept
  {
    static bool const usable = is_invariant() && is_clock_of_system();
    return usable;
  }

  /// Requires is_usable(). Read after all that the thread did before has happened, and before what it does afterwards can
  /// be seen: if one thread reads it and then hands something over, another that has got that reads no less.
  [[nodiscard]] RMM_ALWAYS_INLINE static std::uint64_t now() noexcept
  {
#if RMM_DETAIL_HAS_TIME_COUNTER
    std::uint32_t low{};
    std::uint32_t high{};
    // Without the fence it may be read while an earlier load still waits for what another thread is writing. Later stores
    // cannot be seen before it is done.
    asm volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
    return std::uint64_t{high} << 32U | low;
#else
    return 0;
#endif
  }

  /// The same, but perhaps a little earlier: not in order with what other threads did. Costs half as much.
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
  /// Whether the processor says that neither its speed nor its sleep changes the rate.
  [[nodiscard]] RMM_COLD static bool is_invariant() noexcept
  {
    unsigned a{};
    unsigned b{};
    unsigned c{};
    unsigned d{};
    return __get_cpuid(0x8000'0007U, &a, &b, &c, &d) != 0 && (d >> 8U & 1U) != 0;
  }

  /// Whether the system's clock is made of it. The system compares the counters of all processors and turns to another source where
  /// they disagree; of virtual machines it turns to this one where that can be relied on.
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
