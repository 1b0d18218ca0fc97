// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstdio>

/// `RMM_LOGGING_ASSERT(condition)`: an RMM_ASSERT that first logs `[<file>:<line>] Assertion <condition> failed.`, at level critical.
#if RMM_ASSERTIONS_ENABLED
#define RMM_LOGGING_ASSERT(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : ::rmm::detail::logged_assertion_failed(#__VA_ARGS__, __FILE__, __LINE__))
#else
#define RMM_LOGGING_ASSERT(...) static_cast<void>(0)
#endif

namespace RMM_NAMESPACE {
namespace detail {

[[noreturn]] RMM_COLD inline void logged_assertion_failed(char const* condition,
                                                          char const* file,
                                                          unsigned line) noexcept
{
  char message[1024];  // no allocation: the program may be out of memory
  std::snprintf(message, sizeof message, "[%s:%u] Assertion %s failed.", file, line, condition);
  log(log_level::critical, message);
  assertion_failed(condition, file, line);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
