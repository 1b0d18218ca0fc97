// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

#include <cstdint>
#include <mutex>

/// @file
/// The end of the process, and its children.

namespace rmm_c {

/// Returns the number of forks between the process that loaded the library and this one. Objects of another generation cannot be used.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// Whether CUDA may be used for an object of `generation`: not while the process exits, nor in a child.
[[nodiscard]] bool may_use_cuda(std::uint32_t generation) noexcept;

/// Returns RMM_C_OK if CUDA may be used for an object of `generation`, or keeps a failure that says why not.
[[nodiscard]] rmm_c_status check_may_use_cuda(std::uint32_t generation) noexcept;

/// Returns RMM_C_OK if CUDA may be used for a new object. Else keeps a failure that says why: the process exits, or was
/// forked from one that had called note_that_cuda_is_used().
[[nodiscard]] rmm_c_status check_may_begin_to_use_cuda() noexcept;

/// Notes that CUDA was used. Call it after each first use of CUDA, so that CUDA's exit handlers run after the one that this registers.
void note_that_cuda_is_used() noexcept;

/// Returns the mutex of the library's lists. It is never held while CUDA is called, and is free in a new child.
[[nodiscard]] std::mutex& list_mutex() noexcept;

/// Returns the mutex under which default resources are made. It is free in a new child, because fork() waits for it.
[[nodiscard]] std::mutex& default_resource_mutex() noexcept;

}  // namespace rmm_c
