// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

/// @file
/// Replaces memory of the driver by memory of a pool, through the C interface of RMM.
///
/// Every stream may use memory of cuMemAlloc() at once, and cuMemFree() waits for the device. So that memory is allocated on a stream
/// without other work, with a wait for the stream, and freed on it after a wait for the device. cuMemAllocAsync() and cuMemFreeAsync() call
/// the pool's own operations in the order of a stream.
///
/// Left to the driver: allocations of a capturing stream; contexts that are not the primary one of their device; streams of another context
/// than the current one; requests that the pool refuses for another reason than missing memory.

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// An allocation that the pool has served.
struct routed_block {
  std::uintptr_t address;
  std::size_t bytes;
  int device;
};

/// The intended use of memory.
struct use_order {
  bool is_ordered;  // in the order of a stream
  CUstream stream;
  bool own_stream;  // stream 0 is that of the thread
};

/// Allocates from the pool. Returns nothing if the driver has to allocate.
[[nodiscard]] std::optional<CUresult> allocate_routed(CUdeviceptr* out, std::size_t bytes, use_order order) noexcept;

/// Finds the block of the pool that has an address; nothing if the address is not routed.
[[nodiscard]] std::optional<routed_block> find_routed(CUdeviceptr address) noexcept;

/// Gives a block back. `before_reuse` is called when another thread may not get its address yet.
[[nodiscard]] CUresult free_routed(routed_block const& block,
                                   use_order order,
                                   void (*before_reuse)(std::uint64_t)) noexcept;

/// Locks and unlocks around fork(), so that the lock is free in the child.
void lock_routes() noexcept;
void unlock_routes() noexcept;

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
