// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_shutdown.hpp>

#include <atomic>
#include <new>

namespace RMM_NAMESPACE {
namespace detail {

/// A handler for each shared object that includes this, registered while it initialises its global objects.
RMM_HIDDEN inline bool const process_exit_hook_is_set{(register_process_exit_hook(), true)};

}  // namespace detail

/// Whether the process has begun to exit, so that the CUDA runtime may be gone. For destructors
/// that would call it.
[[nodiscard]] RMM_HIDDEN inline bool process_is_exiting() noexcept
{
  try {
    return detail::exit_of_process().has_begun.load(std::memory_order_acquire);
  } catch (std::bad_alloc const&) {
    return false;
  }
}

}  // namespace RMM_NAMESPACE
