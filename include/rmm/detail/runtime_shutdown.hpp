// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

/// Set by the first of the hooks to run. Each shared object has its own: one that is unloaded runs
/// its hooks while the process goes on.
RMM_HIDDEN inline std::atomic<bool> process_exit_has_begun{false};

/// Sets the flag when it is destroyed, as the static object that it has to be.
///
/// An object, not a function for std::atexit(): ThreadSanitizer calls such a function at exit even
/// if the shared object that has its code was unloaded.
class RMM_HIDDEN process_exit_hook {
 public:
  process_exit_hook()                                    = default;
  process_exit_hook(process_exit_hook const&)            = delete;
  process_exit_hook& operator=(process_exit_hook const&) = delete;
  ~process_exit_hook() { process_exit_has_begun.store(true, std::memory_order_release); }
};

/// From the first call on, process_is_exiting() is true in destructors of objects that exist then.
///
/// Exit handlers run in reverse order: this one before the destructors of process-lifetime objects
/// made earlier, and before the CUDA driver's own if the program has called CUDA already.
RMM_HIDDEN inline void register_process_exit_hook() noexcept { static process_exit_hook const hook{}; }

}  // namespace detail
}  // namespace RMM_NAMESPACE
