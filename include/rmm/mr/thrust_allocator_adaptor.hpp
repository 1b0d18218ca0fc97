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

/// The allocator for Thrust's vectors and algorithms: memory from a resource, in the order of a
/// stream.
///
/// It remembers the device that was current when it was made and has it current whenever it calls
/// the resource. All are equal, as Thrust has it for its own.
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

  /// Uses the default stream, and what is now the resource of the current device.
  thrust_allocator() = default;

  /// Uses what is now the resource of the current device.
  explicit thrust_allocator(cuda_stream_view stream) : stream_{stream} {}

  /// `mr` has to outlive what it allocates.
  thrust_allocator(cuda_stream_view stream, device_async_resource_ref mr) : stream_{stream}, mr_{mr} {}

  /// Takes resource, stream and device from `other`.
  template <class U>
  thrust_allocator(thrust_allocator<U> const& other)
    : stream_{other.stream()}, device_{other.device()}, mr_{other.get_upstream_resource()}
  {}

  /// Memory for `num` elements, none of which is constructed.
  pointer allocate(size_type num)
  {
    auto const bytes = rmm::detail::checked_multiply(num, sizeof(T));
    cuda_set_device_raii const on_device{device_};
    return pointer{static_cast<T*>(mr_.allocate_async(bytes, stream_))};
  }

  /// Gives back what allocate() returned for the same `num`.
  void deallocate(pointer ptr, size_type num)
  {
    cuda_set_device_raii const on_device{device_};
    mr_.deallocate_async(thrust::raw_pointer_cast(ptr), num * sizeof(T), stream_);
  }

  /// What the allocator allocates from.
  [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return mr_; }

  /// The stream of all calls.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }

  /// The device that was current when the allocator, or the one it was converted from, was made.
  [[nodiscard]] cuda_device_id device() const noexcept { return device_; }

  friend void get_property(thrust_allocator const&, ::cuda::mr::device_accessible) noexcept {}

 private:
  cuda_stream_view stream_{};
  cuda_device_id device_{rmm::detail::current_device()};
  device_async_resource_ref mr_{get_per_device_resource_ref(device_)};
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
