// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

RMM_PROCESS_WIDE_ANCHOR(rmm_process_exit_v1, 8);

namespace RMM_NAMESPACE {
namespace detail {

/// A flag that says whether the process has begun to exit. All shared objects of the process use one.
///
/// Order: has_begun guards no data. The thread that exits sets it before it runs destructors, which are what has to see it. Another thread
/// may see it late, as if it had asked earlier.
struct process_exit {
  std::atomic<bool> has_begun{false};
  /// Registers a handler with std::atexit() that sets the flag. The code is in the shared object that created this struct, which stays
  /// loaded. A handler in another object would also run when that object is unloaded.
  void (*register_handler)() noexcept {};
};

/// Returns the flag of this process, which is never destroyed. Throws std::bad_alloc.
[[nodiscard]] RMM_HIDDEN inline process_exit& exit_of_process()
{
  return process_wide_object<process_exit>(rmm_process_exit_v1, 8, [] {
    auto* const made       = new process_exit;
    made->register_handler = []() noexcept {
      static_cast<void>(std::atexit([] {
        static_cast<process_exit*>(rmm_process_exit_v1.load(std::memory_order_acquire))
          ->has_begun.store(true, std::memory_order_release);
      }));
    };
    return made;
  });
}

/// Makes process_is_exiting() return true in destructors of static objects that exist now.
///
/// Exit handlers run in reverse order of registration: this one runs before the destructors of static objects made earlier, and before
/// the CUDA driver's handler if the program has called CUDA already. May be called more than once.
RMM_HIDDEN inline void register_process_exit_hook() noexcept
{
  try {
    exit_of_process().register_handler();
  } catch (std::bad_alloc const&) {}  // then process_is_exiting() stays false
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
