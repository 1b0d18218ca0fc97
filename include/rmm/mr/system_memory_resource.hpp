// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/aligned.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/system_memory.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <new>
#include <string>
#include <typeinfo>

namespace RMM_NAMESPACE {
namespace mr {

namespace detail {
/// Whether `device` can use pageable host memory. Throws cuda_error.
inline bool is_system_memory_supported(cuda_device_id device)
{
  return rmm::detail::can_use_system_memory(device.value());
}
}  // namespace detail

/// A resource that allocates pageable host memory with operator new. Use it on devices that can access such memory directly.
///
/// deallocate() is not stream-ordered: it waits on the host for the stream. All instances are equal. 0 bytes get a unique pointer.
///
/// @code{.cpp}
/// int has_pageable_access{};
/// cudaDeviceGetAttribute(&has_pageable_access, cudaDevAttrPageableMemoryAccess, 0);
/// if (has_pageable_access != 0) {
///   rmm::mr::system_memory_resource system;
///   rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, system};
/// }
/// @endcode
class system_memory_resource final : public device_memory_resource {
 public:
  /// Throws logic_error if the current device cannot use pageable host memory.
  system_memory_resource()
  {
    RMM_EXPECTS(
      detail::is_system_memory_supported(cuda_device_id{rmm::detail::known_current_device()}),
      "System memory allocator is not supported with this hardware/software version: the device cannot use pageable "
      "host memory. Use managed_memory_resource instead.");
  }

  friend void get_property(system_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view) override
  {
    try {
      return rmm::detail::aligned_host_allocate(
        bytes, CUDA_ALLOCATION_ALIGNMENT, [](std::size_t size) { return ::operator new(size); });
    } catch (std::bad_alloc const& failure) {
      throw_out_of_memory(bytes, failure);
    }
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (ptr == nullptr) { return; }
    stream.synchronize_no_throw();  // operator new may return the memory again immediately
    rmm::detail::aligned_host_deallocate(
      ptr, bytes, CUDA_ALLOCATION_ALIGNMENT, [](void* original) { ::operator delete(original); });
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    return typeid(other) == typeid(system_memory_resource);
  }

  [[noreturn]] RMM_COLD static void throw_out_of_memory(std::size_t bytes, std::bad_alloc const& failure)
  {
    RMM_FAIL("Failed to allocate memory: " + std::to_string(bytes) + " bytes of the host: " + failure.what(),
             rmm::out_of_memory);
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
