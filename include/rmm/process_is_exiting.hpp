// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_shutdown.hpp>

#include <atomic>

namespace RMM_NAMESPACE {

/// Whether the process has begun to exit, so that the CUDA runtime may be gone. For destructors
/// that would call it.
[[nodiscard]] inline bool process_is_exiting() noexcept
{
  return detail::process_exit_has_begun.load(std::memory_order_acquire);
}

}  // namespace RMM_NAMESPACE
