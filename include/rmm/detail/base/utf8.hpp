// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the number of bytes of the UTF-8 character at the beginning of the text; 0 if there is no valid one.
[[nodiscard]] inline std::size_t length_of_character(std::string_view text)
{
  auto const byte          = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  auto const first         = byte(0);
  std::size_t const length = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (first >= 0x80 && (first < 0xC2 || first > 0xF4 || text.size() < length)) { return 0; }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) { return 0; }
  }
  bool const is_overlong  = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  bool const is_surrogate = first == 0xED && byte(1) >= 0xA0;
  bool const is_too_large = first == 0xF4 && byte(1) >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

/// Returns the text with U+FFFD in place of each byte that is not valid UTF-8.
[[nodiscard]] inline std::string valid_utf8(std::string_view text)
{
  std::string valid;
  while (!text.empty()) {
    auto const length = length_of_character(text);
    valid += length == 0 ? std::string_view{"\xEF\xBF\xBD"} : text.substr(0, length);
    text.remove_prefix(detail::max<std::size_t>(length, 1));
  }
  return valid;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
