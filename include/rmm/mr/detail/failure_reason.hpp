// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <exception>
#include <string>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// Why an attempt to get memory failed: words, and the exception that they come from.
struct failure_reason {
  failure_reason() = default;
  failure_reason(char const* words) : text{words} {}
  failure_reason(std::string words) : text{std::move(words)} {}

  /// For use in a handler of `error`: keeps the exception too.
  static failure_reason from_current(std::exception const& error)
  {
    failure_reason reason{error.what()};
    reason.thrown = std::current_exception();
    return reason;
  }

  std::string text{};
  std::exception_ptr thrown{};  // null: nothing was thrown
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
