// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>

/// @file
/// Macros that check arguments and CUDA calls. Each only tests and calls a function, which adds file and line to the message out of line.
/// The argument `message` is evaluated where the macro stands.

#define STRINGIFY_DETAIL(x) #x
/// The text of `x` after macro expansion.
#define RMM_STRINGIFY(x) STRINGIFY_DETAIL(x)

/// `RMM_EXPECTS(condition, message)`, `RMM_EXPECTS(condition, message, Exception)`: throws if the
/// condition is false.
///
/// An expression of type void. `message` is a `char const*` or a `std::string`, evaluated only on failure. `Exception` derives from
/// std::exception and is made from the text `RMM failure at: <file>:<line>: <message>`; the default is `rmm::logic_error`.
#define RMM_EXPECTS(...) RMM_DETAIL_EXPECTS(__VA_ARGS__, ::rmm::logic_error, _)
#define RMM_DETAIL_EXPECTS(condition, message, exception, ...) \
  ((condition) ? static_cast<void>(0) : RMM_DETAIL_POSITION.fail<exception>(message))

/// `RMM_FAIL()`, `RMM_FAIL(message)`, `RMM_FAIL(message, Exception)`: throws, with the text that RMM_EXPECTS makes.
///
/// Expands to a statement with its semicolon, so the semicolon after it may be left out. In front of `else` it must be left out, unless
/// the macro is in braces.
#define RMM_FAIL(...) RMM_DETAIL_FAIL(__VA_ARGS__, ::rmm::logic_error, _)
#define RMM_DETAIL_FAIL(message, exception, ...) RMM_DETAIL_POSITION.fail<exception>(message);

#define RMM_DETAIL_POSITION ::rmm::detail::source_position(__FILE__, __LINE__)

/// `RMM_CUDA_TRY(call)`, `RMM_CUDA_TRY(call, Exception)`: throws if a CUDA runtime call does not return cudaSuccess.
///
/// An expression of type void. `Exception` is `rmm::cuda_error` by default. The text is `CUDA error at: <file>:<line>: <name of the
/// error> <its description>`. If the call fails, clears the runtime's last error.
#define RMM_CUDA_TRY(...) RMM_DETAIL_CUDA_TRY(__VA_ARGS__, ::rmm::cuda_error, _)
#define RMM_DETAIL_CUDA_TRY(call, exception, ...) ::rmm::detail::check_cuda<exception>(call, __FILE__, __LINE__)

/// `RMM_CUDA_TRY_ALLOC(call)`, `RMM_CUDA_TRY_ALLOC(call, bytes)`: an RMM_CUDA_TRY for calls that allocate.
///
/// Throws `rmm::out_of_memory` for cudaErrorMemoryAllocation, else `rmm::bad_alloc`. With `bytes` the text begins with `CUDA error
/// (failed to allocate <bytes> bytes) at: `.
#define RMM_CUDA_TRY_ALLOC(...) ::rmm::detail::check_cuda_alloc(__FILE__, __LINE__, __VA_ARGS__)

/// `RMM_ASSERT_CUDA_SUCCESS(call)`: evaluates the call, in destructors and other code that cannot throw. Where assertions are on
/// (detail/assert.hpp), ends the program with a message if the call fails. Never clears the runtime's last error.
#define RMM_ASSERT_CUDA_SUCCESS(call) RMM_DETAIL_ASSERT_CUDA(call, #call, false)

/// `RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(call)`: an RMM_ASSERT_CUDA_SUCCESS that also accepts the errors of a runtime that is shut down,
/// and of a machine without a driver or without any device. The runtime is shut down while the process exits, and in a forked child.
#define RMM_ASSERT_CUDA_SUCCESS_SAFE_SHUTDOWN(call) RMM_DETAIL_ASSERT_CUDA(call, #call, true)

#if RMM_ASSERTIONS_ENABLED
#define RMM_DETAIL_ASSERT_CUDA(call, text, may_be_gone) \
  ::rmm::detail::assert_cuda(call, may_be_gone, text, __FILE__, __LINE__)
#else
#define RMM_DETAIL_ASSERT_CUDA(call, text, may_be_gone) static_cast<void>(call)
#endif
