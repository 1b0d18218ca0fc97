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
