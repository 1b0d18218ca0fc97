// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cassert>
#include <cstdio>
#include <cstdlib>

/// @file
/// Checks of the library's own logic, and of preconditions of functions that do not throw. They are on in files compiled without NDEBUG,
/// and where RMM_ENABLE_ASSERTIONS or RMM_ENABLE_EXPENSIVE_ASSERTIONS is defined; RMM_ASSERTIONS_ENABLED is 1 then. RMM_EXPECTS
/// (detail/error.hpp) checks callers in every build, and throws.

#if !defined(NDEBUG) || defined(RMM_ENABLE_ASSERTIONS) || defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#define RMM_ASSERTIONS_ENABLED 1
#else
#define RMM_ASSERTIONS_ENABLED 0
#endif

/// `RMM_ASSERT(condition)`: ends the program with a message if the condition is false. In device code it is assert(), which checks
/// nothing in files compiled with NDEBUG. An expression of type void, which constexpr functions may contain. The condition is not
/// evaluated where assertions are off.
#if !RMM_ASSERTIONS_ENABLED
#define RMM_ASSERT(...) static_cast<void>(0)
#elif defined(__CUDA_ARCH__)
#define RMM_ASSERT(...) assert((__VA_ARGS__))
#else
#define RMM_ASSERT(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : ::rmm::detail::assertion_failed(#__VA_ARGS__, __FILE__, __LINE__))
#endif

/// `RMM_ASSERT_EXPENSIVE(condition)`: an RMM_ASSERT for conditions that visit many elements. Needs RMM_ENABLE_EXPENSIVE_ASSERTIONS.
#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#define RMM_ASSERT_EXPENSIVE(...) RMM_ASSERT(__VA_ARGS__)
#else
#define RMM_ASSERT_EXPENSIVE(...) static_cast<void>(0)
#endif

namespace RMM_NAMESPACE {
namespace detail {

/// Prints the failed assertion to standard error, and aborts.
[[noreturn]] RMM_COLD inline void assertion_failed(char const* condition, char const* file, unsigned line) noexcept
{
  std::fprintf(stderr, "%s:%u: Assertion `%s' failed.\n", file, line, condition);
  std::abort();
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
