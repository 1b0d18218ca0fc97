// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

RMM_PROCESS_WIDE_ANCHOR(rmm_process_exit_v1, 8);

namespace RMM_NAMESPACE {
namespace detail {

/// Whether the process has begun to exit: one for all its shared objects.
struct process_exit {
  std::atomic<bool> has_begun{false};
  /// Registers a handler of std::atexit() that sets the flag. Its code is that of the shared object that made this, which stays
  /// loaded: else the handler would run when that is unloaded.
  void (*register_handler)() noexcept {};
};

/// The one of this process; never destroyed. Throws std::bad_alloc.
[[nodiscard]] RMM_HIDDEN inline process_exit& exit_of_process()
{
  auto* found = static_cast<process_exit*>(rmm_process_exit_v1.load(std::memory_order_acquire));
  if (found == nullptr) {
    found = static_cast<process_exit*>(find_or_publish(
      rmm_process_exit_v1,
      8,
      []() -> void* {
        auto* const made       = new process_exit;
        made->register_handler = []() noexcept {
          static_cast<void>(std::atexit([] {
            static_cast<process_exit*>(rmm_process_exit_v1.load(std::memory_order_acquire))
              ->has_begun.store(true, std::memory_order_release);
          }));
        };
        return made;
      },
      [](void* spare) { delete static_cast<process_exit*>(spare); }));
  }
  return *found;
}

/// From here on, process_is_exiting() is true in destructors of objects that exist now.
///
/// Exit handlers run in reverse order: this one before the destructors of process-lifetime objects
/// made earlier, and before the CUDA driver's own if the program has called CUDA already. May be
/// called more than once.
RMM_HIDDEN inline void register_process_exit_hook() noexcept
{
  try {
    exit_of_process().register_handler();
  } catch (std::bad_alloc const&) {}  // then process_is_exiting() stays false
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
