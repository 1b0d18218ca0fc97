// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#if __has_include(<cuda/stream>)
#include <cuda/stream>
#else
#include <cuda/stream_ref>
#endif

#include <cstddef>
#include <iosfwd>
#include <type_traits>

namespace RMM_NAMESPACE {

/// A CUDA stream that another object owns. Use it as a parameter, to accept streams from any owner.
///
/// A copyable handle, valid as long as the stream. Handle 0 is the default stream: the legacy default stream, or, in files compiled
/// with CUDA_API_PER_THREAD_DEFAULT_STREAM, the default stream of the calling thread.
///
/// @code{.cpp}
/// auto const clear = [](rmm::device_buffer& buffer, rmm::cuda_stream_view stream) {
///   cudaMemsetAsync(buffer.data(), 0, buffer.size(), stream.value());
/// };
/// rmm::cuda_stream const stream;
/// rmm::device_buffer buffer{1000, stream.view()};
/// clear(buffer, stream.view());
/// stream.synchronize();
/// @endcode
class cuda_stream_view {
 public:
  /// The default stream.
  constexpr cuda_stream_view() noexcept = default;

  constexpr cuda_stream_view(int)            = delete;  // a literal 0 is more often a mistake than a stream
  constexpr cuda_stream_view(std::nullptr_t) = delete;

  constexpr cuda_stream_view(cudaStream_t stream) noexcept : stream_{stream} {}

  // A template, so that arguments which convert to both types, such as a cuda_stream, prefer the copy constructor.
  template <class = void>
  constexpr cuda_stream_view(::cuda::stream_ref stream) noexcept : stream_{stream.get()}
  {}

  /// The handle.
  [[nodiscard]] constexpr cudaStream_t value() const noexcept { return stream_; }

  /// Returns the handle: value() under the name that libcu++ uses.
  [[nodiscard]] constexpr cudaStream_t get() const noexcept { return stream_; }

  /// Converts to the handle, so that a view can be passed to functions of the CUDA API.
  constexpr operator cudaStream_t() const noexcept { return stream_; }

  /// Converts to the stream type of libcu++.
  constexpr operator ::cuda::stream_ref() const noexcept { return ::cuda::stream_ref{stream_}; }

  /// Whether this is the default stream of the calling thread.
  [[nodiscard]] RMM_ALWAYS_INLINE bool is_per_thread_default() const noexcept
  {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    return stream_ == cudaStreamPerThread || stream_ == nullptr;
#else
    return stream_ == cudaStreamPerThread;
#endif
  }

  /// Whether this is the legacy default stream. In files compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM this is false for handle 0, and
  /// so for cuda_stream_default: see is_per_thread_default().
  [[nodiscard]] RMM_ALWAYS_INLINE bool is_default() const noexcept
  {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    return stream_ == cudaStreamLegacy;
#else
    return stream_ == cudaStreamLegacy || stream_ == nullptr;
#endif
  }

  /// Waits on the host until the stream's work is done. Throws cuda_error.
  RMM_ALWAYS_INLINE void synchronize() const { detail::synchronize_stream(stream_); }

  /// Waits as synchronize() does; the name that libcu++ uses.
  RMM_ALWAYS_INLINE void sync() const { synchronize(); }

  /// Waits as synchronize() does, but never throws. For destructors and noexcept functions.
  ///
  /// If assertions are enabled, a failure ends the program, unless the runtime is shut down or there is no driver or device. All other
  /// failures are ignored.
  RMM_ALWAYS_INLINE void synchronize_no_throw() const noexcept { detail::synchronize_stream_no_throw(stream_); }

 private:
  cudaStream_t stream_{};
};

/// The default stream, handle 0; see cuda_stream_view.
inline constexpr cuda_stream_view cuda_stream_default{};

/// The legacy default stream.
inline cuda_stream_view const cuda_stream_legacy{cudaStreamLegacy};

/// The default stream of the calling thread.
inline cuda_stream_view const cuda_stream_per_thread{cudaStreamPerThread};

/// Whether both have the same handle. Handle 0 is unequal to cudaStreamLegacy and to cudaStreamPerThread, although it names the same stream
/// as one of them.
[[nodiscard]] constexpr bool operator==(cuda_stream_view lhs, cuda_stream_view rhs) noexcept
{
  return lhs.value() == rhs.value();
}

[[nodiscard]] constexpr bool operator!=(cuda_stream_view lhs, cuda_stream_view rhs) noexcept { return !(lhs == rhs); }

namespace detail {
/// Enabled for the stream types to which a cuda_stream_view converts.
template <class T>
using if_foreign_stream = std::enable_if_t<std::is_same_v<T, cudaStream_t> || std::is_same_v<T, ::cuda::stream_ref>>;
}  // namespace detail

// Comparisons of a view with a raw handle or a libcu++ reference. Each converts to the other, so without these exact matches a
// comparison would be ambiguous.
template <class Stream, class = detail::if_foreign_stream<Stream>>
[[nodiscard]] constexpr bool operator==(cuda_stream_view lhs, Stream rhs) noexcept
{
  return lhs == cuda_stream_view{rhs};
}

template <class Stream, class = detail::if_foreign_stream<Stream>>
[[nodiscard]] constexpr bool operator==(Stream lhs, cuda_stream_view rhs) noexcept
{
  return cuda_stream_view{lhs} == rhs;
}

template <class Stream, class = detail::if_foreign_stream<Stream>>
[[nodiscard]] constexpr bool operator!=(cuda_stream_view lhs, Stream rhs) noexcept
{
  return lhs != cuda_stream_view{rhs};
}

template <class Stream, class = detail::if_foreign_stream<Stream>>
[[nodiscard]] constexpr bool operator!=(Stream lhs, cuda_stream_view rhs) noexcept
{
  return cuda_stream_view{lhs} != rhs;
}

/// Prints the handle as a pointer.
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, cuda_stream_view stream)
{
  return out << static_cast<void const*>(stream.value());
}

}  // namespace RMM_NAMESPACE
