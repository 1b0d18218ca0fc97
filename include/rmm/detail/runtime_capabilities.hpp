// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

/// @file
/// Capabilities of the runtime, the driver and the current device. Each call asks again, because the current device may change.

/// The first CUDA version whose driver allocates memory for hardware decompression.
#define RMM_MIN_HWDECOMPRESS_CUDA_DRIVER_VERSION 12080

namespace RMM_NAMESPACE {
namespace detail {

/// Export of the memory of an asynchronous pool to other processes.
struct export_handle_type {
  /// Whether the current device supports all handle types in `handle_type`. Throws cuda_error if the runtime cannot answer.
  static bool is_supported(cudaMemAllocationHandleType handle_type)
  {
    auto const wanted = static_cast<unsigned>(handle_type);
    if (wanted == static_cast<unsigned>(cudaMemHandleTypeNone)) { return true; }
    auto const known = static_cast<unsigned>(device_attribute(cudaDevAttrMemoryPoolSupportedHandleTypes));
    return (known & wanted) == wanted;
  }
};

/// Memory for the decompression engine.
struct hwdecompress {
  /// Whether toolkit and driver have the flag of memory pools for it.
  static bool is_supported() noexcept
  {
    return CUDART_VERSION >= RMM_MIN_HWDECOMPRESS_CUDA_DRIVER_VERSION &&
           driver_version() >= RMM_MIN_HWDECOMPRESS_CUDA_DRIVER_VERSION;
  }
};

/// Managed memory that host and device may use at the same time.
struct concurrent_managed_access {
  /// Whether the current device supports it.
  static bool is_supported() noexcept { return device_attribute_or_zero(cudaDevAttrConcurrentManagedAccess) != 0; }
};

/// Devices that share their memory with the host.
struct device_integrated_memory {
  /// Whether the current device is one.
  static bool is_supported() noexcept { return device_attribute_or_zero(cudaDevAttrIntegrated) != 0; }
};

/// Asynchronous pools of device memory (cudaMallocAsync).
struct runtime_async_alloc {
  /// Whether runtime and current device have them.
  static bool is_supported() noexcept
  {
    return runtime_version() >= 11020 && device_attribute_or_zero(cudaDevAttrMemoryPoolsSupported) != 0;
  }

  /// Whether runtime and current device have them. Throws cuda_error if the runtime cannot answer.
  [[nodiscard]] static bool is_known_to_be_supported()
  {
    return known_runtime_version() >= 11020 && device_attribute(cudaDevAttrMemoryPoolsSupported) != 0;
  }

  /// export_handle_type::is_supported(), under its earlier name.
  static bool is_export_handle_type_supported(cudaMemAllocationHandleType handle_type)
  {
    return export_handle_type::is_supported(handle_type);
  }

  /// hwdecompress::is_supported(), under its earlier name.
  static bool is_hwdecompress_supported() noexcept { return hwdecompress::is_supported(); }
};

/// Asynchronous pools of managed memory.
struct runtime_async_managed_alloc {
  /// Whether toolkit, driver and current device have them.
  static bool is_supported() noexcept
  {
    return CUDART_VERSION >= 13000 && driver_version() >= 13000 && concurrent_managed_access::is_supported();
  }

  /// Whether toolkit, driver and current device have them. Throws cuda_error if the runtime cannot answer.
  [[nodiscard]] static bool is_known_to_be_supported()
  {
    return CUDART_VERSION >= 13000 && known_driver_version() >= 13000 &&
           device_attribute(cudaDevAttrConcurrentManagedAccess) != 0;
  }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
