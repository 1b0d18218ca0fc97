// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cuda.h>

#include <cstddef>
#include <string_view>

// <cuda.h> defines these names as their successors.
#undef cuGetProcAddress
#undef cuMemAllocAsync
#undef cuMemAllocFromPoolAsync
#undef cuMemFreeAsync

/// @file
/// The driver functions that librmm_audit.so replaces, and how to find the driver's own.

/// X(symbol, name for cuGetProcAddress, CUDA release of the signature, whether stream 0 is the thread's)
#define RMM_AUDIT_FUNCTIONS(X)                                                \
  X(cuArray3DCreate_v2, "cuArray3DCreate", 3020, false)                       \
  X(cuArrayCreate_v2, "cuArrayCreate", 3020, false)                           \
  X(cuArrayDestroy, "cuArrayDestroy", 2000, false)                            \
  X(cuGetProcAddress, "cuGetProcAddress", 11030, false)                       \
  X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false)                    \
  X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, false)                      \
  X(cuMemAddressFree, "cuMemAddressFree", 10020, false)                       \
  X(cuMemAllocAsync, "cuMemAllocAsync", 11020, false)                         \
  X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, true)                     \
  X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, false)         \
  X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, true)     \
  X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, false)                         \
  X(cuMemAllocManaged, "cuMemAllocManaged", 6000, false)                      \
  X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, false)                       \
  X(cuMemAlloc_v2, "cuMemAlloc", 3020, false)                                 \
  X(cuMemCreate, "cuMemCreate", 10020, false)                                 \
  X(cuMemFreeAsync, "cuMemFreeAsync", 11020, false)                           \
  X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, true)                       \
  X(cuMemFreeHost, "cuMemFreeHost", 2000, false)                              \
  X(cuMemFree_v2, "cuMemFree", 3020, false)                                   \
  X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, false)             \
  X(cuMemHostAlloc, "cuMemHostAlloc", 2020, false)                            \
  X(cuMemHostRegister_v2, "cuMemHostRegister", 4000, false)                   \
  X(cuMemHostUnregister, "cuMemHostUnregister", 4000, false)                  \
  X(cuMemMap, "cuMemMap", 10020, false)                                       \
  X(cuMemRelease, "cuMemRelease", 10020, false)                               \
  X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, false) \
  X(cuMemUnmap, "cuMemUnmap", 10020, false)                                   \
  X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, false)            \
  X(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, false)          \
  X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, false)              \
  X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, false)

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// The position of a function in the table.
enum class function : std::size_t {
#define RMM_AUDIT_PLACE(symbol, ...) symbol,
  RMM_AUDIT_FUNCTIONS(RMM_AUDIT_PLACE)
#undef RMM_AUDIT_PLACE
    count
};

/// Finds the function that a symbol names. Returns `function::count` if the table lacks it.
[[nodiscard]] function find_symbol(std::string_view symbol) noexcept;

/// Finds the function that cuGetProcAddress() gives for a name, a release and a meaning of stream 0, or `function::count`.
[[nodiscard]] function find_name(std::string_view name, int version, bool own_stream) noexcept;

/// Whether a function is replaced only for routing.
[[nodiscard]] bool is_only_for_routes(function place) noexcept;

/// The address that programs get in place of the driver's.
[[nodiscard]] void* wrapper_of(function place) noexcept;

/// Keeps the driver's function, found in the way that the program asked for it. The first one is kept.
void keep_driver_function(function place, void* found) noexcept;

/// Returns the driver's function, or null in a process without a driver. Searches like the dynamic linker if it was not
/// kept before.
[[nodiscard]] void* driver_function(function place) noexcept;

/// Returns a driver function that has no replacement, or null.
[[nodiscard]] void* other_driver_function(char const* name, int version) noexcept;

/// The next dlsym() after this library's.
using dlsym_function = void* (*)(void*, char const*);
[[nodiscard]] dlsym_function next_dlsym() noexcept;

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
