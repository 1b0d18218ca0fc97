// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>  // IWYU pragma: export
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/async_alloc.hpp>
#include <rmm/detail/cuda/memory_pool.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/cuda_async_view_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#if CUDART_VERSION >= 11020 && !defined(RMM_DISABLE_CUDA_MALLOC_ASYNC)
#define RMM_CUDA_MALLOC_ASYNC_SUPPORT
#endif

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that allocates from its own memory pool of the driver (cudaMallocFromPoolAsync). Use it to leave pooling to the driver.
///
/// Other pools cannot use the memory that this pool has cached. The driver orders reuse between streams. When the program synchronises,
/// the driver gives memory above the release threshold back to the device.
///
/// UCX, as Dask uses it, sends this memory from device to device only with UCX_RNDV_PIPELINE_ERROR_HANDLING=y, else through the host; see
/// docs/dask.md.
///
/// @code{.cpp}
/// rmm::mr::cuda_async_memory_resource driver;
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, driver};
/// @endcode
class cuda_async_memory_resource final : public device_memory_resource, public trimmable_resource {
 public:
  /// The kinds of handles that share the pool's memory with other processes, with the values of cudaMemAllocationHandleType.
  enum class allocation_handle_type : std::int32_t {
    none                  = 0x0,
    posix_file_descriptor = 0x1,
    win32                 = 0x2,
    win32_kmt             = 0x4,
    fabric                = 0x8,
  };

  /// Values of cudaMemPoolProps::usage, for programs that make pools themselves. No function of this class takes one.
  enum class mempool_usage : unsigned short {
    hw_decompress = 0x2,
  };

  /// Makes a pool on the current device.
  ///
  /// `initial_pool_size`   bytes that the pool takes from the device in the constructor; by default none.
  /// `release_threshold`   bytes that the pool keeps when the program synchronises; by default all memory of the device.
  /// `export_handle_type`  the kind of handle that shares its memory with other processes; by default it cannot be shared.
  /// Throws logic_error if the device does not support pools or the kind of handle, cuda_error or bad_alloc if CUDA fails.
  cuda_async_memory_resource(std::optional<std::size_t> initial_pool_size             = {},
                             std::optional<std::size_t> release_threshold             = {},
                             std::optional<allocation_handle_type> export_handle_type = {})
    : pool_{make_pool(export_handle_type.value_or(allocation_handle_type::none))}, view_{pool_.handle()}
  {
    rmm::detail::set_release_threshold(pool_.handle(), release_threshold);
    if (initial_pool_size.value_or(0) != 0) {
      auto* const block = view_.allocate(*initial_pool_size, cuda_stream_default);
      view_.deallocate(block, *initial_pool_size, cuda_stream_default);
    }
  }

  cuda_async_memory_resource(cuda_async_memory_resource const&)            = delete;
  cuda_async_memory_resource(cuda_async_memory_resource&&)                 = delete;
  cuda_async_memory_resource& operator=(cuda_async_memory_resource const&) = delete;
  cuda_async_memory_resource& operator=(cuda_async_memory_resource&&)      = delete;
  ~cuda_async_memory_resource() override                                   = default;

  /// Returns the handle of the pool. The resource owns the pool.
  [[nodiscard]] cudaMemPool_t pool_handle() const noexcept { return pool_.handle(); }

  /// Gives unused memory back to the device, until at most `bytes` bytes are reserved. Does not wait. Returns the bytes given back.
  std::size_t trim_to(std::size_t bytes) noexcept override { return rmm::detail::trim_pool(pool_.handle(), bytes); }

 private:
  [[nodiscard]] static rmm::detail::owned_memory_pool make_pool(allocation_handle_type type)
  {
#ifdef RMM_CUDA_MALLOC_ASYNC_SUPPORT
    RMM_EXPECTS(rmm::detail::runtime_async_alloc::is_known_to_be_supported(),
                "cudaMallocAsync is not supported by this device, driver or runtime");
    auto const handle_type = static_cast<cudaMemAllocationHandleType>(type);
    RMM_EXPECTS(rmm::detail::export_handle_type::is_supported(handle_type),
                "Requested IPC memory handle type not supported by the device: export_handle_type is " +
                  std::to_string(static_cast<int>(handle_type)));
    return rmm::detail::owned_memory_pool{handle_type};
#else
    static_cast<void>(type);
    RMM_FAIL("cudaMallocAsync is disabled in this build: RMM_DISABLE_CUDA_MALLOC_ASYNC is defined");
#endif
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return view_.allocate(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    view_.deallocate(ptr, bytes, stream);
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    auto const* const cast = dynamic_cast<cuda_async_memory_resource const*>(&other);
    return cast != nullptr && cast->pool_handle() == pool_handle();
  }

  rmm::detail::owned_memory_pool pool_;
  cuda_async_view_memory_resource view_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
