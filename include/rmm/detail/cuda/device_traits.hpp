// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_capabilities.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// The properties of a device that decide which resource is recommended.
struct device_traits {
  std::size_t total_bytes{};
  std::size_t free_bytes{};
  bool has_virtual_memory{};       ///< addresses can be reserved and memory mapped separately
  bool has_async_pools{};          ///< supports cudaMallocAsync
  bool has_managed_memory{};       ///< host and device may use managed memory at the same time
  bool can_use_system_memory{};    ///< can use memory from malloc
  bool shares_memory_with_host{};  ///< uses the host's memory
};

/// Returns the properties of the current device. Throws cuda_error.
[[nodiscard]] RMM_COLD inline device_traits current_device_traits()
{
  device_traits traits;
  auto const [free, total]       = device_memory_info();
  traits.total_bytes             = total;
  traits.free_bytes              = free;
  traits.has_virtual_memory      = detail::has_virtual_memory(known_current_device());
  traits.has_async_pools         = runtime_async_alloc::is_supported();
  traits.has_managed_memory      = concurrent_managed_access::is_supported();
  traits.can_use_system_memory   = device_attribute(cudaDevAttrPageableMemoryAccess) != 0;
  traits.shares_memory_with_host = device_integrated_memory::is_supported();
  return traits;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
