// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_shutdown.hpp>

#include <atomic>
#include <new>

namespace RMM_NAMESPACE {
namespace detail {

/// Registers an exit handler in each shared object that includes this header, while its global objects are initialised.
RMM_HIDDEN inline bool const process_exit_hook_is_set{(register_process_exit_hook(), true)};

}  // namespace detail

/// Whether the process has begun to exit. The CUDA runtime may be shut down then: ask before a destructor calls it.
///
/// @code{.cpp}
/// if (!rmm::process_is_exiting()) { cudaDeviceSynchronize(); }
/// @endcode
[[nodiscard]] RMM_HIDDEN inline bool process_is_exiting() noexcept
{
  try {
    return detail::exit_of_process().has_begun.load(std::memory_order_acquire);
  } catch (std::bad_alloc const&) {
    return false;
  }
}

}  // namespace RMM_NAMESPACE
