// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// Something that memory can be reserved from: a pool, or a reservation. What it gives out may come back in parts.
class reservable {
 public:
  /// A block that `stream` may use at once. Throws as allocate() does.
  [[nodiscard]] virtual void* set_aside(std::size_t bytes, cuda_stream_view stream) = 0;

  /// The same without asking the program to free memory; null if there is not enough. Throws std::bad_alloc if the host has
  /// no memory to note it.
  [[nodiscard]] virtual void* try_set_aside(std::size_t bytes, cuda_stream_view stream) = 0;

  /// Takes back a block, or a part of one that try_divide() was called for, when `stream` gets there.
  virtual void take_back(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept = 0;

  /// A block of which this is a part will come back in one part more than was known. False if the host has no memory to note
  /// that.
  [[nodiscard]] virtual bool try_divide(void const* ptr, std::size_t bytes) noexcept = 0;

  /// The device that the memory belongs to; -1 if that is not known.
  [[nodiscard]] virtual int home_device() const noexcept = 0;

  /// Throws logic_error if the memory of a block that was given out is not there for the moment.
  virtual void expect_usable(void const* /*block*/) const {}

 protected:
  ~reservable() = default;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
