// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>

#if RMM_DETAIL_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace RMM_NAMESPACE {
namespace detail {

/// A mutex for sections of about a microsecond that many threads enter. A thread that waits spins for a while, then sleeps.
///
/// A thread that sleeps runs again 50 microseconds after the mutex became free, or later. If all waiting threads sleep at once, the mutex
/// is free most of the time, and the slowest calls take as long as hundreds of sections. So threads take turns and spin until theirs has
/// come. If as many threads spin as there are processors but one, further threads sleep at once. unlock() wakes one thread that sleeps,
/// which takes a turn in any case.
///
/// Passing the mutex on takes about as long as a section, because each processor has to fetch what the last one wrote. So a thread that
/// would have to wait in run() beside another one that waits leaves its section in a list and spins. The thread that holds the mutex in
/// run() or run_here() runs the sections of the list before it unlocks. First it fetches what the threads that left them wrote last.
///
/// Invariants:
///  M1  one thread at a time is between lock() and unlock(), or runs sections, and sees what the threads before it wrote
///  M2  while threads sleep, `state_` is `slept_for`, or a thread that was woken has not tried to lock the mutex again; it tries with
///      `slept_for`
///  M3  turns only say who tries next: a thread whose turn does not come for longest_spin_ns tries without it. A thread that left a section
///      waits that long for it before it takes a turn. So a thread that does not run holds up others no longer than twice that, unless it
///      holds the mutex.
///  M4  a section that was left is run once, by a thread that holds the mutex, before the run() that left it returns: a thread that gives
///      up waiting locks the mutex, and runs its section unless another thread has taken it from the list. Whoever takes sections from the
///      list runs them before it unlocks, and does not touch one that is done.
///
/// Order: M1 follows from release and acquire on `state_`. Turns are relaxed, because of M3. For M4, the thread that runs a section acquires
/// it from `left_`, and the one that left it acquires `done`. tests/models/spinning_mutex_model.cpp tries all executions of two threads.
/// spinning_mutex.pml has the interleavings of three threads in lock().
class spinning_mutex {
 public:
#if defined(RMM_ENABLE_ASSERTIONS) || defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
  // So that tests leave sections on two processors.
  static constexpr std::uint64_t usual_least_waiting = 0;
#else
  static constexpr std::uint64_t usual_least_waiting = 1;
#endif

  /// Addresses in cache lines that a section will use, and that its thread wrote lately; null for none.
  using used_lines = std::array<void const*, 4>;

  constexpr spinning_mutex() noexcept = default;
  /// Threads leave their sections if at least so many others wait. The first one that waits gains nothing by it.
  explicit spinning_mutex(std::uint64_t least_waiting) noexcept : least_waiting_{least_waiting} {}
  spinning_mutex(spinning_mutex const&)            = delete;
  spinning_mutex& operator=(spinning_mutex const&) = delete;
#if RMM_DETAIL_THREAD_SANITIZER
  ~spinning_mutex() { __tsan_mutex_destroy(this, 0); }
#endif

  void lock() noexcept
  {
#if RMM_DETAIL_THREAD_SANITIZER  // which checks the order in which mutexes are locked, too
    __tsan_mutex_pre_lock(this, 0);
#endif
    if (turns_waiting() != 0 || !try_lock_as(held)) { lock_in_turn(); }
#if RMM_DETAIL_THREAD_SANITIZER
    __tsan_mutex_post_lock(this, 0, 0);
#endif
  }

  /// Calls section() once, with the mutex locked: in this thread, or in another one that is in run() or run_here(). Returns when it has
  /// ended.
  ///
  /// section() must not throw, lock the mutex, depend on the thread that calls it, or wait for a thread that is in run().
  template <class Section>
  void run(Section const& section, used_lines const& uses = {}) noexcept
  {
    if (!try_lock()) {
      left_section mine{[](void const* left) noexcept { (*static_cast<Section const*>(left))(); }, &section, uses};
      if (try_leave(mine)) { return; }
      lock();
    }
    section();
    unlock_after_left();
  }

  /// As run(), but always in this thread.
  template <class Section>
  void run_here(Section const& section) noexcept
  {
    lock();
    section();
    unlock_after_left();
  }

  void unlock() noexcept
  {
#if RMM_DETAIL_THREAD_SANITIZER
    __tsan_mutex_pre_unlock(this, 0);
#endif
    if (state_.exchange(not_held, std::memory_order_release) == slept_for) { call_futex(futex_wake, 1); }
#if RMM_DETAIL_THREAD_SANITIZER
    __tsan_mutex_post_unlock(this, 0);
#endif
  }

 private:
  static constexpr int not_held  = 0;
  static constexpr int held      = 1;
  static constexpr int slept_for = 2;  // held, and other threads may sleep

  static constexpr std::size_t most_run_for_others = 64;      // until then further sections are taken from the list
  static constexpr std::int64_t longest_spin_ns    = 60'000;  // about what a sleep takes
  static constexpr int futex_wait                  = 128;     // FUTEX_WAIT_PRIVATE; <linux/futex.h> has 200 lines
  static constexpr int futex_wake                  = 129;     // FUTEX_WAKE_PRIVATE

  /// A section that waits in the list of those that were left. It lies on the stack of its thread, which waits until it is done.
  struct left_section {
    void (*run)(void const* section) noexcept;
    void const* section;
    used_lines uses;
    left_section* next{};
    std::atomic<bool> done{false};
  };

  // Constant-initialized: a forked child would wait for ever for a thread of its parent that initializes a static variable.
  inline static std::atomic<int> processors{0};  // 0: not known

  /// Locks the mutex if it is free and no thread waits for its turn. Returns whether it did.
  [[nodiscard]] bool try_lock() noexcept
  {
    bool const locked = turns_waiting() == 0 && try_lock_as(held);
#if RMM_DETAIL_THREAD_SANITIZER  // as a lock(), because a thread that cannot lock waits
    if (locked) {
      __tsan_mutex_pre_lock(this, 0);
      __tsan_mutex_post_lock(this, 0, 0);
    }
#endif
    return locked;
  }

  [[nodiscard]] bool try_lock_as(int locked) noexcept
  {
    auto free = not_held;
    return state_.load(std::memory_order_relaxed) == not_held &&
           state_.compare_exchange_strong(free, locked, std::memory_order_acquire);
  }

  /// The turns that were taken and have not ended. Wraps, if one is taken between the two loads: then too many wait.
  [[nodiscard]] std::uint64_t turns_waiting() const noexcept
  {
    return turns_.load(std::memory_order_relaxed) - served_.load(std::memory_order_relaxed);
  }

  /// Returns about how many threads spin.
  [[nodiscard]] std::uint64_t spinning() const noexcept
  {
    return turns_waiting() + leaving_.load(std::memory_order_relaxed);
  }

  /// Returns how many threads may spin: there has to be a processor for the thread that holds the mutex.
  [[nodiscard]] static std::uint64_t most_spinning() noexcept
  {
    return static_cast<std::uint64_t>(usable_processors() - 1);
  }

  /// Leaves a section to the thread that holds the mutex, and spins until it is done. Runs it here if this thread gets the mutex first.
  /// Returns false, and leaves nothing, if few other threads wait, or if enough spin.
  [[nodiscard]] RMM_COLD bool try_leave(left_section& mine) noexcept
  {
    if (auto const others = spinning(); others < least_waiting_ || others >= most_spinning()) { return false; }
    leaving_.fetch_add(1, std::memory_order_relaxed);
    mine.next = left_.load(std::memory_order_relaxed);
    while (!left_.compare_exchange_weak(mine.next, &mine, std::memory_order_release, std::memory_order_relaxed)) {}
    auto const end = now_ns() + longest_spin_ns;
    bool done      = false;
    do {
      pause();
      if (try_lock()) { unlock_after_left(); }
      done = mine.done.load(std::memory_order_acquire);
    } while (!done && now_ns() < end);
    leaving_.fetch_sub(1, std::memory_order_relaxed);
    if (!done) {
      lock();
      unlock_after_left();
    }
    return true;
  }

  /// Runs all sections that had been left when the mutex was locked, and some that are left meanwhile. Then unlocks the mutex.
  void unlock_after_left() noexcept
  {
    for (std::size_t ran = 0; ran < most_run_for_others && left_.load(std::memory_order_relaxed) != nullptr;) {
      for (auto* each = in_order(left_.exchange(nullptr, std::memory_order_acquire)); each != nullptr; ++ran) {
        auto* const next = each->next;  // its thread may go on once it is done
        each->run(each->section);
        each->done.store(true, std::memory_order_release);
        each = next;
      }
    }
    unlock();
  }

  /// Lets the processor begin to fetch a cache line. The address need not be that of an object any more.
  static void fetch([[maybe_unused]] void const* line) noexcept
  {
#if defined(__GNUC__)
    if (line != nullptr) { __builtin_prefetch(line); }
#endif
  }

  /// Turns a list round: what was left first comes first. Fetches what the sections use.
  [[nodiscard]] static left_section* in_order(left_section* newest) noexcept
  {
    left_section* first{};
    while (newest != nullptr) {
      auto* const older = newest->next;
      newest->next      = first;
      fetch(newest->section);
      for (auto const* line : newest->uses) { fetch(line); }
      first  = newest;
      newest = older;
    }
    return first;
  }

  RMM_COLD void lock_in_turn() noexcept
  {
    auto lock_as = held;
    while (!try_spinning(lock_as)) {
      if (state_.exchange(slept_for, std::memory_order_acquire) == not_held) { return; }
      call_futex(futex_wait, slept_for);
      lock_as = slept_for;  // M2
    }
  }

  /// Takes a turn, unless enough threads spin, and tries to lock when it has come.
  [[nodiscard]] bool try_spinning(int lock_as) noexcept
  {
    auto const most  = most_spinning();
    bool const woken = lock_as == slept_for;
    if (most == 0 || (!woken && spinning() >= most)) { return false; }
    auto const turn = turns_.fetch_add(1, std::memory_order_relaxed);
    auto const end  = now_ns() + longest_spin_ns;
    bool locked     = false;
    do {
      pause();
      locked = served_.load(std::memory_order_relaxed) >= turn && try_lock_as(lock_as);
    } while (!locked && now_ns() < end);
    end_turn(turn);
    return locked;
  }

  void end_turn(std::uint64_t turn) noexcept
  {
    auto served = served_.load(std::memory_order_relaxed);
    while (served <= turn) {
      if (served_.compare_exchange_weak(served, turn + 1, std::memory_order_relaxed)) { return; }
    }
  }

  /// The processors that the process may use, as far as the calling thread tells: one that is bound to a processor says nothing about the
  /// others, so its answer is not kept.
  [[nodiscard]] static int usable_processors() noexcept
  {
    auto const known = processors.load(std::memory_order_relaxed);
    if (known != 0) { return known; }
    auto const kept = errno;
    cpu_set_t usable;
    bool const failed = sched_getaffinity(0, sizeof usable, &usable) != 0;  // as on machines with more than CPU_SETSIZE
    errno             = kept;
    auto const count  = failed ? CPU_SETSIZE : CPU_COUNT(&usable);
    if (count > 1) { processors.store(count, std::memory_order_relaxed); }
    return count;
  }

  [[nodiscard]] static std::int64_t now_ns() noexcept
  {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

  /// Lets the processor's other thread run.
  static void pause() noexcept
  {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }

  void call_futex(int operation, int value) noexcept
  {
    auto const kept = errno;
    syscall(SYS_futex, &state_, operation, value, nullptr, nullptr, 0);
    errno = kept;
  }

  // Threads that wait for their turn do not read the line of the state, which the thread that holds the mutex writes.
  alignas(64) std::atomic<int> state_{not_held};
  alignas(64) std::atomic<std::uint64_t> turns_{0};       // that were taken
  std::atomic<std::uint64_t> served_{0};                  // turns below this need not wait any more
  alignas(64) std::atomic<left_section*> left_{nullptr};  // the newest; each names the one before it
  std::atomic<std::uint64_t> leaving_{0};                 // threads that spin for a section that they left
  std::uint64_t const least_waiting_{usual_least_waiting};
};

using spinning_mutex_lock = basic_mutex_lock<spinning_mutex>;

}  // namespace detail
}  // namespace RMM_NAMESPACE
