// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <sched.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>

// Whether the system has a call for a memory barrier in all threads. A build may define it as 0.
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

/// A full memory barrier in every running thread of the process, on systems that have a call for it.
class process_barrier {
 public:
  /// Whether the system has such a call; the first answer stays. Always false with ThreadSanitizer, which does not know the call.
  [[nodiscard]] static bool is_available() noexcept
  {
#if RMM_DETAIL_HAS_MEMBARRIER && !RMM_DETAIL_THREAD_SANITIZER
    auto const known = first_answer.load(std::memory_order_relaxed);
    return (known != answer::unknown ? known : ask()) == answer::yes;
#else
    return false;
#endif
  }

  /// Executes the barrier in all threads if it is available; else does nothing, because owners of locks execute it themselves.
  ///
  /// A call that worked once can fail later: a restored checkpoint has lost the registration, which is repeated; a sandbox may forbid
  /// the call, which ends the process. Without the barrier two threads could be inside one lock, and hand out memory twice.
  static void pass_all_threads() noexcept
  {
#if RMM_DETAIL_HAS_MEMBARRIER && !RMM_DETAIL_THREAD_SANITIZER
    if (!is_available() || try_pass() || try_register_and_pass()) { return; }
    std::fputs("RMM: the system call membarrier() worked before and fails now; the memory pools cannot go on\n",
               stderr);
    std::abort();
#endif
  }

 private:
#if RMM_DETAIL_HAS_MEMBARRIER && !RMM_DETAIL_THREAD_SANITIZER
  enum class answer : unsigned char { unknown, yes, no };

  // Constant-initialized: a forked child would wait for ever for a thread of its parent that initializes a static variable. To ask takes
  // 10 to 30 ms. Order: none is needed. A thread whose call does not see the registration yet registers again.
  inline static std::atomic<answer> first_answer{answer::unknown};

  [[nodiscard]] RMM_COLD static answer ask() noexcept
  {
    auto first       = answer::unknown;
    auto const found = try_register_and_pass() ? answer::yes : answer::no;
    return first_answer.compare_exchange_strong(first, found, std::memory_order_relaxed) ? found : first;
  }

  [[nodiscard]] static bool try_pass() noexcept
  {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  }

  [[nodiscard]] RMM_COLD static bool try_register_and_pass() noexcept
  {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 && try_pass();
  }
#endif
};

/// A lock that costs its owner, one thread, a few plain instructions. Other threads use it rarely, and pay for a barrier in all threads.
///
/// The owner calls try_enter() and leave(). Another thread locks the owner out of any number of locks: begin_keeping_out() for each,
/// one process_barrier::pass_all_threads(), then wait_until_left() for each. It calls end_keeping_out() when it is done, or leaves that to
/// the owner. A mutex of the caller makes sure that one thread at a time does this; an owner that is locked out waits for that mutex.
///
/// Invariants:
///  O1  between wait_until_left() and end_keeping_out() the owner is not inside
///  O2  a thread that locked the owner out sees what the owner wrote inside, and the owner later sees what that thread wrote
///
/// O1 is Dekker's argument. The owner sets `inside_` and then reads `kept_out`. The other thread sets `kept_out` and then reads
/// `inside_`. With a full barrier between the two steps on both sides, at least one thread sees the flag of the other.
/// pass_all_threads() executes the owner's barrier, so that the owner only has to stop the compiler from reordering. If the system has
/// no such call, the owner executes the barrier itself and reads again.
///
/// Order: the owner's barrier X is a seq_cst fence, and the other thread's read Y of `inside_` is seq_cst,
/// so one of them comes first in the single order of such operations. If X comes first, Y reads what the owner stored before X, or a
/// later value. If Y comes first, so does begin_keeping_out(), and the owner, which reads `state_` after X, sees `kept_out`. C++ has no
/// pass_all_threads(). It acts as if each thread executed a seq_cst fence during the call, so the same holds for the fence of the owner.
///
/// O2 follows from release and acquire on both flags: wait_until_left() reads what leave() released, and try_enter() reads what
/// end_keeping_out() released. tests/models/biased_lock_model.cpp tries all executions.
class biased_lock {
 public:
  /// Enters; called by the owner. Returns false, and does not enter, if the owner is locked out.
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

  /// Leaves; called by the owner, which is inside.
  RMM_ALWAYS_INLINE void leave() noexcept { inside_.store(false, std::memory_order_release); }

  void begin_keeping_out() noexcept { state_.fetch_or(kept_out, std::memory_order_seq_cst); }

  /// Waits until the owner is outside. Yields first, because a running owner leaves soon. Sleeps later: a thread with real-time
  /// priority never yields to an owner of lower priority on the same core.
  void wait_until_left() const noexcept
  {
    for (int yields = 0; inside_.load(std::memory_order_seq_cst); ++yields) {
      if (yields == max_yields) { return sleep_until_left(); }
      ::sched_yield();
    }
  }

  /// Does nothing if the owner is not locked out: an atomic change would first wait for all earlier writes.
  void end_keeping_out() noexcept
  {
    if ((state_.load(std::memory_order_relaxed) & kept_out) == 0) { return; }
    state_.fetch_and(static_cast<unsigned char>(~kept_out), std::memory_order_release);
  }

 private:
  static constexpr unsigned char kept_out      = 1;
  static constexpr unsigned char needs_barrier = 2;  // set if the owner has to execute its barrier itself

  static constexpr int max_yields         = 64;
  static constexpr long shortest_sleep_ns = 20'000;
  static constexpr long longest_sleep_ns  = 1'000'000;

  RMM_COLD void sleep_until_left() const noexcept
  {
    timespec pause{0, shortest_sleep_ns};
    while (inside_.load(std::memory_order_seq_cst)) {
      ::nanosleep(&pause, nullptr);  // may return early on a signal
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
