// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace rmm::recorded {

/// Returns a text that cannot control the terminal that shows it: each control character, ends of lines included, and each
/// byte that is not UTF-8, is `?`. For paths and messages with paths, whose names another user may have chosen.
[[nodiscard]] inline std::string terminal_text(std::string_view text)
{
  std::string shown;
  while (!text.empty()) {
    auto const length    = rmm::detail::length_of_character(text);
    auto const character = text.substr(0, std::max<std::size_t>(length, 1));
    bool const is_shown  = length > 2 || (length == 2 && character >= "\xC2\xA0") ||
                          (length == 1 && character >= " " && character != "\x7F");
    shown += is_shown ? character : "?";
    text.remove_prefix(character.size());
  }
  return shown;
}

}  // namespace rmm::recorded
