// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/thrust_namespace.h>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <thrust/device_malloc_allocator.h>
#include <thrust/device_ptr.h>
#include <thrust/memory.h>

namespace RMM_NAMESPACE {
namespace mr {

/// An allocator for Thrust's vectors and algorithms. Use it to give them memory from a resource; device_vector has it built in.
///
/// It makes the device current that was current in its constructor, in each call of the resource. All allocators are equal, as those of
/// Thrust are. Resources align to 256 bytes, also if `T` needs more.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::thrust_allocator<int> allocator{rmm::cuda_stream_default, cuda};
/// auto const values = allocator.allocate(100);
/// allocator.deallocate(values, 100);
/// @endcode
template <class T>
class thrust_allocator : public thrust::device_malloc_allocator<T> {
 public:
  using Base      = thrust::device_malloc_allocator<T>;
  using pointer   = typename Base::pointer;
  using size_type = typename Base::size_type;

  template <class U>
  struct rebind {
    using other = thrust_allocator<U>;
  };

  /// Uses the default stream, and the resource that is registered for the current device.
  thrust_allocator() = default;

  /// Uses the resource that is registered for the current device.
  explicit thrust_allocator(cuda_stream_view stream) : stream_{stream} {}

  /// Uses `mr`, which has to outlive its allocations.
  thrust_allocator(cuda_stream_view stream, device_async_resource_ref mr) : stream_{stream}, mr_{mr} {}

  /// Takes resource, stream and device from `other`.
  template <class U>
  thrust_allocator(thrust_allocator<U> const& other)
    : stream_{other.stream()}, device_{other.device()}, mr_{other.get_upstream_resource()}
  {}

  /// Returns memory for `num` elements, without constructing them.
  pointer allocate(size_type num)
  {
    auto const bytes = rmm::detail::checked_multiply(num, sizeof(T));
    cuda_set_device_raii const on_device{device_};
    return pointer{static_cast<T*>(mr_.allocate_async(bytes, stream_))};
  }

  /// Frees memory that allocate() returned for the same `num`.
  void deallocate(pointer ptr, size_type num)
  {
    cuda_set_device_raii const on_device{device_};
    mr_.deallocate_async(thrust::raw_pointer_cast(ptr), num * sizeof(T), stream_);
  }

  /// Returns the resource.
  [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return mr_; }

  /// Returns the stream of all calls.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }

  /// Returns the device that was current in the constructor. A converted allocator keeps the device of the original.
  [[nodiscard]] cuda_device_id device() const noexcept { return device_; }

  friend void get_property(thrust_allocator const&, ::cuda::mr::device_accessible) noexcept {}

 private:
  cuda_stream_view stream_{};
  cuda_device_id device_{rmm::detail::current_device()};
  device_async_resource_ref mr_{get_per_device_resource_ref(device_)};
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
