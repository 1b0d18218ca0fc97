// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_shutdown.hpp>

#include <atomic>

namespace RMM_NAMESPACE {
namespace detail {

/// A hook for each shared object that includes this, made while it initialises its global objects.
RMM_HIDDEN inline process_exit_hook const process_exit_hook_of_globals{};

}  // namespace detail

/// Whether the process has begun to exit, so that the CUDA runtime may be gone. For destructors
/// that would call it.
[[nodiscard]] RMM_HIDDEN inline bool process_is_exiting() noexcept
{
  return detail::process_exit_has_begun.load(std::memory_order_acquire);
}

}  // namespace RMM_NAMESPACE
