// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <atomic>

/// @file
/// How the library logs without knowing the logger: a process-wide pointer to a function, null
/// until rmm/logger.hpp is part of the program and sets it.

namespace RMM_NAMESPACE {
namespace detail {

/// Severity of a message; the numbers are those of the RMM_LOG_LEVEL macros.
enum class log_level : int { trace, debug, info, warn, error, critical };

/// Takes one message. Called from any thread, also while locks of the library are held: it must not
/// call back into it.
using log_function = void (*)(log_level level, char const* message) noexcept;

/// Where messages go; nowhere while it is null.
inline std::atomic<log_function> log_hook{nullptr};

/// Whether anybody listens. Ask before composing a message.
[[nodiscard]] inline bool is_logging() noexcept { return log_hook.load(std::memory_order_acquire) != nullptr; }

/// Hands `message` to the hook, if there is one.
inline void log(log_level level, char const* message) noexcept
{
  if (auto const hook = log_hook.load(std::memory_order_acquire)) { hook(level, message); }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
