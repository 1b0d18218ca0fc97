// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>      // IWYU pragma: export
#include <rmm/cuda_device.hpp>  // IWYU pragma: export
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/fill.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/exec_check_disable.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

// Only declares cuda::std::span where libcu++ can do that, because the definition would add half of this header's compile time. To convert
// a vector to a span, include <cuda/std/span>.
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
#include <string>
#include <type_traits>
#include <utility>
#include <vector>  // IWYU pragma: export

namespace RMM_NAMESPACE {

namespace detail {

// Conversions of a vector to spans of all its elements. They are in a base class because the span may be an incomplete type: an
// explicit instantiation of the vector does not instantiate members of its bases.
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

/// A vector of uninitialised elements of type `T` in device memory. Use it for data that kernels write.
///
/// Sizes and capacities count elements. A device_buffer holds the elements; the comment of device_buffer has the rules for streams, devices
/// and failures. Pass data() and size() to kernels. Functions that copy single elements to and from the host are for tests and single
/// values. If their stream is a default stream, they use the default stream of the memory's device, whatever device is current.
///
/// @code{.cpp}
/// rmm::device_uvector<float> values{1000, rmm::cuda_stream_default};
/// cudaMemsetAsync(values.data(), 0, values.size() * sizeof(float), rmm::cuda_stream_default.value());
/// std::printf("last: %g\n", static_cast<double>(values.back_element(rmm::cuda_stream_default)));  // waits for the stream
/// @endcode
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

  // A class with host and device members may have a vector as a member. Without RMM_EXEC_CHECK_DISABLE, nvcc would warn there that the next
  // three functions run only on the host.
  RMM_EXEC_CHECK_DISABLE
  device_uvector(device_uvector&&) noexcept = default;
  RMM_EXEC_CHECK_DISABLE
  device_uvector& operator=(device_uvector&&) noexcept = default;
  RMM_EXEC_CHECK_DISABLE
  ~device_uvector() = default;

  /// `size` uninitialised elements, by default from the resource of the current device.
  explicit device_uvector(size_type size, cuda_stream_view stream) : storage_{make_storage(size, stream)} {}

  explicit device_uvector(size_type size, cuda_stream_view stream, device_async_resource_ref mr)
    : storage_{make_storage(size, stream, mr)}
  {}

  /// A copy of the elements of `other`, made on `stream`. Its capacity, stream and resource are not copied.
  explicit device_uvector(device_uvector const& other, cuda_stream_view stream) : storage_{other.storage_, stream} {}

  explicit device_uvector(device_uvector const& other, cuda_stream_view stream, device_async_resource_ref mr)
    : storage_{other.storage_, stream, mr}
  {}

  /// Returns the address of an element. Requires `index < size()`.
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

  /// Queues the copy of `value` into an element; `value` has to live until the copy is done. Throws out_of_range, and cuda_error if the
  /// copy cannot be queued.
  void set_element_async(size_type index, value_type const& value, cuda_stream_view stream)
  {
    expect_in_range(index);
    rmm::detail::device_scope const on_device{device_for(stream)};
    if constexpr (std::is_same_v<value_type, bool>) {
      rmm::detail::fill_async(element_ptr(index), value, sizeof(value_type), stream);
    } else {
      rmm::detail::copy_async(element_ptr(index), std::addressof(value), sizeof(value_type), stream);
    }
  }

  void set_element_async(size_type, value_type const&&, cuda_stream_view) = delete;

  /// Queues setting all bytes of an element to zero. Throws out_of_range, and cuda_error if that cannot be queued.
  void set_element_to_zero_async(size_type index, cuda_stream_view stream)
  {
    expect_in_range(index);
    rmm::detail::device_scope const on_device{device_for(stream)};
    rmm::detail::fill_async(element_ptr(index), 0, sizeof(value_type), stream);
  }

  /// Copies `value` into an element and waits for the stream. Throws out_of_range, and cuda_error if the copy cannot be queued. A failed
  /// wait does not throw: see cuda_stream_view::synchronize_no_throw().
  void set_element(size_type index, value_type const& value, cuda_stream_view stream)
  {
    rmm::detail::device_scope const on_device{device_for(stream)};
    set_element_async(index, value, stream);
    stream.synchronize_no_throw();
  }

  /// Copies an element to the host in the order of the stream, waits for the stream, and returns the value. Throws out_of_range, and
  /// cuda_error if the copy or the wait fails.
  value_type element(size_type index, cuda_stream_view stream) const
  {
    expect_in_range(index);
    rmm::detail::device_scope const on_device{device_for(stream)};
    uninitialized_value copy;
    rmm::detail::copy_async(std::addressof(copy.value), element_ptr(index), sizeof(value_type), stream);
    stream.synchronize();
    return copy.value;
  }

  /// Returns element(0). Throws out_of_range if the vector is empty.
  value_type front_element(cuda_stream_view stream) const
  {
    RMM_EXPECTS(!is_empty(), "the device_uvector is empty: it has no first element", out_of_range);
    return element(0, stream);
  }

  /// Returns element(size() - 1). Throws out_of_range if the vector is empty.
  value_type back_element(cuda_stream_view stream) const
  {
    RMM_EXPECTS(!is_empty(), "the device_uvector is empty: it has no last element", out_of_range);
    return element(size() - 1, stream);
  }

  /// See device_buffer::reserve(); counts elements.
  void reserve(size_type new_capacity, cuda_stream_view stream) { storage_.reserve(bytes_of(new_capacity), stream); }

  /// See device_buffer::resize(); counts elements. New elements are uninitialised.
  void resize(size_type new_size, cuda_stream_view stream) { storage_.resize(bytes_of(new_size), stream); }

  /// See device_buffer::shrink_to_fit().
  void shrink_to_fit(cuda_stream_view stream) { storage_.shrink_to_fit(stream); }

  /// Returns the memory, and leaves the vector empty.
  device_buffer release() noexcept { return std::move(storage_); }

  /// Returns the number of elements up to which the vector can grow without another allocation.
  [[nodiscard]] size_type capacity() const noexcept { return storage_.capacity() / sizeof(T); }

  /// Returns the address of the first element; null if the capacity is 0.
  [[nodiscard]] pointer data() noexcept { return static_cast<pointer>(storage_.data()); }
  [[nodiscard]] const_pointer data() const noexcept { return static_cast<const_pointer>(storage_.data()); }

  /// Iterators are device addresses, as data(): for kernels, and for algorithms that run on the device.
  [[nodiscard]] iterator begin() noexcept { return data(); }
  [[nodiscard]] const_iterator begin() const noexcept { return data(); }
  [[nodiscard]] const_iterator cbegin() const noexcept { return data(); }

  /// One past the last element.
  [[nodiscard]] iterator end() noexcept { return data() + size(); }
  [[nodiscard]] const_iterator end() const noexcept { return data() + size(); }
  [[nodiscard]] const_iterator cend() const noexcept { return data() + size(); }

  /// Iterates from the last element to the first, on the device.
  [[nodiscard]] reverse_iterator rbegin() noexcept { return reverse_iterator{end()}; }
  [[nodiscard]] const_reverse_iterator rbegin() const noexcept { return crbegin(); }
  [[nodiscard]] const_reverse_iterator crbegin() const noexcept { return const_reverse_iterator{end()}; }

  /// One past the first element, backwards.
  [[nodiscard]] reverse_iterator rend() noexcept { return reverse_iterator{begin()}; }
  [[nodiscard]] const_reverse_iterator rend() const noexcept { return crend(); }
  [[nodiscard]] const_reverse_iterator crend() const noexcept { return const_reverse_iterator{begin()}; }

  /// Number of elements.
  [[nodiscard]] size_type size() const noexcept { return storage_.size() / sizeof(T); }

  /// Number of elements, as a signed number.
  [[nodiscard]] std::int64_t ssize() const noexcept
  {
    RMM_ASSERT(size() <= static_cast<size_type>(std::numeric_limits<std::int64_t>::max()));
    return static_cast<std::int64_t>(size());
  }

  /// Whether the size is 0. The capacity may be larger.
  [[nodiscard]] bool is_empty() const noexcept { return size() == 0; }

  /// Returns the resource that the memory comes from.
  [[nodiscard]] device_async_resource_ref memory_resource() const noexcept { return storage_.memory_resource(); }

  /// Returns the stream in whose order the memory will be freed.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return storage_.stream(); }

  /// See device_buffer::set_stream().
  void set_stream(cuda_stream_view stream) noexcept { storage_.set_stream(stream); }

 private:
  // Room on the host for a value whose type may lack a default constructor.
  union uninitialized_value {
    uninitialized_value() noexcept {}
    value_type value;
  };

  [[nodiscard]] static constexpr std::size_t bytes_of(size_type count)
  {
    return rmm::detail::checked_multiply(count, sizeof(value_type));
  }

  // `resource` is a resource reference, or empty. The buffer aligns elements that need more than resources guarantee.
  template <class... Resource>
  [[nodiscard]] static device_buffer make_storage(size_type size, cuda_stream_view stream, Resource... resource)
  {
    if constexpr (alignof(value_type) > CUDA_ALLOCATION_ALIGNMENT) {
      return device_buffer{bytes_of(size), alignof(value_type), stream, resource...};
    } else {
      return device_buffer{bytes_of(size), stream, resource...};
    }
  }

  // Returns the device that has to be current for work on `stream`; a negative number if any device may be current. The handle of a default
  // stream names a stream of the current device, so for default streams this is the device of the memory.
  [[nodiscard]] int device_for(cuda_stream_view stream) const noexcept
  {
    return stream.is_default() || stream.is_per_thread_default() ? storage_.device().value() : -1;
  }

  void expect_in_range(size_type index) const
  {
    RMM_EXPECTS(index < size(), out_of_range_text(index, size()), out_of_range);
  }

  [[nodiscard]] RMM_COLD static std::string out_of_range_text(size_type index, size_type size)
  {
    return "index " + std::to_string(index) + " is out of range: the device_uvector has " + std::to_string(size) +
           " elements";
  }

  device_buffer storage_;
};

}  // namespace RMM_NAMESPACE
