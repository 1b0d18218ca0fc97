// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

/// @file
/// Memory of a pool in place of the driver's, by the C interface of RMM.
///
/// cuMemAlloc() promises memory that every stream may use at once, and cuMemFree() waits for the device. So memory for it is allocated on
/// a stream that has no other work, and waited for; it is given back on that stream after a wait for the device. cuMemAllocAsync() and
/// cuMemFreeAsync() are the pool's own operations in the order of a stream.
///
/// Left to the driver: what a stream allocates while it captures; contexts that are not the primary one of their device; streams of
/// another context than the current one; all that the pool refuses for another reason than that there is too little memory.

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// An allocation that the pool has served.
struct routed_block {
  std::uintptr_t address;
  std::size_t bytes;
  int device;
};

/// How memory is meant to be used.
struct use_order {
  bool is_ordered;  // in the order of a stream
  CUstream stream;
  bool own_stream;  // stream 0 is that of the thread
};

/// Allocates from the pool. Returns nothing if that is left to the driver.
[[nodiscard]] std::optional<CUresult> allocate_routed(CUdeviceptr* out, std::size_t bytes, use_order order) noexcept;

/// Finds the block of the pool that has an address; nothing if the address is not routed.
[[nodiscard]] std::optional<routed_block> find_routed(CUdeviceptr address) noexcept;

/// Gives a block back. `before_reuse` is called when another thread may not get its address yet.
[[nodiscard]] CUresult free_routed(routed_block const& block,
                                   use_order order,
                                   void (*before_reuse)(std::uint64_t)) noexcept;

/// For fork(): its child needs the lock free.
void lock_routes() noexcept;
void unlock_routes() noexcept;

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
