// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compiles headers of the library with the explorer's variables in place of the standard library's.
//
// In a header of namespace rmm, std::atomic means rmm::std::atomic. A source has to include this file first, and all
// sources of a program have to include it, because it changes classes of the library. It also replaces what the library
// uses of the system: locks of pthreads, membarrier, futexes, the clock and the number of processors.

#include "weak_memory.hpp"

#include <rmm/detail/export.hpp>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <ctime>

#include <cstddef>
#include <memory>
#include <mutex>

namespace RMM_NAMESPACE {

namespace std {
using namespace ::std;  // NOLINT: for all other names
using ::weak_memory::atomic;
using ::weak_memory::atomic_signal_fence;
using ::weak_memory::atomic_thread_fence;
using ::weak_memory::mutex;
}  // namespace std

namespace detail {

// Variables instead of functions, because argument-dependent lookup would also find the system's functions.

inline constexpr auto pthread_mutex_lock = [](pthread_mutex_t* held) noexcept {
  ::weak_memory::mutex_of(held).lock();
  return 0;
};
inline constexpr auto pthread_mutex_trylock = [](pthread_mutex_t* held) noexcept {
  return ::weak_memory::mutex_of(held).try_lock() ? 0 : 1;
};
inline constexpr auto pthread_mutex_unlock = [](pthread_mutex_t* held) noexcept {
  ::weak_memory::mutex_of(held).unlock();
  return 0;
};

inline bool membarrier_has_effect = true;

struct modelled_syscall {
  template <class... Arguments>
  long operator()(long call, Arguments... arguments) const
  {
    if (call != SYS_membarrier) { return ::syscall(call, arguments...); }
    int const command[]{static_cast<int>(arguments)...};
    bool const passes = command[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED && membarrier_has_effect;
    if (passes) { ::weak_memory::barrier_in_all_threads(); }
    return 0;
  }

  /// SYS_futex
  long operator()(long /*call*/,
                  ::weak_memory::atomic<int>* watched,
                  int operation,
                  int value,
                  std::nullptr_t /*timeout*/,
                  std::nullptr_t /*other*/,
                  int /*other value*/) const
  {
    if (operation == FUTEX_WAIT_PRIVATE) { ::weak_memory::futex_wait(*watched, value); }
    if (operation == FUTEX_WAKE_PRIVATE) { ::weak_memory::futex_wake(*watched); }
    return 0;
  }
};
inline constexpr modelled_syscall syscall{};

/// Each thread has a clock of its own, which goes on by 70 us whenever it is read: no decision depends on the time of the run.
inline constexpr auto clock_gettime = [](clockid_t /*which*/, timespec* now) noexcept {
  thread_local long us{0};
  us += 70;
  *now = {0, us * 1000};
  return 0;
};

inline int modelled_processors          = 2;
inline constexpr auto sched_getaffinity = [](pid_t /*thread*/, std::size_t /*bytes*/, cpu_set_t* usable) noexcept {
  CPU_ZERO(usable);
  for (int i = 0; i != modelled_processors; ++i) { CPU_SET(i, usable); }
  return 0;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
