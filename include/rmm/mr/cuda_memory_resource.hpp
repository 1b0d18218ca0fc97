// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <typeinfo>

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that allocates with cudaMalloc and frees with cudaFree. Use it as upstream of a pool.
///
/// Ignores the stream argument: any stream may use the memory immediately, and cudaFree waits for the device. Allocates on the device that
/// is current in the call, so one instance can serve all devices. All instances are equal.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, cuda};
/// @endcode
class cuda_memory_resource final : public device_memory_resource {
  void* do_allocate(std::size_t bytes, cuda_stream_view) override { return rmm::detail::allocate_device_memory(bytes); }

  void do_deallocate(void* ptr, std::size_t, cuda_stream_view) override { rmm::detail::free_memory(ptr); }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    return typeid(other) == typeid(cuda_memory_resource);
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
