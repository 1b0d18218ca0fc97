// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace RMM_NAMESPACE {
namespace detail {

/// Throws std::invalid_argument. The message says what is wrong, and shows the text with a mark under the position:
///
///     Could not parse the size: unknown unit 'qb'; units are ...
///       12 qb
///          ^
///
/// A long text is cut off around the position. Characters that are not printable ASCII are shown as `?`.
[[noreturn]] RMM_COLD inline void throw_text_failure(std::string const& what, std::string_view text, std::size_t place)
{
  constexpr std::size_t max_before = 48;
  constexpr std::size_t max_after  = 24;

  auto const begin = place > max_before ? place - max_before : 0;
  auto const end   = detail::min(text.size(), detail::min(place, text.size()) + max_after);
  std::string shown{text.substr(detail::min(begin, text.size()), end - detail::min(begin, end))};
  for (auto& character : shown) {
    if (character < ' ' || character > '~') { character = '?'; }
  }
  std::string const cut_off_before = begin != 0 ? "..." : "";
  std::string const cut_off_after  = end != text.size() ? "..." : "";
  throw std::invalid_argument(what + "\n  " + cut_off_before + shown + cut_off_after + "\n  " +
                              std::string(cut_off_before.size() + place - begin, ' ') + "^");
}

/// Returns `text` in quotes, cut off after 40 characters. Characters that are not printable ASCII are shown as `?`.
[[nodiscard]] RMM_COLD inline std::string quoted(std::string_view text)
{
  constexpr std::size_t max_length = 40;
  std::string shown{text.substr(0, max_length)};
  for (auto& character : shown) {
    if (character < ' ' || character > '~') { character = '?'; }
  }
  return "'" + shown + (text.size() > max_length ? "...'" : "'");
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
