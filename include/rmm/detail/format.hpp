// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>

/// @file
/// Formats texts for messages and logs.

namespace RMM_NAMESPACE {
namespace detail {

/// Returns what printf would print. Throws logic_error if `format` is invalid.
[[nodiscard]] RMM_COLD inline std::string format_printf(char const* format, ...)
{
  std::va_list args;
  va_start(args, format);
  std::va_list args_again;
  va_copy(args_again, args);
  int const length{std::vsnprintf(nullptr, 0, format, args)};
  va_end(args);

  std::string text;
  if (length > 0) {
    text.resize(static_cast<std::size_t>(length));
    std::vsnprintf(text.data(), text.size() + 1, format, args_again);  // std::string has room for the terminating '\0'
  }
  va_end(args_again);
  RMM_EXPECTS(length >= 0, std::string{"The format string is invalid: "} + format);
  return text;
}

/// Converts an argument for printf: a std::string to its characters. Returns other types unchanged.
template <class T>
[[nodiscard]] auto printf_argument(T const& arg) noexcept
{
  if constexpr (std::is_same_v<T, std::string>) {
    return arg.c_str();
  } else {
    return arg;
  }
}

/// Returns what printf would print; %s also takes a std::string. Throws logic_error if `format` is invalid.
template <class... Args>
[[nodiscard]] std::string formatted_log(char const* format, Args const&... args)
{
  return format_printf(format, printf_argument(args)...);
}

/// What printf may do with an argument.
enum class printf_kind : unsigned char { integer, floating, long_floating, text, pointer, unknown };

template <class T>
[[nodiscard]] constexpr printf_kind printf_kind_of() noexcept
{
  using type = std::decay_t<T>;
  if constexpr (std::is_same_v<type, std::string> || std::is_same_v<type, char*> || std::is_same_v<type, char const*>) {
    return printf_kind::text;
  } else if constexpr (std::is_pointer_v<type> || std::is_null_pointer_v<type>) {
    return printf_kind::pointer;
  } else if constexpr (std::is_integral_v<type> || std::is_enum_v<type>) {
    return printf_kind::integer;
  } else if constexpr (std::is_floating_point_v<type>) {
    return std::is_same_v<type, long double> ? printf_kind::long_floating : printf_kind::floating;
  } else {
    return printf_kind::unknown;
  }
}

/// Reads a format of printf whose text is not known before it runs. Accepts only conversions that do no harm whatever the arguments are.
class printf_reader {
 public:
  static constexpr std::size_t does_not_fit = ~std::size_t{0};

  printf_reader(char const* format, printf_kind const* kinds, std::size_t count) noexcept
    : at_{format}, kinds_{kinds}, count_{count}
  {}

  /// Returns how many of the arguments the format takes; does_not_fit if it takes more, or one of another kind, or does not end.
  [[nodiscard]] RMM_COLD std::size_t arguments_taken() noexcept
  {
    for (; *at_ != '\0'; ++at_) {
      if (*at_ != '%') { continue; }
      ++at_;
      if (*at_ != '%' && !reads_conversion()) { return does_not_fit; }
    }
    return taken_;
  }

 private:
  [[nodiscard]] static bool is_one_of(char letter, char const* letters) noexcept
  {
    while (*letters != '\0' && *letters != letter) { ++letters; }
    return *letters != '\0';
  }

  [[nodiscard]] bool takes(printf_kind kind) noexcept { return taken_ < count_ && kinds_[taken_++] == kind; }

  /// Reads a width or a precision, possibly none.
  [[nodiscard]] bool reads_number() noexcept
  {
    if (*at_ == '*') {
      ++at_;
      return takes(printf_kind::integer);
    }
    while (is_one_of(*at_, "0123456789")) { ++at_; }
    return true;
  }

  [[nodiscard]] bool reads_conversion() noexcept
  {
    while (is_one_of(*at_, "-+ #0'")) { ++at_; }
    if (!reads_number()) { return false; }
    if (*at_ == '.') {
      ++at_;
      if (!reads_number()) { return false; }
    }
    bool const is_long    = *at_ == 'L';
    auto const* const end = at_;
    while (is_one_of(*at_, "hlLjzt")) { ++at_; }
    if (is_one_of(*at_, "diouxXc")) { return takes(printf_kind::integer); }
    if (is_one_of(*at_, "fFeEgGaA")) { return takes(is_long ? printf_kind::long_floating : printf_kind::floating); }
    if (*at_ == 's') { return at_ == end && takes(printf_kind::text); }  // none of wide characters
    if (*at_ == 'p') { return takes(printf_kind::pointer); }
    return false;  // also %n, which writes
  }

  char const* at_;
  printf_kind const* kinds_;
  std::size_t count_;
  std::size_t taken_{0};
};

/// Returns how many of the arguments a format takes; see printf_reader.
template <class... Args>
[[nodiscard]] std::size_t printf_arguments_taken(std::string const& format) noexcept
{
  constexpr printf_kind kinds[] = {printf_kind_of<Args>()..., printf_kind::unknown};  // never empty
  return printf_reader{format.c_str(), kinds, sizeof...(Args)}.arguments_taken();
}

/// Returns `bytes` in the largest binary unit in which the number is at least 1, with six decimals: `1.500000 KiB`.
[[nodiscard]] RMM_COLD inline std::string format_bytes(std::size_t bytes)
{
  static constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

  auto value = static_cast<double>(bytes);
  auto unit  = &units[0];
  while (value >= 1024.0) {
    value /= 1024.0;
    ++unit;
  }
  return std::to_string(value) + " " + *unit;
}

/// Returns the handle as std::ostream prints a pointer: `0` for the default stream, else `0x` and hexadecimal digits.
[[nodiscard]] RMM_COLD inline std::string format_stream(cuda_stream_view stream)
{
  if (stream.value() == nullptr) { return "0"; }
  return formatted_log("%p", static_cast<void const*>(stream.value()));
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
