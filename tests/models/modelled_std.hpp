// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compiles headers of the library with the explorer's variables in place of the standard library's.
//
// In a header of namespace rmm, std::atomic means rmm::std::atomic. A source has to include this file first, and all
// sources of a program have to include it, because it changes classes of the library. It also replaces what the library
// uses of the system: locks of pthreads, and membarrier.

#include "weak_memory.hpp"

#include <rmm/detail/export.hpp>

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

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

inline constexpr auto syscall = [](long call, auto... arguments) -> long {
  if (call == SYS_membarrier) {
    int const command[]{static_cast<int>(arguments)...};
    bool const passes = command[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED && membarrier_has_effect;
    if (passes) { ::weak_memory::barrier_in_all_threads(); }
    return 0;
  }
  return ::syscall(call, arguments...);
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
