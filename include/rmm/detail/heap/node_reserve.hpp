// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <new>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace detail {

/// Host memory for the nodes of sets and maps, put by in advance so that giving memory back never has to ask for some.
///
/// Invariants:
///  I1  spare_ is the number of nodes in the list that begins at first_
///  I2  every node has node_bytes bytes and came from operator new
/// Not thread-safe.
class node_reserve {
 public:
  static constexpr std::size_t node_bytes = 64;

  node_reserve()                               = default;
  node_reserve(node_reserve const&)            = delete;
  node_reserve& operator=(node_reserve const&) = delete;

  ~node_reserve()
  {
    while (first_ != nullptr) { ::operator delete(pop()); }
  }

  /// Sees to it that at least `nodes` can be taken without fail. Throws std::bad_alloc.
  void ensure(std::size_t nodes)
  {
    while (spare_ < nodes) { give(::operator new(node_bytes)); }
  }

  /// One node. Throws std::bad_alloc if none is put by and the host's memory is exhausted.
  [[nodiscard]] void* take() { return first_ != nullptr ? pop() : ::operator new(node_bytes); }

  /// Puts a node by.
  void give(void* node) noexcept
  {
    first_ = ::new (node) link{first_};
    ++spare_;
  }

  [[nodiscard]] std::size_t spare() const noexcept { return spare_; }

 private:
  struct link {
    link* next;
  };

  void* pop() noexcept
  {
    void* const node = first_;
    first_           = first_->next;
    --spare_;
    return node;
  }

  link* first_{};
  std::size_t spare_{};
};

/// Standard allocator that takes single objects from a node_reserve.
template <class T>
struct reserved_allocator {
  using value_type = T;

  reserved_allocator(node_reserve& from) noexcept : reserve{&from} {}

  template <class U>
  reserved_allocator(reserved_allocator<U> const& other) noexcept : reserve{other.reserve}
  {}

  [[nodiscard]] T* allocate(std::size_t count)
  {
    static_assert(sizeof(T) <= node_reserve::node_bytes, "nodes have to fit");
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(count == 1 ? reserve->take() : ::operator new(count * sizeof(T)));
  }

  void deallocate(T* ptr, std::size_t count) noexcept
  {
    if (count == 1) {
      reserve->give(ptr);
    } else {
      ::operator delete(ptr);
    }
  }

  template <class U>
  [[nodiscard]] friend bool operator==(reserved_allocator const& lhs, reserved_allocator<U> const& rhs) noexcept
  {
    return lhs.reserve == rhs.reserve;
  }

  template <class U>
  [[nodiscard]] friend bool operator!=(reserved_allocator const& lhs, reserved_allocator<U> const& rhs) noexcept
  {
    return !(lhs == rhs);
  }

  node_reserve* reserve;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
