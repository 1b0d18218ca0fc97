// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace plugin {

/// What plugin_error() tells.
inline std::string& last_error()
{
  thread_local std::string text;
  return text;
}

/// What `call` returns, or `otherwise` if it throws.
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
