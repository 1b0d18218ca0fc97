// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

template <class T>
struct delete_object {
  void operator()(T* object) const noexcept { delete object; }
};
template <class T>
struct delete_object<T[]> {
  void operator()(T* objects) const noexcept { delete[] objects; }
};

/// A unique owner of an object or an array, like std::unique_ptr. It exists because including <memory> takes a twelfth of the compile
/// time of a pool's header. `Delete` has no state.
template <class T, class Delete = delete_object<T>>
class owned_ptr {
 public:
  using element = std::remove_extent_t<T>;

  constexpr owned_ptr() noexcept = default;
  constexpr owned_ptr(std::nullptr_t) noexcept {}  // NOLINT: as std::unique_ptr
  explicit owned_ptr(element* object) noexcept : object_{object} {}
  owned_ptr(owned_ptr&& other) noexcept : object_{other.release()} {}
  template <class Other, class = std::enable_if_t<std::is_convertible_v<Other*, element*>>>
  owned_ptr(owned_ptr<Other>&& other) noexcept : object_{other.release()}  // NOLINT: as std::unique_ptr
  {}
  owned_ptr& operator=(owned_ptr&& other) noexcept
  {
    reset(other.release());
    return *this;
  }
  ~owned_ptr() { reset(); }

  [[nodiscard]] element* get() const noexcept { return object_; }
  [[nodiscard]] element* operator->() const noexcept { return object_; }
  [[nodiscard]] std::add_lvalue_reference_t<element> operator*() const noexcept { return *object_; }
  [[nodiscard]] std::add_lvalue_reference_t<element> operator[](std::size_t at) const noexcept { return object_[at]; }
  [[nodiscard]] explicit operator bool() const noexcept { return object_ != nullptr; }

  [[nodiscard]] element* release() noexcept { return std::exchange(object_, nullptr); }
  void reset(element* object = nullptr) noexcept
  {
    auto* const previous = std::exchange(object_, object);
    if (previous != nullptr) { Delete{}(previous); }
  }

  [[nodiscard]] friend bool operator==(owned_ptr const& owner, std::nullptr_t) noexcept { return !owner; }
  [[nodiscard]] friend bool operator!=(owned_ptr const& owner, std::nullptr_t) noexcept { return !!owner; }

 private:
  element* object_{};
};

/// Makes an object. Throws std::bad_alloc, and what the constructor throws.
template <class T, class... Arguments>
[[nodiscard]] owned_ptr<T> make_owned(Arguments&&... arguments)
{
  return owned_ptr<T>{new T(std::forward<Arguments>(arguments)...)};
}

/// The number of owners of an object, and the function that destroys it.
///
/// Order: each owner releases what it did when it leaves, and the last one acquires that of all others before it destroys the object,
/// because each update continues the release sequences of the updates before it. A copy may be relaxed: its thread has an owner already,
/// so the count cannot reach 0. tests/models/thread_slots_model.cpp tries all executions.
struct owner_count {
  std::atomic<std::size_t> owners{1};
  void (*destroy)(owner_count* counted) noexcept {};
};

/// A shared owner of an object, like std::shared_ptr. The last owner destroys it. A counted_ptr<void> keeps an object of any type.
template <class T>
class counted_ptr {
 public:
  constexpr counted_ptr() noexcept = default;
  constexpr counted_ptr(std::nullptr_t) noexcept {}                                        // NOLINT: as std::shared_ptr
  counted_ptr(owner_count* count, T* object) noexcept : count_{count}, object_{object} {}  // becomes one of the owners
  counted_ptr(counted_ptr const& other) noexcept : count_{other.count_}, object_{other.object_}
  {
    if (count_ != nullptr) { count_->owners.fetch_add(1, std::memory_order_relaxed); }
  }
  counted_ptr(counted_ptr&& other) noexcept
    : count_{std::exchange(other.count_, nullptr)}, object_{std::exchange(other.object_, nullptr)}
  {}
  template <class Other, class = std::enable_if_t<std::is_convertible_v<Other*, T*>>>
  counted_ptr(counted_ptr<Other> other) noexcept  // NOLINT: as std::shared_ptr
    : count_{std::exchange(other.count_, nullptr)}, object_{std::exchange(other.object_, nullptr)}
  {}
  counted_ptr& operator=(counted_ptr other) noexcept
  {
    std::swap(count_, other.count_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~counted_ptr()
  {
    if (count_ != nullptr && count_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) { count_->destroy(count_); }
  }

  [[nodiscard]] T* get() const noexcept { return object_; }
  [[nodiscard]] T* operator->() const noexcept { return object_; }
  [[nodiscard]] std::add_lvalue_reference_t<T> operator*() const noexcept { return *object_; }
  [[nodiscard]] explicit operator bool() const noexcept { return object_ != nullptr; }

  [[nodiscard]] friend bool operator==(counted_ptr const& owner, std::nullptr_t) noexcept { return !owner; }
  [[nodiscard]] friend bool operator!=(counted_ptr const& owner, std::nullptr_t) noexcept { return !!owner; }

 private:
  template <class Other>
  friend class counted_ptr;

  owner_count* count_{};
  T* object_{};
};

/// Makes an object and its count in one allocation. Throws std::bad_alloc, and what the constructor throws.
template <class T, class... Arguments>
[[nodiscard]] counted_ptr<T> make_counted(Arguments&&... arguments)
{
  struct counted : owner_count {
    explicit counted(Arguments&&... given) : object(std::forward<Arguments>(given)...) {}
    T object;
  };
  auto* const made = new counted(std::forward<Arguments>(arguments)...);
  made->destroy    = [](owner_count* count) noexcept { delete static_cast<counted*>(count); };
  return {made, &made->object};
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
