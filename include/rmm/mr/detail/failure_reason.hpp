// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <exception>
#include <string>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The reason of a failed attempt to get memory: a text, and the exception that it comes from.
struct failure_reason {
  failure_reason() = default;
  failure_reason(char const* words) : text{words} {}
  failure_reason(std::string words) : text{std::move(words)} {}

  /// Makes a reason from `error` and keeps the exception. Call it in a handler of `error`.
  static failure_reason from_current(std::exception const& error)
  {
    failure_reason reason{error.what()};
    reason.thrown = std::current_exception();
    return reason;
  }

  std::string text{};
  std::exception_ptr thrown{};  // null if there was no exception
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
