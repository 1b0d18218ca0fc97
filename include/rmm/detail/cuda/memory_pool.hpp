// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/memory_location.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_capabilities.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace RMM_NAMESPACE {
namespace detail {

/// Sets an attribute of a pool, also while a stream captures. Throws cuda_error.
template <class Value>
void set_pool_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, Value value)
{
  capture_exemption const exemption;
  RMM_CUDA_TRY(cudaMemPoolSetAttribute(pool, attribute, &value));
}

/// Sets how many bytes a pool keeps when the program synchronises; by default all memory of the current device. Throws cuda_error.
inline void set_release_threshold(cudaMemPool_t pool, std::optional<std::size_t> bytes)
{
  std::uint64_t const threshold{bytes.has_value() ? *bytes : device_memory_info().second};
  set_pool_attribute(pool, cudaMemPoolAttrReleaseThreshold, threshold);
}

/// An owner of a memory pool of the driver, on the device that was current in the constructor.
class owned_memory_pool {
 public:
  /// Makes a pool of pinned device memory that can be exported by `handle_type`. Throws cuda_error.
  explicit owned_memory_pool(cudaMemAllocationHandleType handle_type) : owned_memory_pool{properties_for(handle_type)}
  {
    if (driver_version() < 11050) {  // these drivers may reuse memory too early
      set_pool_attribute(handle_, cudaMemPoolReuseAllowOpportunistic, int{0});
    }
  }

  owned_memory_pool(owned_memory_pool const&)            = delete;
  owned_memory_pool& operator=(owned_memory_pool const&) = delete;
  ~owned_memory_pool() { RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaMemPoolDestroy(handle_)); }

  [[nodiscard]] cudaMemPool_t handle() const noexcept { return handle_; }

 private:
  // The public constructor delegates to this one, so that the destructor runs if the rest of it throws.
  explicit owned_memory_pool(cudaMemPoolProps const& properties)
  {
    RMM_CUDA_TRY(cudaMemPoolCreate(&handle_, &properties));
  }

  [[nodiscard]] static cudaMemPoolProps properties_for(cudaMemAllocationHandleType handle_type)
  {
    cudaMemPoolProps properties{};
    properties.allocType     = cudaMemAllocationTypePinned;
    properties.handleTypes   = handle_type;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id   = known_current_device();
#if CUDART_VERSION >= RMM_MIN_HWDECOMPRESS_CUDA_DRIVER_VERSION
    if (hwdecompress::is_supported()) { properties.usage = cudaMemPoolCreateUsageHwDecompress; }
#endif
    return properties;
  }

  cudaMemPool_t handle_{};
};

/// Returns the pool that cudaMallocAsync uses on the current device. Throws cuda_error.
[[nodiscard]] inline cudaMemPool_t default_device_pool()
{
  cudaMemPool_t pool{};
  RMM_CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, known_current_device()));
  return pool;
}

/// Returns the driver's default pool of managed memory with the preferred location `device`. Throws cuda_error, and logic_error if the
/// toolkit has no such pools.
[[nodiscard]] inline cudaMemPool_t default_managed_pool([[maybe_unused]] int device)
{
#if CUDART_VERSION >= 13000
  cudaMemLocation location{memory_location(device)};
  cudaMemPool_t pool{};
  RMM_CUDA_TRY(cudaMemGetDefaultMemPool(&pool, &location, cudaMemAllocationTypeManaged));
  return pool;
#else
  RMM_FAIL("Pools of managed memory need a program that is compiled with CUDA 13 or later");
#endif
}

/// Gives unused memory of a pool back to the device, until at most `bytes` are reserved. Returns the bytes given back; 0 on failure.
inline std::size_t trim_pool(cudaMemPool_t pool, std::size_t bytes) noexcept
{
  capture_exemption const exemption;
  std::uint64_t before{};
  std::uint64_t after{};
  if (cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &before) != cudaSuccess ||
      cudaMemPoolTrimTo(pool, bytes) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &after) != cudaSuccess) {
    clear_last_cuda_error();
    return 0;
  }
  return before > after ? std::size_t{before - after} : 0;  // other threads may allocate meanwhile
}

/// Allocates from a pool, in the order of the stream. Throws out_of_memory if memory is missing, bad_alloc on other failures.
[[nodiscard]] inline void* allocate_from_pool(cudaMemPool_t pool, std::size_t bytes, cudaStream_t stream)
{
  void* ptr{};
  RMM_CUDA_TRY_ALLOC(cudaMallocFromPoolAsync(&ptr, bytes, pool, stream), bytes);
  return ptr;
}

/// Frees memory from allocate_from_pool(), in the order of the stream. Failure is asserted.
inline void free_to_pool(void* ptr, cudaStream_t stream) noexcept
{
  RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(cudaFreeAsync(ptr, stream));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
