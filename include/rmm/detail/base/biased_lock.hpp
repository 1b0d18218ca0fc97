// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <sched.h>
#include <atomic>
#include <ctime>

// Whether the system has a call for a barrier in all threads; a build may define that it has none.
#if !defined(RMM_DETAIL_HAS_MEMBARRIER)
#if defined(__linux__) && __has_include(<linux/membarrier.h>)
#define RMM_DETAIL_HAS_MEMBARRIER 1
#else
#define RMM_DETAIL_HAS_MEMBARRIER 0
#endif
#endif
#if RMM_DETAIL_HAS_MEMBARRIER
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace RMM_NAMESPACE {
namespace detail {

/// Makes every running thread of the process pass a full memory barrier, where the system has a call for that.
class process_barrier {
 public:
  /// Whether there is such a call; asked once. ThreadSanitizer does not understand it, so never under that.
  [[nodiscard]] static bool is_available() noexcept
  {
#if RMM_DETAIL_HAS_MEMBARRIER && !RMM_DETAIL_THREAD_SANITIZER
    static bool const available =
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 && pass_all_threads();
    return available;
#else
    return false;
#endif
  }

  /// Does it; returns whether it worked.
  static bool pass_all_threads() noexcept
  {
#if RMM_DETAIL_HAS_MEMBARRIER
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
#else
    return false;
#endif
  }
};

/// A lock that costs its one owner a few plain instructions, and the others, who come rarely, a barrier in all threads.
///
/// One thread is the owner; it enters and leaves. Any other that wants what is guarded makes the owner stay out:
/// begin_keeping_out(), then, for any number of locks, one process_barrier::pass_all_threads(), then wait_until_left(); and
/// end_keeping_out() when it is done. Only one thread at a time does that, which the caller sees to with a mutex; an owner
/// that is kept out takes the same mutex to wait.
///
/// Invariants:
///  O1  between wait_until_left() and end_keeping_out() the owner is not inside
///  O2  what the owner wrote inside is seen by who kept it out, and the other way round
///
/// O1 is Dekker's argument. The owner sets `inside_` and then reads `kept_out`; the other sets `kept_out` and then reads
/// `inside_`; a full barrier between the two steps on both sides makes at least one of them see the other. The owner's
/// barrier is the one that pass_all_threads() runs on its behalf, so that on its own path only the compiler is kept
/// from changing the order. Without such a call it executes the barrier itself, and looks again. O2 is by release and acquire
/// on both flags.
class biased_lock {
 public:
  /// For the owner. Returns false, and has not entered, if it is kept out.
  [[nodiscard]] RMM_ALWAYS_INLINE bool try_enter() noexcept
  {
    if constexpr (RMM_DETAIL_THREAD_SANITIZER == 1) {
      inside_.exchange(true, std::memory_order_seq_cst);
    } else {
      inside_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    if (state_.load(std::memory_order_seq_cst) == 0) { return true; }
    if constexpr (RMM_DETAIL_THREAD_SANITIZER == 0) { std::atomic_thread_fence(std::memory_order_seq_cst); }
    if ((state_.load(std::memory_order_seq_cst) & kept_out) == 0) { return true; }
    leave();
    return false;
  }

  /// For the owner, who is inside.
  RMM_ALWAYS_INLINE void leave() noexcept { inside_.store(false, std::memory_order_release); }

  void begin_keeping_out() noexcept { state_.fetch_or(kept_out, std::memory_order_seq_cst); }

  /// Waits until the owner is outside. An owner that runs leaves within a few yields. Then this sleeps: a thread with a
  /// real-time priority never yields to an owner of lower priority on its core.
  void wait_until_left() const noexcept
  {
    for (int yields = 0; inside_.load(std::memory_order_seq_cst); ++yields) {
      if (yields == most_yields) { return sleep_until_left(); }
      ::sched_yield();
    }
  }

  void end_keeping_out() noexcept
  {
    state_.fetch_and(static_cast<unsigned char>(~kept_out), std::memory_order_release);
  }

 private:
  static constexpr unsigned char kept_out      = 1;
  static constexpr unsigned char needs_barrier = 2;  // the owner does, always

  static constexpr int most_yields        = 64;
  static constexpr long shortest_sleep_ns = 20'000;
  static constexpr long longest_sleep_ns  = 1'000'000;

  RMM_COLD void sleep_until_left() const noexcept
  {
    timespec pause{0, shortest_sleep_ns};
    while (inside_.load(std::memory_order_seq_cst)) {
      ::nanosleep(&pause, nullptr);  // a signal ends it early: then this looks again
      pause.tv_nsec = pause.tv_nsec < longest_sleep_ns / 2 ? 2 * pause.tv_nsec : longest_sleep_ns;
    }
  }

  [[nodiscard]] static unsigned char first_state() noexcept
  {
    return RMM_DETAIL_THREAD_SANITIZER == 1 || process_barrier::is_available() ? 0 : needs_barrier;
  }

  std::atomic<bool> inside_{false};
  std::atomic<unsigned char> state_{first_state()};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
