// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "source.hpp"

#include <rmm/detail/export.hpp>

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

/// @file
/// Replaces memory of the driver by memory of a resource. Asks the sources of memory in turn: those of the program, the
/// newest first, or one that makes a resource for each device from a text, through the C interface of RMM.
///
/// Every stream may use memory of cuMemAlloc() immediately, and cuMemFree() waits for the device. So such memory is
/// allocated on a stream without other work, with a wait for that stream, and freed on it after a wait for the device.
/// cuMemAllocAsync() and cuMemFreeAsync() call the resource's own operations in the order of their stream.
///
/// Left to the driver: allocations on a capturing stream, in a context other than the device's primary one, or on a
/// stream of another context than the current one; and requests that no source serves.

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// An allocation that a source has served.
struct routed_block {
  std::uintptr_t address;
  std::size_t bytes;
  int device;
  source* origin;  // null: the resource ended first, so the memory is gone; freeing the block does nothing
  void* owner;
};

/// How memory will be used.
struct use_order {
  bool is_ordered;  // in the order of `stream`
  CUstream stream;
  bool own_stream;  // stream 0 is the thread's own
};

/// Allocates from a source. Returns nothing if the driver has to allocate.
[[nodiscard]] std::optional<CUresult> allocate_routed(CUdeviceptr* out, std::size_t bytes, use_order order) noexcept;

/// Finds the routed block that contains an address; nothing if there is none.
[[nodiscard]] std::optional<routed_block> find_routed(CUdeviceptr address) noexcept;

/// Gives a block back to its source. Calls `before_reuse` while no other thread can get the block's address yet.
[[nodiscard]] CUresult free_routed(routed_block const& block,
                                   use_order order,
                                   void (*before_reuse)(std::uint64_t)) noexcept;

/// Call this when the driver takes memory back. If blocks lie in it, their resource ended before them.
void note_end_of_memory(CUdeviceptr begin, std::size_t bytes) noexcept;

/// Call this when the driver has handed out memory. Blocks at its addresses are gone.
void note_new_memory(CUdeviceptr begin, std::size_t bytes) noexcept;

/// The functions that audit_library offers to programs.
int add_source(rmm::detail::audit_source const* functions) noexcept;
void withdraw_source(int number) noexcept;
[[nodiscard]] std::size_t bytes_of_source(int number) noexcept;

/// Locks and unlocks around fork(), so that the lock is free in the child, which cannot use the sources of its parent.
void lock_routes() noexcept;
void unlock_routes() noexcept;
void continue_routes_in_child() noexcept;

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
