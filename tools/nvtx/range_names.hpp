// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/nvtx/range_tags.hpp>

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cwchar>
#include <string_view>

namespace RMM_NAMESPACE {
namespace tools {

/// Whether a text ends with a literal.
template <std::size_t Size>
[[nodiscard]] bool ends_with(std::string_view text, char const (&end)[Size]) noexcept
{
  constexpr std::size_t length = Size - 1;
  return text.size() >= length && std::memcmp(text.data() + text.size() - length, end, length) == 0;
}

/// Returns the descriptive part of a range's name, cut if it is too long; empty for null.
///
/// PyTorch's emit_nvtx() appends the number of the call, its operation, and sizes to the name of an operator: `aten::add, seq = 7, op_id = 9`.
[[nodiscard]] inline std::string_view range_name(char const* text) noexcept
{
  if (text == nullptr) { return {}; }
  std::string_view const name{text, ::strnlen(text, range_tags::max_name_length + 1)};
  for (auto at = name.find('='); at != std::string_view::npos; at = name.find('=', at + 1)) {
    auto const before = name.substr(0, at);
    if (ends_with(before, ", seq ") || ends_with(before, ", op_id ") || ends_with(before, ", sizes ") ||
        ends_with(before, ", input_op_ids ")) {
      return before.substr(0, before.rfind(','));
    }
  }
  return cut_between_characters(name, range_tags::max_name_length);
}

/// The name of a range in UTF-8, from wide characters: code points or pairs of UTF-16. Invalid characters become U+FFFD.
class narrow_name {
 public:
  explicit narrow_name(wchar_t const* text) noexcept
  {
    if (text == nullptr) { return; }
    while (*text != L'\0' && length_ + 4 < sizeof bytes_) { append(next_code_point(text)); }
  }

  /// Returns the name with a terminating zero.
  [[nodiscard]] char const* c_str() const noexcept { return bytes_; }

 private:
  [[nodiscard]] static std::uint32_t next_code_point(wchar_t const*& text) noexcept
  {
    auto const code = static_cast<std::uint32_t>(*text++);
    if (code > 0x10FFFFU || (code >= 0xDC00U && code < 0xE000U)) { return 0xFFFDU; }
    if (code < 0xD800U || code >= 0xE000U) { return code; }
    auto const low = static_cast<std::uint32_t>(*text);
    if (low < 0xDC00U || low >= 0xE000U) { return 0xFFFDU; }
    ++text;
    return 0x10000U + ((code - 0xD800U) << 10U) + (low - 0xDC00U);
  }

  void append(std::uint32_t code) noexcept
  {
    auto const add = [&](std::uint32_t byte) { bytes_[length_++] = static_cast<char>(byte); };
    if (code < 0x80U) { return add(code); }
    if (code < 0x800U) {
      add(0xC0U | (code >> 6U));
    } else {
      if (code < 0x10000U) {
        add(0xE0U | (code >> 12U));
      } else {
        add(0xF0U | (code >> 18U));
        add(0x80U | ((code >> 12U) & 0x3FU));
      }
      add(0x80U | ((code >> 6U) & 0x3FU));
    }
    add(0x80U | (code & 0x3FU));
  }

  std::size_t length_{0};
  char bytes_[range_tags::max_name_length + 8]{};  // room for the character that passes the limit
};

}  // namespace tools
}  // namespace RMM_NAMESPACE
