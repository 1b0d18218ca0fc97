// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <exception>
#include <string>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace detail {

/// Returns `<file>:<line>`.
[[nodiscard]] RMM_COLD inline std::string position_text(char const* file, unsigned line)
{
  return std::string{file} + ":" + std::to_string(line);
}

template <class Exception>
[[noreturn]] RMM_COLD void throw_as(std::string const& text)
{
  static_assert(std::is_base_of_v<std::exception, Exception>,
                "the exception type of a check must derive from std::exception");
  if constexpr (std::is_constructible_v<Exception, std::string const&>) {
    throw Exception(text);
  } else {
    throw Exception(text.c_str());
  }
}

template <class Exception>
[[noreturn]] RMM_COLD void throw_failure(char const* file, unsigned line, std::string const& message)
{
  throw_as<Exception>("RMM failure at: " + position_text(file, line) + ": " + message);
}

template <class Exception>
[[noreturn]] RMM_COLD void throw_failure(char const* file, unsigned line, char const* message)
{
  throw_failure<Exception>(file, line, std::string{message});
}

/// The position of a check in the source. With the overloads of fail(), the macros in detail/error.hpp accept any message, or none.
class source_position {
 public:
  constexpr source_position(char const* file, unsigned line) noexcept : file_{file}, line_{line} {}

  /// Throws an `Exception` whose text names this position.
  template <class Exception>
  [[noreturn]] void fail() const
  {
    throw_failure<Exception>(file_, line_, "");
  }

  template <class Exception>
  [[noreturn]] void fail(char const* message) const
  {
    throw_failure<Exception>(file_, line_, message);
  }

  template <class Exception>
  [[noreturn]] void fail(std::string const& message) const
  {
    throw_failure<Exception>(file_, line_, message);
  }

 private:
  char const* file_;
  unsigned line_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
