// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>      // IWYU pragma: export
#include <rmm/cuda_device.hpp>  // IWYU pragma: export
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/cuda/fill.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/exec_check_disable.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

// cuda::std::span is only named here; its definition costs as much as half of this header.
#if __has_include(<cuda/std/__fwd/span.h>)
#include <cuda/std/__fwd/span.h>
#else
#include <cuda/std/span>
#endif

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>  // IWYU pragma: export

namespace RMM_NAMESPACE {

namespace detail {

// The conversions of a vector to spans of all its elements. In a base class, of which an explicit instantiation of the vector
// instantiates nothing: the span may be incomplete there.
template <class Vector, class T>
class converts_to_spans {
 public:
  operator ::cuda::std::span<T>() noexcept { return all_of<T>(static_cast<Vector&>(*this)); }
  operator ::cuda::std::span<T const>() noexcept { return all_of<T const>(static_cast<Vector&>(*this)); }
  operator ::cuda::std::span<T const>() const noexcept { return all_of<T const>(static_cast<Vector const&>(*this)); }

 private:
  template <class Element, class Elements>
  [[nodiscard]] static ::cuda::std::span<Element> all_of(Elements& elements) noexcept
  {
    return ::cuda::std::span<Element>(elements.data(), elements.size());
  }
};

}  // namespace detail

/// Elements of type `T` in device memory, in the order of a stream. None is ever initialised.
///
/// Sizes and capacities count elements. Memory, streams, devices and failures are those of
/// device_buffer, which holds the elements: see there. Elements move between host and device one at
/// a time, for tests and for single values; kernels use the pointers.
template <class T>
class device_uvector : public detail::converts_to_spans<device_uvector<T>, T> {
  static_assert(std::is_trivially_copyable_v<T>, "device_uvector only supports types that are trivially copyable");

 public:
  using value_type             = T;
  using size_type              = std::size_t;
  using reference              = value_type&;
  using const_reference        = value_type const&;
  using pointer                = value_type*;
  using const_pointer          = value_type const*;
  using iterator               = pointer;
  using const_iterator         = const_pointer;
  using reverse_iterator       = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;

  device_uvector()                                 = delete;
  device_uvector(device_uvector const&)            = delete;
  device_uvector& operator=(device_uvector const&) = delete;

  // Aggregates that are used on both sides hold vectors; only the host may run these.
  RMM_EXEC_CHECK_DISABLE
  device_uvector(device_uvector&&) noexcept = default;
  RMM_EXEC_CHECK_DISABLE
  device_uvector& operator=(device_uvector&&) noexcept = default;
  RMM_EXEC_CHECK_DISABLE
  ~device_uvector() = default;

  /// `size` elements with no value, by default from the resource of the current device.
  explicit device_uvector(size_type size, cuda_stream_view stream) : storage_{make_storage(size, stream)} {}

  explicit device_uvector(size_type size, cuda_stream_view stream, device_async_resource_ref mr)
    : storage_{make_storage(size, stream, mr)}
  {}

  /// A copy of the elements of `other`, made on `stream`. Not of its capacity, stream or resource.
  explicit device_uvector(device_uvector const& other, cuda_stream_view stream) : storage_{other.storage_, stream} {}

  explicit device_uvector(device_uvector const& other, cuda_stream_view stream, device_async_resource_ref mr)
    : storage_{other.storage_, stream, mr}
  {}

  /// Address of an element. Requires `index < size()`.
  [[nodiscard]] pointer element_ptr(size_type index) noexcept
  {
    RMM_ASSERT(index < size());
    return data() + index;
  }

  [[nodiscard]] const_pointer element_ptr(size_type index) const noexcept
  {
    RMM_ASSERT(index < size());
    return data() + index;
  }

  /// Queues the copy of `value` into an element; `value` has to live until it has happened. Throws
  /// out_of_range.
  void set_element_async(size_type index, value_type const& value, cuda_stream_view stream)
  {
    expect_in_range(index);
    if constexpr (std::is_same_v<value_type, bool>) {
      rmm::detail::fill_async(element_ptr(index), value, sizeof(value_type), stream);
    } else {
      rmm::detail::copy_async(element_ptr(index), std::addressof(value), sizeof(value_type), stream);
    }
  }

  void set_element_async(size_type, value_type const&&, cuda_stream_view) = delete;

  /// Queues setting all bytes of an element to zero. Throws out_of_range.
  void set_element_to_zero_async(size_type index, cuda_stream_view stream)
  {
    expect_in_range(index);
    rmm::detail::fill_async(element_ptr(index), 0, sizeof(value_type), stream);
  }

  /// Copies `value` into an element and waits for the stream. Throws out_of_range.
  void set_element(size_type index, value_type const& value, cuda_stream_view stream)
  {
    set_element_async(index, value, stream);
    stream.synchronize_no_throw();
  }

  /// The value of an element, after waiting for the stream. Throws out_of_range.
  value_type element(size_type index, cuda_stream_view stream) const
  {
    expect_in_range(index);
    uninitialized_value copy;
    rmm::detail::copy_async(std::addressof(copy.value), element_ptr(index), sizeof(value_type), stream);
    stream.synchronize();
    return copy.value;
  }

  /// element(0), which an empty vector has not: out_of_range.
  value_type front_element(cuda_stream_view stream) const { return element(0, stream); }

  /// element(size() - 1). Throws out_of_range, too.
  value_type back_element(cuda_stream_view stream) const { return element(size() - 1, stream); }

  /// See device_buffer::reserve(), in elements.
  void reserve(size_type new_capacity, cuda_stream_view stream) { storage_.reserve(bytes_of(new_capacity), stream); }

  /// See device_buffer::resize(), in elements. New elements have no value.
  void resize(size_type new_size, cuda_stream_view stream) { storage_.resize(bytes_of(new_size), stream); }

  /// See device_buffer::shrink_to_fit().
  void shrink_to_fit(cuda_stream_view stream) { storage_.shrink_to_fit(stream); }

  /// Hands the memory over, which leaves the vector empty.
  device_buffer release() noexcept { return std::move(storage_); }

  /// Elements that there is room for without another allocation.
  [[nodiscard]] size_type capacity() const noexcept { return storage_.capacity() / sizeof(T); }

  /// Address of the first element; null if there is no memory.
  [[nodiscard]] pointer data() noexcept { return static_cast<pointer>(storage_.data()); }
  [[nodiscard]] const_pointer data() const noexcept { return static_cast<const_pointer>(storage_.data()); }

  /// Addresses on the device, as data(): for kernels and for algorithms that run there.
  [[nodiscard]] iterator begin() noexcept { return data(); }
  [[nodiscard]] const_iterator begin() const noexcept { return data(); }
  [[nodiscard]] const_iterator cbegin() const noexcept { return data(); }

  /// One past the last element.
  [[nodiscard]] iterator end() noexcept { return data() + size(); }
  [[nodiscard]] const_iterator end() const noexcept { return data() + size(); }
  [[nodiscard]] const_iterator cend() const noexcept { return data() + size(); }

  /// From the last element to the first, on the device too.
  [[nodiscard]] reverse_iterator rbegin() noexcept { return reverse_iterator{end()}; }
  [[nodiscard]] const_reverse_iterator rbegin() const noexcept { return crbegin(); }
  [[nodiscard]] const_reverse_iterator crbegin() const noexcept { return const_reverse_iterator{end()}; }

  /// One past the first element, backwards.
  [[nodiscard]] reverse_iterator rend() noexcept { return reverse_iterator{begin()}; }
  [[nodiscard]] const_reverse_iterator rend() const noexcept { return crend(); }
  [[nodiscard]] const_reverse_iterator crend() const noexcept { return const_reverse_iterator{begin()}; }

  /// Number of elements.
  [[nodiscard]] size_type size() const noexcept { return storage_.size() / sizeof(T); }

  /// The same as a signed number.
  [[nodiscard]] std::int64_t ssize() const noexcept
  {
    RMM_ASSERT(size() <= static_cast<size_type>(std::numeric_limits<std::int64_t>::max()));
    return static_cast<std::int64_t>(size());
  }

  /// Whether there are no elements; there may be capacity all the same.
  [[nodiscard]] bool is_empty() const noexcept { return size() == 0; }

  /// The resource that the memory came from and goes back to.
  [[nodiscard]] device_async_resource_ref memory_resource() const noexcept { return storage_.memory_resource(); }

  /// The stream on which the memory will go back.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return storage_.stream(); }

  /// See device_buffer::set_stream().
  void set_stream(cuda_stream_view stream) noexcept { storage_.set_stream(stream); }

 private:
  // Room for a value on the host, whose type need not have a default constructor.
  union uninitialized_value {
    uninitialized_value() noexcept {}
    value_type value;
  };

  [[nodiscard]] static constexpr std::size_t bytes_of(size_type count)
  {
    return rmm::detail::checked_multiply(count, sizeof(value_type));
  }

  /// `resource`: one, or none. Resources align to CUDA_ALLOCATION_ALIGNMENT; the buffer does so for elements that need more.
  template <class... Resource>
  [[nodiscard]] static device_buffer make_storage(size_type size, cuda_stream_view stream, Resource... resource)
  {
    if constexpr (alignof(value_type) > CUDA_ALLOCATION_ALIGNMENT) {
      return device_buffer{bytes_of(size), alignof(value_type), stream, resource...};
    } else {
      return device_buffer{bytes_of(size), stream, resource...};
    }
  }

  void expect_in_range(size_type index) const
  {
    RMM_EXPECTS(index < size(), "Attempt to access out of bounds element of a device_uvector", out_of_range);
  }

  device_buffer storage_;
};

}  // namespace RMM_NAMESPACE
