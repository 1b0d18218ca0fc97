// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace detail {

/// A stream and, if the caller knows it, its identity: the number that stream_identity() returned for it. CUDA need not be asked then
/// whether the handle still names the stream.
class identified_stream {
 public:
  /// The default stream.
  constexpr identified_stream() noexcept = default;

  /// A stream whose identity the caller does not know.
  template <class Stream, class = std::enable_if_t<std::is_convertible_v<Stream const&, cuda_stream_view>>>
  constexpr identified_stream(Stream const& stream) noexcept : view_{stream}
  {}

  /// A stream that has the identity `identity`; 0 if the caller does not know it. The caller has to know that the handle names that stream
  /// now, for example because it keeps the stream alive.
  constexpr identified_stream(cuda_stream_view stream, std::uint64_t identity) noexcept
    : view_{stream}, identity_{identity}
  {}

  [[nodiscard]] constexpr cuda_stream_view view() const noexcept { return view_; }

  /// Whether the caller knows that the stream has this identity.
  [[nodiscard]] constexpr bool is_known_as(std::uint64_t identity) const noexcept
  {
    return identity_ != 0 && identity_ == identity;
  }

 private:
  cuda_stream_view view_;
  std::uint64_t identity_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
