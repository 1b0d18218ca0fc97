// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// A hash map from pointers to values. For headers that all programs include: <map> and <unordered_map> are 3,000 lines each.
///
/// It uses linear probing. It grows with the number of pointers; only clear() shrinks it. Null cannot be a key.
///
/// Invariants:
///  M1  the number of places is a power of two, or 0; at most three quarters of them are taken
///  M2  no place between the home of a pointer, where its search begins, and its place is empty
template <class Value>
class pointer_map {
 public:
  struct entry {
    void const* pointer{};  // null in an empty place
    Value value{};
  };

  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// Returns the value of a pointer, or null. It is valid until the next call that changes the map.
  [[nodiscard]] Value const* find(void const* pointer) const noexcept
  {
    if (count_ == 0) { return nullptr; }
    auto const& found = places_[place_of(pointer)];
    return found.pointer != nullptr ? &found.value : nullptr;
  }
  [[nodiscard]] Value* find(void const* pointer) noexcept
  {
    return const_cast<Value*>(std::as_const(*this).find(pointer));  // NOLINT: the map is not const
  }

  /// Adds a pointer, or replaces its value. Throws std::bad_alloc, and changes nothing then. Requires that the pointer is not null.
  void insert_or_assign(void const* pointer, Value value)
  {
    if (4 * (count_ + 1) > 3 * places_.size()) { grow(); }
    auto& place = places_[place_of(pointer)];
    if (place.pointer == nullptr) { ++count_; }
    place = entry{pointer, std::move(value)};
  }

  /// Removes a pointer. Returns whether it was there.
  bool erase(void const* pointer) noexcept
  {
    Value value{};
    return extract(pointer, value);
  }

  /// Removes a pointer, and moves its value to `value`. Returns whether it was there.
  bool extract(void const* pointer, Value& value) noexcept
  {
    if (count_ == 0) { return false; }
    auto at = place_of(pointer);
    if (places_[at].pointer == nullptr) { return false; }
    value = std::move(places_[at].value);
    // Later entries whose search passes the gap move into it.
    for (auto next = (at + 1) & mask(); places_[next].pointer != nullptr; next = (next + 1) & mask()) {
      if (((next - home_of(places_[next].pointer)) & mask()) >= ((next - at) & mask())) {
        places_[at] = std::move(places_[next]);
        at          = next;
      }
    }
    places_[at] = entry{};
    --count_;
    return true;
  }

  void clear() noexcept
  {
    std::vector<entry>{}.swap(places_);
    count_ = 0;
  }

  template <class Visit>
  void for_each(Visit&& visit) const
  {
    for (auto const& each : places_) {
      if (each.pointer != nullptr) { visit(each.pointer, each.value); }
    }
  }

 private:
  static constexpr std::size_t first_places = 16;

  [[nodiscard]] std::size_t mask() const noexcept { return places_.size() - 1; }

  /// Returns the place where the search for a pointer begins. It leaves the highest bits of the product to code that distributes
  /// pointers over several maps.
  [[nodiscard]] std::size_t home_of(void const* pointer) const noexcept
  {
    auto const mixed = std::uint64_t{reinterpret_cast<std::uintptr_t>(pointer)} * 0x9E3779B97F4A7C15U;
    return std::size_t{mixed >> 28U} & mask();
  }

  /// Returns the place of a pointer, or the empty place that it would get. Requires that there are places.
  [[nodiscard]] std::size_t place_of(void const* pointer) const noexcept
  {
    auto at = home_of(pointer);
    while (places_[at].pointer != nullptr && places_[at].pointer != pointer) { at = (at + 1) & mask(); }
    return at;
  }

  void grow()
  {
    std::vector<entry> old(places_.empty() ? first_places : 2 * places_.size());
    places_.swap(old);
    for (auto& each : old) {
      if (each.pointer != nullptr) { places_[place_of(each.pointer)] = std::move(each); }
    }
  }

  std::vector<entry> places_;
  std::size_t count_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
