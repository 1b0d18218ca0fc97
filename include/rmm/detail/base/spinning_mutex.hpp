// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <ctime>

namespace RMM_NAMESPACE {
namespace detail {

/// A mutex for sections of about a microsecond that many threads enter: a thread that waits spins for a while, then sleeps.
///
/// A thread that sleeps runs again 50 microseconds after the mutex became free, or later. If all waiting threads sleep at once, the mutex
/// is free most of the time, and the slowest calls take as long as hundreds of sections. So threads spin, one after the other in the order
/// in which they came, up to one thread less than there are processors. Of the others, unlock() wakes one, which then takes a turn.
///
/// Invariants:
///  M1  one thread at a time is between lock() and unlock(), and sees what the threads before it wrote
///  M2  while threads sleep, `state_` is `slept_for`, or a thread that was woken has not tried to lock the mutex again; it tries with
///      `slept_for`
///  M3  turns only say who tries next, and a thread whose turn does not come in time tries without it: no thread waits for one that does
///      not run, except for the one that holds the mutex
///
/// Order: M1 follows from release and acquire on `state_`. Turns are relaxed, because of M3. tests/models/spinning_mutex_model.cpp tries
/// all executions.
class spinning_mutex {
 public:
  constexpr spinning_mutex() noexcept              = default;
  spinning_mutex(spinning_mutex const&)            = delete;
  spinning_mutex& operator=(spinning_mutex const&) = delete;

  void lock() noexcept
  {
    if (spinning_threads() != 0 || !try_lock_as(held)) { lock_in_turn(); }
  }

  void unlock() noexcept
  {
    if (state_.exchange(not_held, std::memory_order_release) == slept_for) { call_futex(futex_wake, 1); }
  }

 private:
  static constexpr int not_held  = 0;
  static constexpr int held      = 1;
  static constexpr int slept_for = 2;  // held, and other threads may sleep

  static constexpr std::int64_t longest_spin_ns = 60'000;  // about what a sleep takes
  static constexpr int futex_wait               = 128;     // FUTEX_WAIT_PRIVATE; <linux/futex.h> has 200 lines
  static constexpr int futex_wake               = 129;     // FUTEX_WAKE_PRIVATE

  // Constant-initialized: a forked child would wait for ever for a thread of its parent that initializes a static variable.
  inline static std::atomic<int> processors{0};

  [[nodiscard]] bool try_lock_as(int locked) noexcept
  {
    auto free = not_held;
    return state_.load(std::memory_order_relaxed) == not_held &&
           state_.compare_exchange_strong(free, locked, std::memory_order_acquire);
  }

  [[nodiscard]] unsigned spinning_threads() const noexcept
  {
    return turns_.load(std::memory_order_relaxed) - served_.load(std::memory_order_relaxed);
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
    auto const most  = static_cast<unsigned>(usable_processors() - 1);
    bool const woken = lock_as == slept_for;
    if (most == 0 || (!woken && spinning_threads() >= most)) { return false; }
    auto const turn = turns_.fetch_add(1, std::memory_order_relaxed);
    auto const end  = now_ns() + longest_spin_ns;
    bool locked     = false;
    do {
      pause();
      locked = !is_before(served_.load(std::memory_order_relaxed), turn) && try_lock_as(lock_as);
    } while (!locked && now_ns() < end);
    end_turn(turn);
    return locked;
  }

  void end_turn(unsigned turn) noexcept
  {
    auto served = served_.load(std::memory_order_relaxed);
    while (is_before(served, turn + 1)) {
      if (served_.compare_exchange_weak(served, turn + 1, std::memory_order_relaxed)) { return; }
    }
  }

  /// Compares turns, whose numbers begin again at 0 after 2^32.
  [[nodiscard]] static bool is_before(unsigned one, unsigned other) noexcept
  {
    return static_cast<int>(one - other) < 0;
  }

  /// The processors that the process may use, as far as the calling thread tells: one that is bound to a processor says nothing about the
  /// others. The first answer stays.
  [[nodiscard]] static int usable_processors() noexcept
  {
    auto const known = processors.load(std::memory_order_relaxed);
    if (known != 0) { return known; }
    cpu_set_t usable;
    int count = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
    if (count == 1) { count = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }
    count = count > 1 ? count : 1;
    processors.store(count, std::memory_order_relaxed);
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
    syscall(SYS_futex, &state_, operation, value, nullptr, nullptr, 0);
  }

  // Threads that wait for their turn do not read the line of the state, which the thread that holds the mutex writes.
  alignas(64) std::atomic<int> state_{not_held};
  alignas(64) std::atomic<unsigned> turns_{0};  // that were taken
  std::atomic<unsigned> served_{0};             // turns below this need not wait any more
};

using spinning_mutex_lock = basic_mutex_lock<spinning_mutex>;

}  // namespace detail
}  // namespace RMM_NAMESPACE
