// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>

#include <string>

/// @file
/// The levels of the debug log, and the macros that write to it.

// The names of a level in the releases of RMM, for use on the command line and in #if. Those of spdlog are defined as
// spdlog does it.
#define RMM_LOG_LEVEL_TRACE 0
#define RMM_LOG_LEVEL_DEBUG 1
#define RMM_LOG_LEVEL_INFO 2
#define RMM_LOG_LEVEL_WARN 3
#define RMM_LOG_LEVEL_ERROR 4
#define RMM_LOG_LEVEL_CRITICAL 5
#define RMM_LOG_LEVEL_OFF 6

#ifndef RAPIDS_LOGGER_LOG_LEVEL_TRACE
#define RAPIDS_LOGGER_LOG_LEVEL_TRACE 0
#define RAPIDS_LOGGER_LOG_LEVEL_DEBUG 1
#define RAPIDS_LOGGER_LOG_LEVEL_INFO 2
#define RAPIDS_LOGGER_LOG_LEVEL_WARN 3
#define RAPIDS_LOGGER_LOG_LEVEL_ERROR 4
#define RAPIDS_LOGGER_LOG_LEVEL_CRITICAL 5
#define RAPIDS_LOGGER_LOG_LEVEL_OFF 6
#endif

#ifndef SPDLOG_LEVEL_TRACE
#define SPDLOG_LEVEL_TRACE 0
#define SPDLOG_LEVEL_DEBUG 1
#define SPDLOG_LEVEL_INFO 2
#define SPDLOG_LEVEL_WARN 3
#define SPDLOG_LEVEL_ERROR 4
#define SPDLOG_LEVEL_CRITICAL 5
#define SPDLOG_LEVEL_OFF 6
#endif

/// Least severe level that is compiled in. Defined on the command line under this name or as SPDLOG_ACTIVE_LEVEL.
#ifndef RMM_LOG_ACTIVE_LEVEL
#ifdef SPDLOG_ACTIVE_LEVEL
#define RMM_LOG_ACTIVE_LEVEL SPDLOG_ACTIVE_LEVEL
#else
#define RMM_LOG_ACTIVE_LEVEL RMM_LOG_LEVEL_INFO
#endif
#endif

/// `RMM_LOG_<LEVEL>(message)`, `RMM_LOG_<LEVEL>(format, args...)`: writes a line to the debug log. The levels have a macro each:
/// `RMM_LOG_TRACE`, `RMM_LOG_DEBUG`, `RMM_LOG_INFO`, `RMM_LOG_WARN`, `RMM_LOG_ERROR`, `RMM_LOG_CRITICAL`.
///
/// A message alone is taken as it is. A format is one of printf, where `%s` takes a std::string too; with spdlog it may have
/// the placeholders of fmt instead. A format that is a std::string is read before it is used: if the arguments do not fit it, the line has
/// the format alone. Below the active level the arguments are not evaluated.
#if RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_TRACE
#define RMM_LOG_TRACE(...) RMM_DETAIL_LOG(trace, __VA_ARGS__)
#else
#define RMM_LOG_TRACE(...) static_cast<void>(0)
#endif

#if RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_DEBUG
#define RMM_LOG_DEBUG(...) RMM_DETAIL_LOG(debug, __VA_ARGS__)
#else
#define RMM_LOG_DEBUG(...) static_cast<void>(0)
#endif

#if RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_INFO
#define RMM_LOG_INFO(...) RMM_DETAIL_LOG(info, __VA_ARGS__)
#else
#define RMM_LOG_INFO(...) static_cast<void>(0)
#endif

#if RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_WARN
#define RMM_LOG_WARN(...) RMM_DETAIL_LOG(warn, __VA_ARGS__)
#else
#define RMM_LOG_WARN(...) static_cast<void>(0)
#endif

#if RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_ERROR
#define RMM_LOG_ERROR(...) RMM_DETAIL_LOG(error, __VA_ARGS__)
#else
#define RMM_LOG_ERROR(...) static_cast<void>(0)
#endif

#if RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_CRITICAL
#define RMM_LOG_CRITICAL(...) RMM_DETAIL_LOG(critical, __VA_ARGS__)
#else
#define RMM_LOG_CRITICAL(...) static_cast<void>(0)
#endif

/// rmm/logger.hpp, where it is included, has the message composed by spdlog's means instead.
#define RMM_DETAIL_LOG(level, ...) ::rmm::detail::log_message(::rmm::detail::log_level::level, __VA_ARGS__)

namespace RMM_NAMESPACE {
namespace detail {

inline void log_message(log_level level, char const* message) noexcept { log(level, message); }

inline void log_message(log_level level, std::string const& message) noexcept { log(level, message.c_str()); }

template <class... Args>
void log_message(log_level level, char const* format, Args const&... args)
{
  if (is_logging()) { log(level, formatted_log(format, args...).c_str()); }
}

template <class... Args>
void log_message(log_level level, std::string const& format, Args const&... args)
{
  if (!is_logging()) { return; }
  bool const fits = printf_arguments_taken<Args...>(format) != printf_reader::does_not_fit;
  log(level, fits ? formatted_log(format.c_str(), args...).c_str() : format.c_str());
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
