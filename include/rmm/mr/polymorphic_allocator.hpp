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

/// An allocator of arrays of `T` from any resource, in the order of a stream. Use it in containers that pass a stream to each call.
///
/// Allocators of the standard library do not take a stream: stream_allocator_adaptor makes one from this class. Allocators are equal if
/// their resources are.
template <class T>
class polymorphic_allocator {
 public:
  using value_type = T;

  /// Uses the resource that is registered for the current device now.
  polymorphic_allocator() = default;

  /// Uses `mr`, which has to outlive the memory that it allocates.
  polymorphic_allocator(device_async_resource_ref mr) : mr_{mr} {}

  template <class U>
  polymorphic_allocator(polymorphic_allocator<U> const& other) noexcept : mr_{other.get_upstream_resource()}
  {}

  /// Allocates memory for `num` objects, and constructs none. Resources align to 256 bytes, also if `T` needs more.
  value_type* allocate(std::size_t num, cuda_stream_view stream)
  {
    auto const bytes = rmm::detail::checked_multiply(num, sizeof(T));
    return static_cast<value_type*>(mr_.allocate_async(bytes, stream));
  }

  /// Frees memory that allocate() returned for the same `num`.
  void deallocate(value_type* ptr, std::size_t num, cuda_stream_view stream)
  {
    mr_.deallocate_async(ptr, num * sizeof(T), stream);
  }

  /// Returns the resource that the allocator uses.
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

/// An allocator with the interface of the standard library. Use it to pass a polymorphic_allocator and its stream to a standard container.
///
/// Adaptors are equal if their allocators are, whatever their streams. One may free the memory of an equal one, if the caller has
/// ordered the streams.
///
/// @code{.cpp}
/// rmm::mr::managed_memory_resource managed;
/// rmm::mr::polymorphic_allocator<int> const allocator{managed};
/// rmm::mr::stream_allocator_adaptor const on_stream{allocator, rmm::cuda_stream_default};
/// std::vector<int, rmm::mr::stream_allocator_adaptor<rmm::mr::polymorphic_allocator<int>>> const values(100, 0, on_stream);
/// @endcode
template <class Allocator>
class stream_allocator_adaptor {
 public:
  using value_type = typename std::allocator_traits<Allocator>::value_type;

  /// The adaptor for elements of type `T`.
  template <class T>
  struct rebind {
    using other = stream_allocator_adaptor<typename std::allocator_traits<Allocator>::template rebind_alloc<T>>;
  };

  stream_allocator_adaptor() = delete;

  /// Passes `stream` to each call of `allocator`.
  stream_allocator_adaptor(Allocator const& allocator, cuda_stream_view stream) : allocator_{allocator}, stream_{stream}
  {}

  template <class Other>
  stream_allocator_adaptor(stream_allocator_adaptor<Other> const& other)
    : stream_allocator_adaptor{Allocator{other.underlying_allocator()}, other.stream()}
  {}

  /// Allocates memory for `num` objects, for use on stream().
  value_type* allocate(std::size_t num) { return allocator_.allocate(num, stream_); }

  /// Frees memory that allocate() returned for the same `num`. stream() has to be ordered after the work that uses it.
  void deallocate(value_type* ptr, std::size_t num) { allocator_.deallocate(ptr, num, stream_); }

  /// Returns the stream of all calls.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }

  /// Returns a copy of the underlying allocator.
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

/// Returns stream_allocator_adaptor{allocator, stream}. For code without class template argument deduction.
template <class Allocator>
stream_allocator_adaptor<Allocator> make_stream_allocator_adaptor(Allocator const& allocator, cuda_stream_view stream)
{
  return {allocator, stream};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
