// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/export.hpp>

#include <cstdint>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace detail {

/// A stream, and what the caller of a function knows so that CUDA need not be asked:
///  - the identity of the stream: the number that stream_identity() returned for it
///  - the current device
class identified_stream {
 public:
  /// The default stream.
  constexpr identified_stream() noexcept = default;

  /// A stream of which the caller knows nothing else.
  template <class Stream, class = std::enable_if_t<std::is_convertible_v<Stream const&, cuda_stream_view>>>
  constexpr identified_stream(Stream const& stream) noexcept : view_{stream}
  {}

  /// A stream that has the identity `identity`; 0 if the caller does not know it. The caller has to know that the handle names that stream
  /// now, for example because it keeps the stream alive. `current_device` is negative if the caller does not know it.
  constexpr identified_stream(cuda_stream_view stream, std::uint64_t identity, int current_device = -1) noexcept
    : view_{stream}, current_device_{current_device}, identity_{identity}
  {}

  [[nodiscard]] constexpr cuda_stream_view view() const noexcept { return view_; }

  /// Whether the caller knows that the stream has this identity.
  [[nodiscard]] constexpr bool is_known_as(std::uint64_t identity) const noexcept
  {
    return identity_ != 0 && identity_ == identity;
  }

  /// Returns the current device. Asks CUDA if the caller does not know it.
  [[nodiscard]] int current_device() const noexcept
  {
    return current_device_ >= 0 ? current_device_ : detail::current_device();
  }

 private:
  cuda_stream_view view_;
  int current_device_{-1};
  std::uint64_t identity_{};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
