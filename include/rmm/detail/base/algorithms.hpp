// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

// Algorithms of namespace std for random-access iterators, and functions that they need. Headers that most programs include use this one
// instead of <algorithm>, which is 20 times as long because it also declares the parallel algorithms in C++17.

template <class T>
[[nodiscard]] constexpr T const& min(T const& lhs, T const& rhs) noexcept
{
  return rhs < lhs ? rhs : lhs;
}

template <class T>
[[nodiscard]] constexpr T const& max(T const& lhs, T const& rhs) noexcept
{
  return lhs < rhs ? rhs : lhs;
}

template <class T>
[[nodiscard]] constexpr T max(std::initializer_list<T> values) noexcept
{
  auto largest = *values.begin();
  for (auto const& each : values) { largest = detail::max(largest, each); }
  return largest;
}

template <class T>
[[nodiscard]] constexpr T const& clamp(T const& value, T const& low, T const& high) noexcept
{
  return value < low ? low : high < value ? high : value;
}

template <class Iterator, class Predicate>
[[nodiscard]] Iterator find_if(Iterator first, Iterator last, Predicate predicate)
{
  while (first != last && !predicate(*first)) { ++first; }
  return first;
}

template <class Iterator, class Predicate>
[[nodiscard]] bool any_of(Iterator first, Iterator last, Predicate predicate)
{
  return detail::find_if(first, last, predicate) != last;
}

template <class Iterator, class Predicate>
[[nodiscard]] bool none_of(Iterator first, Iterator last, Predicate predicate)
{
  return detail::find_if(first, last, predicate) == last;
}

template <class Iterator, class Predicate>
[[nodiscard]] bool all_of(Iterator first, Iterator last, Predicate predicate)
{
  while (first != last && predicate(*first)) { ++first; }
  return first == last;
}

template <class Iterator, class Predicate>
[[nodiscard]] std::ptrdiff_t count_if(Iterator first, Iterator last, Predicate predicate)
{
  std::ptrdiff_t count = 0;
  for (; first != last; ++first) { count += predicate(*first) ? 1 : 0; }
  return count;
}

/// Copies elements of a trivially copyable type; the ranges may overlap. Returns the end of the copy.
template <class T>
T* copy(T const* first, T const* last, T* to) noexcept
{
  static_assert(std::is_trivially_copyable_v<T>);
  auto const count = static_cast<std::size_t>(last - first);
  if (count != 0) { std::memmove(to, first, count * sizeof(T)); }
  return to + count;
}

/// Moves the elements that are not removed to the beginning, in their order. Returns the end of these elements.
template <class Iterator, class Predicate>
[[nodiscard]] Iterator remove_if(Iterator first, Iterator last, Predicate is_removed)
{
  first = detail::find_if(first, last, is_removed);
  if (first == last) { return last; }
  for (auto next = first + 1; next != last; ++next) {
    if (!is_removed(*next)) { *first++ = std::move(*next); }
  }
  return first;
}

/// Returns the first element that is not before `value`.
template <class Iterator, class T, class Before>
[[nodiscard]] Iterator lower_bound(Iterator first, Iterator last, T const& value, Before is_before)
{
  for (auto count = last - first; count > 0;) {
    auto const half = count / 2;
    if (is_before(first[half], value)) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

template <class Iterator, class T>
[[nodiscard]] Iterator lower_bound(Iterator first, Iterator last, T const& value)
{
  return detail::lower_bound(first, last, value, [](auto const& lhs, T const& rhs) { return lhs < rhs; });
}

/// Returns the first element that is after `value`.
template <class Iterator, class T, class Before>
[[nodiscard]] Iterator upper_bound(Iterator first, Iterator last, T const& value, Before is_before)
{
  return detail::lower_bound(first, last, value, [&](auto const& lhs, T const& rhs) { return !is_before(rhs, lhs); });
}

template <class Iterator, class T>
[[nodiscard]] Iterator upper_bound(Iterator first, Iterator last, T const& value)
{
  return detail::lower_bound(first, last, value, [](auto const& lhs, T const& rhs) { return !(rhs < lhs); });
}

template <class Iterator, class T>
[[nodiscard]] bool binary_search(Iterator first, Iterator last, T const& value)
{
  first = detail::lower_bound(first, last, value);
  return first != last && !(value < *first);
}

/// In a binary heap of `count` elements, moves the element at position `at` towards the leaves until is_before(element, child) is false
/// for each of its children.
template <class Iterator, class Before>
void sift_down(Iterator first, std::ptrdiff_t at, std::ptrdiff_t count, Before& is_before)
{
  auto moved = std::move(first[at]);
  for (auto below = 2 * at + 1; below < count; below = 2 * at + 1) {
    if (below + 1 < count && is_before(first[below], first[below + 1])) { ++below; }
    if (!is_before(moved, first[below])) { break; }
    first[at] = std::move(first[below]);
    at        = below;
  }
  first[at] = std::move(moved);
}

template <class Iterator, class Before>
void heap_sort(Iterator first, Iterator last, Before& is_before)
{
  auto count = last - first;
  for (auto at = count / 2; at > 0; --at) { detail::sift_down(first, at - 1, count, is_before); }
  for (; count > 1; --count) {
    std::swap(first[0], first[count - 1]);
    detail::sift_down(first, 0, count - 1, is_before);
  }
}

template <class Iterator, class Before>
[[nodiscard]] Iterator median_of_three(Iterator a, Iterator b, Iterator c, Before& is_before)
{
  if (is_before(*b, *a)) { std::swap(a, b); }
  return is_before(*b, *c) ? b : is_before(*a, *c) ? c : a;
}

/// Partitions more than three elements into two non-empty parts, so that no element of the first is after one of the second. Returns
/// the beginning of the second part.
template <class Iterator, class Before>
[[nodiscard]] Iterator divide(Iterator first, Iterator last, Before& is_before)
{
  std::swap(*first, *detail::median_of_three(first + 1, first + (last - first) / 2, last - 1, is_before));
  auto const& pivot = *first;
  // The inner loops stay in the range: of the other two candidates for the median, one is not before the pivot, and one is not after it.
  for (++first;; ++first) {
    while (is_before(*first, pivot)) { ++first; }
    do {
      --last;
    } while (is_before(pivot, *last));
    if (!(first < last)) { return first; }
    std::swap(*first, *last);
  }
}

template <class Iterator, class Before>
void insertion_sort(Iterator first, Iterator last, Before& is_before)
{
  for (auto next = first; next != last; ++next) {
    auto moved = std::move(*next);
    auto at    = next;
    for (; at != first && is_before(moved, at[-1]); --at) { *at = std::move(at[-1]); }
    *at = std::move(moved);
  }
}

template <class Iterator, class Before>
void sort_within(Iterator first, Iterator last, int divisions, Before& is_before)
{
  constexpr std::ptrdiff_t few = 16;
  while (last - first > few) {
    if (divisions-- == 0) { return detail::heap_sort(first, last, is_before); }
    auto const middle = detail::divide(first, last, is_before);
    detail::sort_within(middle, last, divisions, is_before);
    last = middle;
  }
  detail::insertion_sort(first, last, is_before);
}

/// Sorts in O(n log n) comparisons, in place: by quicksort, and by heapsort where quicksort divides badly. Not stable.
template <class Iterator, class Before>
void sort(Iterator first, Iterator last, Before is_before)
{
  int divisions = 0;
  for (auto count = last - first; count > 1; count /= 2) { divisions += 2; }
  detail::sort_within(first, last, divisions, is_before);
}

template <class Iterator>
void sort(Iterator first, Iterator last)
{
  detail::sort(first, last, [](auto const& lhs, auto const& rhs) { return lhs < rhs; });
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
