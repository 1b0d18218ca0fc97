// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <atomic>

/// @file
/// Logging without a dependency on a logger: a process-wide pointer to a function. Programs that include rmm/logger.hpp set it;
/// otherwise it is null.

namespace RMM_NAMESPACE {
namespace detail {

/// Severity of a message; the numbers are those of the RMM_LOG_LEVEL macros.
enum class log_level : int { trace, debug, info, warn, error, critical };

/// Receives one message. Any thread may call the function, also a thread that holds locks of the library. So the function must not call
/// the library.
using log_function = void (*)(log_level level, char const* message) noexcept;

/// The function that receives messages. While it is null, messages are discarded.
///
/// Order: stores release what the function uses, and loads acquire it. is_logging() and log() may read different values.
inline std::atomic<log_function> log_hook{nullptr};

/// Whether messages are received. Check it before composing a message.
[[nodiscard]] inline bool is_logging() noexcept { return log_hook.load(std::memory_order_acquire) != nullptr; }

inline void log(log_level level, char const* message) noexcept
{
  if (auto const hook = log_hook.load(std::memory_order_acquire)) { hook(level, message); }
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
