// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>  // IWYU pragma: export
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/async_alloc.hpp>
#include <rmm/detail/cuda/memory_pool.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that allocates from a memory pool of the driver without owning it. Use it for a pool that exists already, such as the
/// default pool of a device.
///
/// @code{.cpp}
/// cudaMemPool_t pool{};
/// cudaDeviceGetDefaultMemPool(&pool, 0);
/// rmm::mr::cuda_async_view_memory_resource view{pool};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, view};
/// @endcode
class cuda_async_view_memory_resource final : public device_memory_resource {
 public:
  /// A resource without a pool. It cannot allocate.
  cuda_async_view_memory_resource() = default;

  /// Uses `pool`, which has to outlive this object. Throws logic_error if it is null or the device has no pools, cuda_error.
  cuda_async_view_memory_resource(cudaMemPool_t pool) : pool_{pool}
  {
    RMM_EXPECTS(pool != nullptr,
                "Unexpected null pool handle: pass the handle of a pool, such as the device's default pool.");
    RMM_EXPECTS(rmm::detail::runtime_async_alloc::is_known_to_be_supported(),
                "cudaMallocAsync is not supported by this device, driver or runtime");
  }

  /// Returns the handle of the pool. The resource does not own the pool.
  [[nodiscard]] cudaMemPool_t pool_handle() const noexcept { return pool_; }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    return bytes == 0 ? nullptr : rmm::detail::allocate_from_pool(pool_, bytes, stream.value());
  }

  void do_deallocate(void* ptr, std::size_t, cuda_stream_view stream) override
  {
    if (ptr != nullptr) { rmm::detail::free_to_pool(ptr, stream.value()); }
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    return dynamic_cast<cuda_async_view_memory_resource const*>(&other) != nullptr;
  }

  cudaMemPool_t pool_{};
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
