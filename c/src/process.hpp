// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

#include <cstdint>
#include <mutex>

/// @file
/// The life of the process: its end, and its children.

namespace rmm_c {

/// How often the process was forked on the way from the one that loaded the library. What a process made is unusable where this differs.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// Whether CUDA may be used for what was made in `generation`: not once the process exits, nor in a child.
[[nodiscard]] bool may_use_cuda(std::uint32_t generation) noexcept;

/// Returns RMM_C_OK if CUDA may be used for what was made in `generation`, or keeps a failure that says why not.
[[nodiscard]] rmm_c_status check_may_use_cuda(std::uint32_t generation) noexcept;

/// Returns RMM_C_OK if CUDA may be used for something new, or keeps a failure that says why not: the process exits, or is a child of one
/// in which note_that_cuda_is_used() was called.
[[nodiscard]] rmm_c_status check_may_begin_to_use_cuda() noexcept;

/// To be called once CUDA was used, each time that is for the first time: CUDA's own exit handlers run after those that this registers.
void note_that_cuda_is_used() noexcept;

/// Guards the lists of the library. Held for a moment, and never while CUDA is called. Free in a child when that begins.
[[nodiscard]] std::mutex& list_mutex() noexcept;

/// Lets one thread at a time make a default resource. Free in a child when that begins: fork() waits for it.
[[nodiscard]] std::mutex& default_resource_mutex() noexcept;

}  // namespace rmm_c
