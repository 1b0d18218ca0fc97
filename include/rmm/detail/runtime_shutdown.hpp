// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstdlib>

namespace RMM_NAMESPACE {
namespace detail {

/// Set by the first of the hooks to run.
inline std::atomic<bool> process_exit_has_begun{false};

/// From here on, process_is_exiting() is true in destructors of objects that exist now.
///
/// Exit handlers run in reverse order: this one before the destructors of process-lifetime objects
/// made earlier, and before the CUDA driver's own if the program has called CUDA already. May be
/// called more than once.
inline void register_process_exit_hook() noexcept
{
  static_cast<void>(std::atexit([] { process_exit_has_begun.store(true, std::memory_order_release); }));
}

/// A hook for each process that includes this, set while it initialises its global objects.
inline bool const process_exit_hook_is_set{(register_process_exit_hook(), true)};

}  // namespace detail
}  // namespace RMM_NAMESPACE
