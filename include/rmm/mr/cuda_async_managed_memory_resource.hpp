// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>  // IWYU pragma: export
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/memory_pool.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/runtime_capabilities.hpp>
#include <rmm/mr/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that allocates managed memory from the driver's own pool. Use it with CUDA 13 for stream-ordered managed memory.
///
/// Orders reuse between streams as cuda_async_memory_resource does. The driver owns the pool, and all of the process shares it. Each new
/// instance that is not a copy sets the pool's release threshold, so the last one counts for all. When the program synchronises, the driver
/// gives memory above the threshold back. Instances that use one pool are equal. Returns a null pointer for 0 bytes.
///
/// @code{.cpp}
/// try {
///   rmm::mr::cuda_async_managed_memory_resource managed;
///   rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, managed};
/// } catch (rmm::logic_error const& e) {  // CUDA or the device has no such pools
///   std::puts(e.what());
/// }
/// @endcode
class cuda_async_managed_memory_resource final : public device_memory_resource {
 public:
  /// Uses the pool of the current device, which then keeps as much memory as the device has. Throws as the other constructor does.
  cuda_async_managed_memory_resource() : cuda_async_managed_memory_resource{std::nullopt} {}

  /// Uses the pool of the current device, and sets how much memory it keeps, also for everyone else who uses the pool.
  ///
  /// `release_threshold`  bytes that the pool keeps when the program synchronises; by default as much memory as the device has.
  /// Throws logic_error if the toolkit, the driver or the device does not support such pools, cuda_error if CUDA fails.
  explicit cuda_async_managed_memory_resource(std::optional<std::size_t> release_threshold) : pool_{default_pool()}
  {
    rmm::detail::set_release_threshold(pool_.pool_handle(), release_threshold);
  }

  /// Returns the handle of the pool. The driver owns the pool.
  [[nodiscard]] cudaMemPool_t pool_handle() const noexcept { return pool_.pool_handle(); }

  friend void get_property(cuda_async_managed_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  [[nodiscard]] static cudaMemPool_t default_pool()
  {
    RMM_EXPECTS(
      rmm::detail::runtime_async_managed_alloc::is_known_to_be_supported(),
      "Pools of managed memory need CUDA 13 or later (toolkit and driver) and a device with concurrent managed access");
    return rmm::detail::default_managed_pool(rmm::detail::known_current_device());
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return pool_.allocate(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    pool_.deallocate(ptr, bytes, stream);
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    auto const* const cast = dynamic_cast<cuda_async_managed_memory_resource const*>(&other);
    return cast != nullptr && cast->pool_handle() == pool_handle();
  }

  cuda_async_view_memory_resource pool_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
