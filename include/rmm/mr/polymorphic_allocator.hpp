// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <memory>

namespace RMM_NAMESPACE {
namespace mr {

/// Allocates arrays of `T` from any resource, in the order of a stream.
///
/// Not yet an Allocator of the standard library, whose calls name no stream: stream_allocator_adaptor
/// makes it one. Allocators are equal if their resources are.
template <class T>
class polymorphic_allocator {
 public:
  using value_type = T;

  /// Uses what is now the resource of the current device.
  polymorphic_allocator() = default;

  /// Uses `mr`, which has to outlive what it allocates.
  polymorphic_allocator(device_async_resource_ref mr) : mr_{mr} {}

  template <class U>
  polymorphic_allocator(polymorphic_allocator<U> const& other) noexcept : mr_{other.get_upstream_resource()}
  {}

  /// Memory for `num` objects, none of which is constructed.
  value_type* allocate(std::size_t num, cuda_stream_view stream)
  {
    auto const bytes = rmm::detail::checked_multiply(num, sizeof(T));
    return static_cast<value_type*>(mr_.allocate_async(bytes, stream));
  }

  /// Gives back what allocate() returned for the same `num`.
  void deallocate(value_type* ptr, std::size_t num, cuda_stream_view stream)
  {
    mr_.deallocate_async(ptr, num * sizeof(T), stream);
  }

  /// What the allocator allocates from.
  [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return mr_; }

 private:
  device_async_resource_ref mr_{get_current_device_resource_ref()};
};

template <class T, class U>
[[nodiscard]] bool operator==(polymorphic_allocator<T> const& lhs, polymorphic_allocator<U> const& rhs)
{
  return lhs.get_upstream_resource() == rhs.get_upstream_resource();
}

template <class T, class U>
[[nodiscard]] bool operator!=(polymorphic_allocator<T> const& lhs, polymorphic_allocator<U> const& rhs)
{
  return !(lhs == rhs);
}

/// An Allocator of the standard library, made from one that wants a stream with each call, such as
/// polymorphic_allocator, and a stream.
///
/// Equal if the underlying allocators are, whatever the streams: what one has allocated another may
/// free, if the caller has ordered the streams.
template <class Allocator>
class stream_allocator_adaptor {
 public:
  using value_type = typename std::allocator_traits<Allocator>::value_type;

  /// The same for elements of type `T`.
  template <class T>
  struct rebind {
    using other = stream_allocator_adaptor<typename std::allocator_traits<Allocator>::template rebind_alloc<T>>;
  };

  stream_allocator_adaptor() = delete;

  /// Calls `allocator` with `stream`.
  stream_allocator_adaptor(Allocator const& allocator, cuda_stream_view stream) : allocator_{allocator}, stream_{stream}
  {}

  template <class Other>
  stream_allocator_adaptor(stream_allocator_adaptor<Other> const& other)
    : stream_allocator_adaptor{Allocator{other.underlying_allocator()}, other.stream()}
  {}

  /// Memory for `num` objects, for use on stream().
  value_type* allocate(std::size_t num) { return allocator_.allocate(num, stream_); }

  /// Gives back what allocate() returned for the same `num`; the work that uses it is ordered before
  /// this on stream().
  void deallocate(value_type* ptr, std::size_t num) { allocator_.deallocate(ptr, num, stream_); }

  /// The stream of all calls.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }

  /// A copy of the allocator that is called.
  [[nodiscard]] Allocator underlying_allocator() const noexcept { return allocator_; }

 private:
  Allocator allocator_;
  cuda_stream_view stream_;
};

template <class Lhs, class Rhs>
[[nodiscard]] bool operator==(stream_allocator_adaptor<Lhs> const& lhs, stream_allocator_adaptor<Rhs> const& rhs)
{
  return lhs.underlying_allocator() == rhs.underlying_allocator();
}

template <class Lhs, class Rhs>
[[nodiscard]] bool operator!=(stream_allocator_adaptor<Lhs> const& lhs, stream_allocator_adaptor<Rhs> const& rhs)
{
  return !(lhs == rhs);
}

/// stream_allocator_adaptor{allocator, stream}, for code from before class template argument
/// deduction.
template <class Allocator>
[[nodiscard]] stream_allocator_adaptor<Allocator> make_stream_allocator_adaptor(Allocator const& allocator,
                                                                                cuda_stream_view stream)
{
  return {allocator, stream};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
