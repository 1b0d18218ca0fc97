// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/exec_check_disable.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/resource_ref.hpp>

#include <type_traits>

namespace RMM_NAMESPACE {

/// One value of type `T` in device memory. Use it for the result of a kernel or a reduction. A device_buffer holds the value; its comment
/// has the rules for streams, threads, devices and failures.
///
/// @code{.cpp}
/// int const zero{0};
/// rmm::device_scalar<int> sum{zero, rmm::cuda_stream_default};
/// // ... a kernel adds to *sum.data() ...
/// std::printf("sum: %d\n", sum.value(rmm::cuda_stream_default));  // waits for the stream
/// @endcode
template <class T>
class device_scalar {
  static_assert(std::is_trivially_copyable_v<T>, "device_scalar only supports types that are trivially copyable");

 public:
  using value_type      = typename device_uvector<T>::value_type;
  using size_type       = typename device_uvector<T>::size_type;
  using reference       = typename device_uvector<T>::reference;
  using const_reference = typename device_uvector<T>::const_reference;
  using pointer         = typename device_uvector<T>::pointer;
  using const_pointer   = typename device_uvector<T>::const_pointer;

  device_scalar()                                = delete;
  device_scalar(device_scalar const&)            = delete;
  device_scalar& operator=(device_scalar const&) = delete;

  RMM_EXEC_CHECK_DISABLE
  device_scalar(device_scalar&&) noexcept = default;
  RMM_EXEC_CHECK_DISABLE
  device_scalar& operator=(device_scalar&&) noexcept = default;
  RMM_EXEC_CHECK_DISABLE
  ~device_scalar() = default;

  /// Allocates the value uninitialised, by default from the resource of the current device.
  explicit device_scalar(cuda_stream_view stream) : storage_{1, stream} {}
  explicit device_scalar(cuda_stream_view stream, device_async_resource_ref mr) : storage_{1, stream, mr} {}

  /// Allocates the value and queues the copy of `initial_value` into it. `initial_value` has to live until the copy is done. If it is in
  /// pageable memory, and the stream does not capture, it has to live only until this returns.
  explicit device_scalar(value_type const& initial_value, cuda_stream_view stream) : storage_{1, stream}
  {
    set_value_async(initial_value, stream);
  }

  explicit device_scalar(value_type const& initial_value, cuda_stream_view stream, device_async_resource_ref mr)
    : storage_{1, stream, mr}
  {
    set_value_async(initial_value, stream);
  }

  /// A copy of `other`, made on `stream`.
  device_scalar(device_scalar const& other, cuda_stream_view stream) : storage_{other.storage_, stream} {}

  device_scalar(device_scalar const& other, cuda_stream_view stream, device_async_resource_ref mr)
    : storage_{other.storage_, stream, mr}
  {}

  /// Returns the value, after waiting for the stream. Throws cuda_error if the copy or the wait fails, and out_of_range after a move.
  value_type value(cuda_stream_view stream) const { return storage_.front_element(stream); }

  /// Queues the copy of `value`, which has to live until the copy is done.
  void set_value_async(value_type const& value, cuda_stream_view stream)
  {
    storage_.set_element_async(0, value, stream);
  }

  void set_value_async(value_type&&, cuda_stream_view) = delete;

  /// Queues setting all bytes of the value to zero.
  void set_value_to_zero_async(cuda_stream_view stream) { storage_.set_element_to_zero_async(0, stream); }

  /// Address of the value; null after a move.
  [[nodiscard]] pointer data() noexcept { return storage_.data(); }
  [[nodiscard]] const_pointer data() const noexcept { return storage_.data(); }

  /// Always 1.
  [[nodiscard]] constexpr size_type size() const noexcept { return 1; }

  /// Returns the stream on which the memory will be freed.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return storage_.stream(); }

  /// See device_buffer::set_stream().
  void set_stream(cuda_stream_view stream) noexcept { storage_.set_stream(stream); }

 private:
  device_uvector<T> storage_;
};

}  // namespace RMM_NAMESPACE
