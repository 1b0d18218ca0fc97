// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

/// @file
/// The concepts of a memory resource, for all releases of libcu++. A resource has the older names of the calls (allocate,
/// allocate_async) or the later ones (allocate_sync, allocate with the stream first).

namespace RMM_NAMESPACE {
namespace detail {

template <class Expected, class... Results>
using if_same = std::enable_if_t<(std::is_same_v<Expected, Results> && ...)>;

template <class T>
T& lvalue() noexcept;  // never defined

template <class R>
using sync_calls = std::void_t<
  if_same<void*, decltype(lvalue<R>().allocate(lvalue<std::size_t>(), lvalue<std::size_t>()))>,
  if_same<void, decltype(lvalue<R>().deallocate(lvalue<void*>(), lvalue<std::size_t>(), lvalue<std::size_t>()))>>;

template <class R>
using async_calls =
  std::void_t<if_same<void*,
                      decltype(lvalue<R>().allocate_async(
                        lvalue<std::size_t>(), lvalue<std::size_t>(), lvalue<::cuda::stream_ref>()))>,
              if_same<void,
                      decltype(lvalue<R>().deallocate_async(
                        lvalue<void*>(), lvalue<std::size_t>(), lvalue<std::size_t>(), lvalue<::cuda::stream_ref>()))>>;

template <class R>
using later_sync_calls = std::void_t<
  if_same<void*, decltype(lvalue<R>().allocate_sync(lvalue<std::size_t>(), lvalue<std::size_t>()))>,
  if_same<void, decltype(lvalue<R>().deallocate_sync(lvalue<void*>(), lvalue<std::size_t>(), lvalue<std::size_t>()))>>;

template <class R>
using later_async_calls = std::void_t<
  if_same<void*,
          decltype(lvalue<R>().allocate(lvalue<::cuda::stream_ref>(), lvalue<std::size_t>(), lvalue<std::size_t>()))>,
  if_same<void,
          decltype(lvalue<R>().deallocate(
            lvalue<::cuda::stream_ref>(), lvalue<void*>(), lvalue<std::size_t>(), lvalue<std::size_t>()))>>;

template <class R>
using equality_calls =
  std::void_t<std::enable_if_t<std::is_convertible_v<decltype(lvalue<R const>() == lvalue<R const>()), bool>>,
              std::enable_if_t<std::is_convertible_v<decltype(lvalue<R const>() != lvalue<R const>()), bool>>>;

template <template <class> class Calls, class R, class = void>
inline constexpr bool offers = false;
template <template <class> class Calls, class R>
inline constexpr bool offers<Calls, R, std::void_t<Calls<R>>> = true;

namespace polyfill {

/// Whether `R` allocates and deallocates without a stream and can be compared.
template <class R>
inline constexpr bool resource = offers<equality_calls, R> && (offers<sync_calls, R> || offers<later_sync_calls, R>);

/// Whether `R` is a resource and also allocates and deallocates in the order of a stream.
template <class R>
inline constexpr bool async_resource = resource<R> && (offers<async_calls, R> || offers<later_async_calls, R>);

/// Whether `R` is a resource and has all of the properties.
template <class R, class... Properties>
inline constexpr bool resource_with = resource<R> && (::cuda::has_property<R, Properties> && ...);

template <class R, class... Properties>
inline constexpr bool async_resource_with = async_resource<R> && (::cuda::has_property<R, Properties> && ...);

}  // namespace polyfill
}  // namespace detail
}  // namespace RMM_NAMESPACE
