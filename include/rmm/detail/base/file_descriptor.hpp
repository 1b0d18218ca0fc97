// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <unistd.h>

#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// An owner of a file descriptor, which its destructor closes.
class file_descriptor {
 public:
  file_descriptor() noexcept = default;
  explicit file_descriptor(int value) noexcept : value_{value} {}
  file_descriptor(file_descriptor&& other) noexcept : value_{std::exchange(other.value_, -1)} {}
  file_descriptor& operator=(file_descriptor&& other) noexcept
  {
    std::swap(value_, other.value_);
    return *this;
  }
  file_descriptor(file_descriptor const&)            = delete;
  file_descriptor& operator=(file_descriptor const&) = delete;
  ~file_descriptor()
  {
    if (value_ >= 0) { ::close(value_); }
  }

  /// Returns the descriptor; -1 if there is none.
  [[nodiscard]] int get() const noexcept { return value_; }

  /// Returns the descriptor and gives up ownership: the caller has to close it.
  [[nodiscard]] int release() noexcept { return std::exchange(value_, -1); }

 private:
  int value_{-1};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
