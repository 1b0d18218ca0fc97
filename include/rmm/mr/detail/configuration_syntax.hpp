// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// @file
/// The syntax of configurations:
///
///   configuration = name { "," option }
///   option        = name [ "=" value ]
///   value         = plain text | '"' text '"' | "(" configuration ")"
///
/// Names consist of letters, digits and `_`. Plain text has none of `,()"=` and is not empty. In quoted text, a quotation mark is written
/// twice. Blanks between these parts, and at the ends of plain text, are ignored.

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

struct written_configuration;

/// An option as it was written. A place is the number of characters before it in the whole text.
struct written_option {
  enum class form { bare, text, nested };

  std::string name{};
  std::size_t place{};
  form value{form::bare};
  std::string text{};
  std::size_t value_place{};
  std::shared_ptr<written_configuration const> nested{};
};

struct written_configuration {
  std::string name{};
  std::size_t place{};
  std::vector<written_option> options{};
};

/// Throws std::invalid_argument, whose message shows the place in the text.
[[noreturn]] RMM_COLD inline void refuse_configuration(std::string const& why, std::string_view text, std::size_t place)
{
  rmm::detail::throw_text_failure("Could not parse the resource configuration: " + why, text, place);
}

class configuration_parser {
 public:
  static constexpr std::size_t longest_text = 4096;
  static constexpr std::size_t deepest      = 8;

  explicit configuration_parser(std::string_view text) noexcept : text_{text} {}

  /// Parses the whole text. Throws std::invalid_argument.
  [[nodiscard]] written_configuration parse()
  {
    if (text_.size() > longest_text) { refuse("longer than 4096 characters", longest_text); }
    auto result = parse_configuration();
    if (at_ != text_.size()) {
      refuse(text_[at_] == ')' ? "a parenthesis is closed that was not opened" : "expected a comma here", at_);
    }
    return result;
  }

 private:
  [[noreturn]] void refuse(std::string const& why, std::size_t place) const { refuse_configuration(why, text_, place); }

  [[nodiscard]] static bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

  [[nodiscard]] static bool is_in_name(char c) noexcept
  {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }

  void skip_blanks() noexcept
  {
    while (at_ < text_.size() && is_blank(text_[at_])) { ++at_; }
  }

  /// Returns whether `c` comes next, and if so, moves past it.
  [[nodiscard]] bool skip(char c) noexcept
  {
    skip_blanks();
    bool const is_next = at_ < text_.size() && text_[at_] == c;
    if (is_next) { ++at_; }
    return is_next;
  }

  [[nodiscard]] std::string parse_name(char const* what)
  {
    skip_blanks();
    auto const begin = at_;
    while (at_ < text_.size() && is_in_name(text_[at_])) { ++at_; }
    if (at_ == begin) { refuse(std::string{"expected the name of "} + what, begin); }
    return std::string{text_.substr(begin, at_ - begin)};
  }

  [[nodiscard]] written_configuration parse_configuration()
  {
    if (depth_ == deepest) { refuse("nested too deep", at_); }
    ++depth_;
    written_configuration result;
    skip_blanks();
    result.place = at_;
    result.name  = parse_name("a resource");
    while (skip(',')) { result.options.push_back(parse_option()); }
    --depth_;
    return result;
  }

  [[nodiscard]] written_option parse_option()
  {
    written_option result;
    skip_blanks();
    result.place = at_;
    result.name  = parse_name("an option");
    if (!skip('=')) { return result; }
    skip_blanks();
    result.value       = written_option::form::text;
    result.value_place = at_;
    if (skip('(')) {
      result.value  = written_option::form::nested;
      result.nested = std::make_shared<written_configuration const>(parse_configuration());
      if (!skip(')')) { refuse("the parenthesis that begins here is not closed", result.value_place); }
    } else if (skip('"')) {
      result.text = parse_quoted(result.value_place);
    } else {
      result.text = parse_plain();
    }
    return result;
  }

  [[nodiscard]] std::string parse_quoted(std::size_t begin)
  {
    std::string result;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        if (at_ == text_.size() || text_[at_] != '"') {
          skip_blanks();
          return result;
        }
      }
      result += text_[at_];
    }
    refuse("the quoted text that begins here does not end", begin);
  }

  [[nodiscard]] std::string parse_plain()
  {
    auto const begin = at_;
    auto const stop  = text_.find_first_of(",()\"=", begin);
    auto end         = stop == std::string_view::npos ? text_.size() : stop;
    at_              = end;
    while (end > begin && is_blank(text_[end - 1])) { --end; }
    if (end == begin) { refuse("expected a value", begin); }
    return std::string{text_.substr(begin, end - begin)};
  }

  std::string_view text_;
  std::size_t at_{0};
  std::size_t depth_{0};
};

/// Returns `text` as the value of an option, quoted if necessary.
[[nodiscard]] RMM_COLD inline std::string written_value(std::string const& text)
{
  auto const is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  bool const is_plain = !text.empty() && text.find_first_of(",()\"=") == std::string::npos && !is_blank(text.front()) &&
                        !is_blank(text.back());
  if (is_plain) { return text; }
  std::string result{"\""};
  for (char const c : text) {
    if (c == '"') { result += c; }
    result += c;
  }
  return result + "\"";
}

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
