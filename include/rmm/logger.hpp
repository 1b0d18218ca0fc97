// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/logger_spdlog.hpp>

#if !RMM_HAS_SPDLOG
#error \
  "<rmm/logger.hpp> needs spdlog: install it and link the CMake target rmm::rmm, or add its include folder. All other headers of RMM work without it."
#else

#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/private_file.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/detail/logger_frontend.hpp>
#include <rmm/detail/plain_logger.hpp>
#include <rmm/detail/rapids_logger.hpp>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Name of the file that the debug log goes to: the value of RMM_DEBUG_LOG_FILE, or `rmm_log.txt`.
[[nodiscard]] inline std::string default_log_filename()
{
  auto const* const name = std::getenv("RMM_DEBUG_LOG_FILE");
  return name != nullptr && *name != '\0' ? name : "rmm_log.txt";
}

}  // namespace detail

/// Returns the pattern of a line of the debug log, in spdlog's notation: thread, time, level, message.
[[nodiscard]] inline std::string default_pattern() { return "[%6t][%H:%M:%S:%f][%-6l] %v"; }

namespace detail {

/// Returns a sink for a file that only the user may read; see open_log_file(). Throws as spdlog does.
[[nodiscard]] inline spdlog::sink_ptr make_debug_log_sink(std::string const& name)
{
  // Makes a file that only the user may read. spdlog then opens it by its name.
  auto const made = open_log_file(name, true);
  if (made.problem != nullptr) { throw spdlog::spdlog_ex("cannot open '" + name + "' for writing: " + made.problem); }
  return std::make_shared<spdlog::sinks::basic_file_sink_mt>(name, true);
}

/// Holder of the debug log.
struct logger_wrapper {
  spdlog::sink_ptr file_;
  spdlog::logger logger_;

  logger_wrapper() : file_{make_debug_log_sink(default_log_filename())}, logger_{"RMM", file_}
  {
    logger_.set_pattern(default_pattern());
    logger_.flush_on(spdlog::level::warn);
#if RMM_LOG_ACTIVE_LEVEL <= RMM_LOG_LEVEL_INFO
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    logger_.info("----- RMM LOG BEGIN [PTDS ENABLED] -----");
#else
    logger_.info("----- RMM LOG BEGIN [PTDS DISABLED] -----");
#endif
    logger_.flush();
#endif
  }
};

/// Returns the holder. It is made on first use and never destroyed, because code may log while the program exits.
[[nodiscard]] inline logger_wrapper& the_logger_wrapper()
{
  static auto& wrapper = *new logger_wrapper;
  return wrapper;
}

/// The debug log; see rmm::logger().
[[nodiscard]] inline spdlog::logger& logger() { return the_logger_wrapper().logger_; }

/// A size in bytes that prints itself in the largest binary unit that leaves a value above 1, or in bytes.
struct bytes {
  std::size_t value;

  friend std::ostream& operator<<(std::ostream& out, bytes const& size)
  {
    static constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};

    auto scaled = static_cast<double>(size.value);
    auto unit   = &units[0];
    while (scaled > 1024) {
      scaled /= 1024;
      ++unit;
    }
    return out << scaled << ' ' << *unit;
  }
};

/// Converts an argument for fmt: pointers to objects to addresses. Returns other arguments unchanged.
template <class T>
[[nodiscard]] auto fmt_argument(T const& arg)
{
  using decayed = std::decay_t<T>;
  if constexpr (std::is_pointer_v<decayed> && !std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decayed>>, char>) {
    return static_cast<void const*>(arg);
  } else if constexpr (std::is_array_v<T>) {
    return &arg[0];
  } else {
    return arg;
  }
}

template <class T>
inline constexpr bool is_printf_argument =
  std::is_scalar_v<std::decay_t<T>> || std::is_same_v<std::decay_t<T>, std::string>;

/// Whether `format` has a placeholder of fmt: {}, {:...} or {0}.
[[nodiscard]] constexpr bool has_fmt_placeholder(std::string_view format) noexcept
{
  for (auto at = format.find('{'); at != std::string_view::npos; at = format.find('{', at + 1)) {
    auto const next = at + 1 < format.size() ? format[at + 1] : '\0';
    if (next == '}' || next == ':' || (next >= '0' && next <= '9')) { return true; }
  }
  return false;
}

/// Returns the message of a format of printf or of fmt.
template <class... Args>
[[nodiscard]] std::string compose_message(char const* format, Args const&... args)
{
  auto const composed_by_fmt = [&](auto const&... printable) {
    return spdlog::fmt_lib::vformat(format, spdlog::fmt_lib::make_format_args(printable...));
  };
  if constexpr ((is_printf_argument<Args> && ...)) {
    if (!has_fmt_placeholder(format)) { return formatted_log(format, args...); }
  }
  return composed_by_fmt(fmt_argument(args)...);
}

/// Returns the message of a format that is known only at run time. A format of printf that takes all arguments is used as such. Otherwise
/// the format is used as one of fmt if it has a placeholder, and else as one of printf that takes some of the arguments. Returns the format
/// itself if the arguments do not fit.
template <class... Args>
[[nodiscard]] std::string compose_unknown_format(std::string const& format, Args const&... args)
{
  if constexpr ((is_printf_argument<Args> && ...)) {
    auto const taken = printf_arguments_taken<Args...>(format);
    bool const fits  = taken != printf_reader::does_not_fit;
    if (taken == sizeof...(Args) || (fits && !has_fmt_placeholder(format))) {
      return formatted_log(format.c_str(), args...);
    }
  }
  if (!has_fmt_placeholder(format)) { return format; }
  try {
    auto const composed = [&](auto const&... printable) {
      return spdlog::fmt_lib::vformat(format, spdlog::fmt_lib::make_format_args(printable...));
    };
    return composed(fmt_argument(args)...);
  } catch (spdlog::fmt_lib::format_error const&) {
    return format;
  }
}

inline void log_composed(log_level level, std::string_view message)
{
  logger().log(static_cast<spdlog::level::level_enum>(level), spdlog::string_view_t{message.data(), message.size()});
}

inline void compose_and_log(log_level level, std::string const& message) { log_composed(level, message); }

template <class... Args>
void compose_and_log(log_level level, char const* format, Args const&... args)
{
  if (!logger().should_log(static_cast<spdlog::level::level_enum>(level))) { return; }
  if constexpr (sizeof...(Args) == 0) {
    log_composed(level, format);
  } else {
    log_composed(level, compose_message(format, args...));
  }
}

template <class... Args>
void compose_and_log(log_level level, std::string const& format, Args const&... args)
{
  if (!logger().should_log(static_cast<spdlog::level::level_enum>(level))) { return; }
  log_composed(level, compose_unknown_format(format, args...));
}

#undef RMM_DETAIL_LOG
#define RMM_DETAIL_LOG(level, ...) ::rmm::detail::compose_and_log(::rmm::detail::log_level::level, __VA_ARGS__)

/// Writes the messages of headers that log through log_hook.
inline void log_from_hook(log_level level, char const* message) noexcept
{
  if (static_cast<int>(level) < RMM_LOG_ACTIVE_LEVEL) { return; }
  try {
    log_composed(level, message);
  } catch (...) {  // the log cannot be opened, so the message is lost
  }
}

inline bool const log_hook_is_filled = (log_hook.store(&log_from_hook), true);

/// A sink of plain_logger that writes to a sink of spdlog.
class sink_to_spdlog final : public plain_logger::sink {
 public:
  explicit sink_to_spdlog(spdlog::sink_ptr target) : target_{std::move(target)} {}

  void log(plain_logger::log_record const& record) override
  {
    target_->log({record.logger_name, static_cast<spdlog::level::level_enum>(record.level), record.message});
  }

  void flush() override { target_->flush(); }

 private:
  spdlog::sink_ptr target_;
};

/// A sink of spdlog that writes to a sink of plain_logger.
class sink_from_spdlog final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit sink_from_spdlog(plain_logger::sink_ptr target) : target_{std::move(target)}
  {
    set_pattern_(default_pattern());
  }

 private:
  void sink_it_(spdlog::details::log_msg const& record) override
  {
    spdlog::memory_buf_t formatted;
    formatter_->format(record, formatted);
    target_->log({static_cast<plain_logger::level_enum>(record.level),
                  std::string{record.logger_name.data(), record.logger_name.size()},
                  std::string{record.payload.data(), record.payload.size()},
                  std::string{formatted.data(), formatted.size()}});
  }

  void flush_() override { target_->flush(); }

  plain_logger::sink_ptr target_;
};

/// An implementation of plain_logger over spdlog's logger.
class spdlog_logger final : public plain_logger::detail::logger_implementation {
 public:
  using level_enum = plain_logger::level_enum;

  explicit spdlog_logger(spdlog::logger& target) : target_{target} {}

  void log(level_enum level, std::string const& message) override
  {
    target_.log(to_spdlog(level), spdlog::string_view_t{message.data(), message.size()});
  }

  void flush() override { target_.flush(); }
  [[nodiscard]] level_enum level() const override { return from_spdlog(target_.level()); }
  void set_level(level_enum level) override { target_.set_level(to_spdlog(level)); }
  [[nodiscard]] level_enum flush_level() const override { return from_spdlog(target_.flush_level()); }
  void flush_on(level_enum level) override { target_.flush_on(to_spdlog(level)); }
  void set_pattern(std::string pattern) override { target_.set_pattern(std::move(pattern)); }

  void push_sink(plain_logger::sink_ptr sink) override
  {
    target_.sinks().push_back(std::make_shared<sink_from_spdlog>(std::move(sink)));
  }

  void pop_sink() override { target_.sinks().pop_back(); }
  [[nodiscard]] std::size_t sink_count() const override { return target_.sinks().size(); }

 private:
  [[nodiscard]] static spdlog::level::level_enum to_spdlog(level_enum level)
  {
    return static_cast<spdlog::level::level_enum>(level);
  }

  [[nodiscard]] static level_enum from_spdlog(spdlog::level::level_enum level)
  {
    return static_cast<level_enum>(level);
  }

  spdlog::logger& target_;
};

/// Writes lines of a sink of the library rapids_logger to the file of the debug log. The sink's logger has already selected them by level.
inline void log_from_rapids_logger(int level, char const* line)
{
  std::string_view message{line};
  if (!message.empty() && message.back() == '\n') { message.remove_suffix(1); }
  auto const& log         = the_logger_wrapper();
  auto const spdlog_level = static_cast<spdlog::level::level_enum>(level);
  log.file_->log({log.logger_.name(), spdlog_level, {message.data(), message.size()}});
  if (spdlog_level >= log.logger_.flush_level()) { log.file_->flush(); }
}

inline void flush_from_rapids_logger() { the_logger_wrapper().file_->flush(); }

}  // namespace detail

/// Returns the debug log as spdlog's logger. Its name is RMM, and it has one sink: the file that RMM_DEBUG_LOG_FILE names, or rmm_log.txt.
/// The first use of the log empties the file, and throws spdlog::spdlog_ex if it cannot be opened.
inline spdlog::logger& logger() { return detail::logger(); }

using level_enum         = rapids_logger::level_enum;
using sink_ptr           = rapids_logger::sink_ptr;
using basic_file_sink_mt = rapids_logger::basic_file_sink_mt;
using ostream_sink_mt    = rapids_logger::ostream_sink_mt;
using stderr_sink_mt     = rapids_logger::stderr_sink_mt;
using callback_sink_mt   = rapids_logger::callback_sink_mt;

// Templates, because files of one program may use different libraries rapids_logger.

/// Returns a sink that writes to the file of the debug log.
template <class Sink = rapids_logger::sink>
[[nodiscard]] std::shared_ptr<Sink> default_sink()
{
  if constexpr (std::is_same_v<Sink, detail::plain_logger::sink>) {
    return std::make_shared<detail::sink_to_spdlog>(detail::the_logger_wrapper().file_);
  } else {
    return std::make_shared<rapids_logger::callback_sink_mt>(detail::log_from_rapids_logger,
                                                             detail::flush_from_rapids_logger);
  }
}

/// Returns the debug log as a rapids_logger::logger, as RMM 25.02 does. Without the library rapids_logger, it has the level, sinks and
/// messages of logger(). With the library, it is a separate logger, whose level and sinks are its own; at first it has default_sink().
template <class Logger = rapids_logger::logger>
Logger& default_logger()
{
  if constexpr (std::is_same_v<Logger, detail::plain_logger::logger>) {
    static auto& face = *new Logger{std::make_unique<detail::spdlog_logger>(detail::logger())};
    return face;
  } else {
    static auto& made = *[] {
      auto* const logger = new Logger{"RMM", {default_sink()}};
      logger->set_pattern("%v");
      return logger;
    }();
    return made;
  }
}

}  // namespace RMM_NAMESPACE

#ifndef SPDLOG_USE_STD_FORMAT
/// Prints as the stream form does.
template <>
struct fmt::formatter<rmm::detail::bytes> : fmt::formatter<std::string> {
  template <class Context>
  auto format(rmm::detail::bytes const& size, Context& context) const
  {
    std::ostringstream text;
    text << size;
    return fmt::formatter<std::string>::format(text.str(), context);
  }
};
#endif

#endif  // RMM_HAS_SPDLOG
