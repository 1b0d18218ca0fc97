// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/address_range.hpp>

#include <cstddef>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The interface of a source of reservations: a pool, or a reservation. Blocks may come back in parts.
class reservable {
 public:
  /// Returns a block that `stream` may use immediately. Throws as allocate() does.
  [[nodiscard]] virtual void* set_aside(std::size_t bytes, cuda_stream_view stream) = 0;

  /// Returns a block that `stream` may use immediately; null if there is not enough memory. Does not ask the program to free memory.
  /// Throws std::bad_alloc if host memory runs out.
  [[nodiscard]] virtual void* try_set_aside(std::size_t bytes, cuda_stream_view stream) = 0;

  /// Takes back a block, or a part of one that try_divide() was called for, in the order of `stream`.
  virtual void take_back(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept = 0;

  /// Announces that a block comes back in one more part. `piece` is the block, or what is left of it after such announcements; its two
  /// parts meet at the address `at`. Returns false if host memory runs out.
  [[nodiscard]] virtual bool try_divide(rmm::detail::address_range piece, std::uintptr_t at) noexcept = 0;

  /// Whether each call asks the driver if its stream captures.
  [[nodiscard]] virtual bool check_capture() const noexcept = 0;

  /// Returns the device of the memory; -1 if it is not known.
  [[nodiscard]] virtual int home_device() const noexcept = 0;

  /// Throws logic_error if the memory of an allocated block is not available at present, because its pool is suspended.
  virtual void expect_usable(void const* /*block*/) const {}

 protected:
  ~reservable() = default;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
