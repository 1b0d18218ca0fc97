// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/utf8.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

namespace rmm::tools {

[[nodiscard]] inline std::string hexadecimal(std::uint64_t number)
{
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

/// Writes JSON that can be embedded in HTML and shown by a terminal: no text in it ends a script or begins a comment, or has
/// control characters.
///
/// The caller opens and closes objects and arrays; the writer adds commas.
class json_writer {
 public:
  json_writer& begin_object() { return open('{'); }
  json_writer& end_object() { return close('}'); }
  json_writer& begin_array() { return open('['); }
  json_writer& end_array() { return close(']'); }

  json_writer& key(std::string_view name)
  {
    value(name);
    text_ += ':';
    needs_comma_ = false;
    return *this;
  }

  json_writer& null() { return raw("null"); }
  json_writer& value(bool is) { return raw(is ? "true" : "false"); }
  json_writer& value(char const* text) { return value(std::string_view{text}); }
  json_writer& value(std::string const& text) { return value(std::string_view{text}); }

  template <class Number, std::enable_if_t<std::is_integral_v<Number> && !std::is_same_v<Number, bool>, int> = 0>
  json_writer& value(Number number)
  {
    char digits[24];
    auto const end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return raw({digits, static_cast<std::size_t>(end - digits)});
  }

  /// Writes six digits; null for infinite numbers and NaN.
  json_writer& value(double number)
  {
    if (!std::isfinite(number)) { return null(); }
    char digits[32];
    auto const length = std::snprintf(digits, sizeof digits, "%.6g", number);
    return raw({digits, static_cast<std::size_t>(length)});
  }

  /// Writes a number given as text.
  json_writer& number(std::string_view digits) { return raw(digits); }

  /// Writes a text. Bytes that are not UTF-8 become U+FFFD.
  json_writer& value(std::string_view text)
  {
    separate();
    text_ += '"';
    for (std::size_t i = 0; i < text.size();) {
      auto const length = rmm::detail::length_of_character(text.substr(i));
      if (length == 0) {
        text_ += "\xEF\xBF\xBD";
        ++i;
        continue;
      }
      add_character(text.substr(i, length));
      i += length;
    }
    text_ += '"';
    needs_comma_ = true;
    return *this;
  }

  template <class Value>
  json_writer& member(std::string_view name, Value const& what)
  {
    return key(name).value(what);
  }
  json_writer& null_member(std::string_view name) { return key(name).null(); }

  /// Writes an array, with `each(item)` for every item.
  template <class Range, class Each>
  json_writer& array(std::string_view name, Range const& items, Each const& each)
  {
    key(name).begin_array();
    for (auto const& item : items) { value(each(item)); }
    return end_array();
  }
  template <class Range>
  json_writer& array(std::string_view name, Range const& items)
  {
    return array(name, items, [](auto const& item) { return item; });
  }

  [[nodiscard]] std::string const& text() const noexcept { return text_; }

 private:
  json_writer& open(char bracket)
  {
    separate();
    text_ += bracket;
    needs_comma_ = false;
    return *this;
  }
  json_writer& close(char bracket)
  {
    text_ += bracket;
    needs_comma_ = true;
    return *this;
  }
  json_writer& raw(std::string_view text)
  {
    separate();
    text_ += text;
    needs_comma_ = true;
    return *this;
  }
  void separate()
  {
    if (needs_comma_) { text_ += ','; }
    needs_comma_ = false;
  }

  void add_character(std::string_view character)
  {
    if (character == "\xE2\x80\xA8") {
      text_ += "\\u2028";
    } else if (character == "\xE2\x80\xA9") {
      text_ += "\\u2029";
    } else if (character == "\"" || character == "\\") {
      text_ += '\\';
      text_ += character;
    } else if (character < " " || character == "<" || character == ">" || character == "&" ||
               (character >= "\x7F" && character < "\xC2\xA0")) {  // with control characters of two bytes
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", unsigned{static_cast<unsigned char>(character.back())});
      text_ += escape;
    } else {
      text_ += character;
    }
  }

  std::string text_;
  bool needs_comma_{false};
};

}  // namespace rmm::tools
