// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace plugin {

/// The message that plugin_error() returns.
inline std::string& last_error()
{
  thread_local std::string text;
  return text;
}

/// Returns the result of `call`. If it throws, stores the message and returns `otherwise`.
template <class Result, class Call>
Result attempt(Result otherwise, Call&& call) noexcept
{
  try {
    return std::forward<Call>(call)();
  } catch (std::exception const& e) {
    last_error() = e.what();
  } catch (...) {
    last_error() = "unknown exception";
  }
  return otherwise;
}

}  // namespace plugin
