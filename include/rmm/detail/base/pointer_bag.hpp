// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdlib>

namespace RMM_NAMESPACE {
namespace detail {

/// An unordered collection of a few pointers. It keeps small headers small: std::vector and <algorithm> are ten times their size.
///
/// All functions take linear time; only try_add() allocates.
class pointer_bag {
 public:
  pointer_bag() = default;
  ~pointer_bag() { std::free(pointers_); }
  pointer_bag(pointer_bag const&)            = delete;
  pointer_bag& operator=(pointer_bag const&) = delete;

  /// Adds a pointer. Returns false if host memory runs out.
  [[nodiscard]] bool try_add(void* pointer) noexcept
  {
    if (count_ == capacity_) {
      auto const capacity = 2 * capacity_ + 8;
      void* const grown   = std::realloc(pointers_, capacity * sizeof pointer);
      if (grown == nullptr) { return false; }
      pointers_ = static_cast<void**>(grown);
      capacity_ = capacity;
    }
    pointers_[count_++] = pointer;
    return true;
  }

  [[nodiscard]] bool contains(void const* pointer) const noexcept { return position_of(pointer) != count_; }

  /// Removes one occurrence of a pointer. Returns whether there was one.
  bool remove(void const* pointer) noexcept
  {
    auto const position = position_of(pointer);
    if (position == count_) { return false; }
    pointers_[position] = pointers_[--count_];
    return true;
  }

  [[nodiscard]] void* const* begin() const noexcept { return pointers_; }
  [[nodiscard]] void* const* end() const noexcept { return pointers_ + count_; }

 private:
  [[nodiscard]] std::size_t position_of(void const* pointer) const noexcept
  {
    std::size_t position = 0;
    while (position != count_ && pointers_[position] != pointer) { ++position; }
    return position;
  }

  void** pointers_{};
  std::size_t count_{};
  std::size_t capacity_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
