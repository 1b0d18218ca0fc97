// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <typeinfo>

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that allocates with cudaMallocManaged and frees with cudaFree. Use it for memory that migrates between host and devices.
///
/// Ignores streams; all instances are equal. Returns a null pointer for 0 bytes.
///
/// @code{.cpp}
/// rmm::mr::managed_memory_resource managed;
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, managed};
/// @endcode
class managed_memory_resource final : public device_memory_resource {
 public:
  friend void get_property(managed_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view) override
  {
    return bytes == 0 ? nullptr : rmm::detail::allocate_managed_memory(bytes);
  }

  void do_deallocate(void* ptr, std::size_t, cuda_stream_view) override
  {
    if (ptr != nullptr) { rmm::detail::free_memory(ptr); }
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    return typeid(other) == typeid(managed_memory_resource);
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
