// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A copyable resource that forwards to a pointer. Use it where code requires resources that can be copied.
///
/// Does not own the resource. It always has the properties for host and device access, because a pointer to the base class does not say
/// which of them the resource has.
class device_memory_resource_view {
 public:
  /// Throws logic_error if `resource` is null.
  device_memory_resource_view(device_memory_resource* resource) : resource_{resource}
  {
    RMM_EXPECTS(resource != nullptr, "Unexpected null resource pointer.");
  }

  [[nodiscard]] device_memory_resource* get() const noexcept { return resource_; }

  void* allocate_sync(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    return resource_->allocate_sync(bytes, alignment);
  }

  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) noexcept
  {
    resource_->deallocate_sync(ptr, bytes, alignment);
  }

  void* allocate(cuda_stream_view stream, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    return resource_->allocate(stream, bytes, alignment);
  }

  void deallocate(cuda_stream_view stream,
                  void* ptr,
                  std::size_t bytes,
                  std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) noexcept
  {
    resource_->deallocate(stream, ptr, bytes, alignment);
  }

  [[nodiscard]] bool operator==(device_memory_resource_view const& other) const noexcept
  {
    return resource_->is_equal(*other.resource_);
  }
  [[nodiscard]] bool operator!=(device_memory_resource_view const& other) const noexcept { return !(*this == other); }

  friend void get_property(device_memory_resource_view const&, ::cuda::mr::device_accessible) noexcept {}
  friend void get_property(device_memory_resource_view const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  device_memory_resource* resource_;  // never null
};

static_assert(rmm::detail::polyfill::async_resource_with<device_memory_resource_view,
                                                         ::cuda::mr::host_accessible,
                                                         ::cuda::mr::device_accessible>);

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
