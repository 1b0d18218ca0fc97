// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

namespace RMM_NAMESPACE {
namespace detail {

#if CUDART_VERSION >= 13000

/// Returns a device as the runtime's functions for memory expect it; the host if the number is negative.
[[nodiscard]] inline cudaMemLocation memory_location(int device) noexcept
{
  cudaMemLocation location{};
  location.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id   = device < 0 ? 0 : device;
  return location;
}

#else

[[nodiscard]] inline int memory_location(int device) noexcept { return device < 0 ? cudaCpuDeviceId : device; }

#endif

}  // namespace detail
}  // namespace RMM_NAMESPACE
