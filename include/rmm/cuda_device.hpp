// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>

#include <cstddef>
#include <utility>

namespace RMM_NAMESPACE {

/// The number of a CUDA device. Use it in interfaces, so that no other int can be passed by mistake.
struct cuda_device_id {
  using value_type = int;

  /// The current device of the calling thread; see get_current_cuda_device().
  cuda_device_id() noexcept : value_{detail::query_current_device()} {}

  /// Makes the id of device number `value`. Does not check it, so numbers that stand for the host or for no device are possible.
  explicit constexpr cuda_device_id(value_type value) noexcept : value_{value} {}

  /// The number.
  [[nodiscard]] constexpr value_type value() const noexcept { return value_; }

  [[nodiscard]] RMM_CONSTEXPR_FRIEND bool operator==(cuda_device_id const& lhs, cuda_device_id const& rhs) noexcept
  {
    return lhs.value_ == rhs.value_;
  }

  [[nodiscard]] RMM_CONSTEXPR_FRIEND bool operator!=(cuda_device_id const& lhs, cuda_device_id const& rhs) noexcept
  {
    return !(lhs == rhs);
  }

 private:
  value_type value_;
};

/// Returns the current device of the calling thread. If the CUDA runtime fails, returns -1; if assertions are enabled, ends the program
/// instead, unless the runtime is shut down or there is no driver or device.
inline cuda_device_id get_current_cuda_device() { return cuda_device_id{detail::query_current_device()}; }

/// Returns the number of devices that the process can use. If the CUDA runtime fails, returns 0, or ends the program if assertions are
/// enabled. It counts as a failure of the runtime, too, if there is no driver or no device.
inline int get_num_cuda_devices() { return detail::device_count(); }

/// Returns the free and the total bytes of memory of the current device. Throws cuda_error.
inline std::pair<std::size_t, std::size_t> available_device_memory() { return detail::device_memory_info(); }

/// Returns `percent` per cent of the bytes that are free on the current device, rounded down to a multiple of CUDA_ALLOCATION_ALIGNMENT.
///
/// Requires `percent` in 0 to 100. Throws cuda_error.
inline std::size_t percent_of_free_device_memory(int percent)
{
  RMM_ASSERT(percent >= 0);
  auto const free  = available_device_memory().first;
  auto const share = static_cast<std::size_t>(percent);
  auto const bytes = free / 100 * share + free % 100 * share / 100;  // free * share could wrap
  return align_down(bytes, CUDA_ALLOCATION_ALIGNMENT);
}

/// A guard that makes a device current for the calling thread. Use it around code for one device: the destructor makes the previous
/// device current again.
///
/// Does nothing if the number is negative or if the device is already current. Never throws. If the device cannot be made current, for
/// example because it does not exist, the program ends if assertions are enabled; otherwise the previous device stays current. If the
/// runtime does not know the previous device, `device` stays current.
///
/// @code{.cpp}
/// for (int i = 0; i < rmm::get_num_cuda_devices(); ++i) {
///   rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{i}};
///   std::printf("device %d: %zu bytes free\n", i, rmm::available_device_memory().first);
/// }
/// @endcode
struct cuda_set_device_raii {
  /// Makes `device` current.
  explicit cuda_set_device_raii(cuda_device_id device)
    : previous_{device.value() >= 0 ? detail::current_device() : device.value()},
      must_restore_{previous_ != device.value()}
  {
    if (must_restore_) { detail::make_device_current(device.value()); }
  }

  ~cuda_set_device_raii() noexcept
  {
    if (must_restore_ && previous_ >= 0) { detail::make_device_current(previous_); }
  }

  cuda_set_device_raii(cuda_set_device_raii const&)            = delete;
  cuda_set_device_raii& operator=(cuda_set_device_raii const&) = delete;
  cuda_set_device_raii(cuda_set_device_raii&&)                 = delete;
  cuda_set_device_raii& operator=(cuda_set_device_raii&&)      = delete;

 private:
  int previous_;
  bool must_restore_;
};

}  // namespace RMM_NAMESPACE
