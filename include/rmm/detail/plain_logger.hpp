// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/text_sink.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// @file
/// A small logger with the interface of rapids_logger, for programs written against RMM 25.02 and later. Those get it from
/// <rapids_logger/logger.hpp>. It has a namespace of its own: objects of that library are others, and a program that mixes them does not link.

namespace RMM_NAMESPACE {
namespace detail {
namespace plain_logger {

enum class level_enum : std::int32_t { trace, debug, info, warn, error, critical, off, n_levels };

/// One message on its way to the sinks.
struct log_record {
  level_enum level;
  std::string const& logger_name;
  std::string const& message;
  std::string const& line;  ///< the message in the logger's pattern, with line end
};

/// A destination of loggers. Several loggers and threads may use it.
class sink {
 public:
  sink()                       = default;
  sink(sink const&)            = delete;
  sink& operator=(sink const&) = delete;
  virtual ~sink()              = default;

  virtual void log(log_record const& record) = 0;
  virtual void flush()                       = 0;
};

using sink_ptr = std::shared_ptr<sink>;

/// Writes to a file.
class basic_file_sink_mt : public sink {
 public:
  explicit basic_file_sink_mt(std::string const& filename, bool truncate = false)
    : file_{filename, truncate ? file::mode::truncate : file::mode::append}
  {}

  void log(log_record const& record) override { file_.write(record.line); }
  void flush() override { file_.flush(); }

 private:
  using file = ::rmm::detail::file_sink;
  file file_;
};

/// Writes to a stream, which has to outlive it.
class ostream_sink_mt : public sink {
 public:
  /// `force_flush`: whether to flush after each line.
  explicit ostream_sink_mt(std::ostream& stream, bool force_flush = false) : stream_{stream}, force_flush_{force_flush}
  {}

  void log(log_record const& record) override
  {
    stream_.write(record.line);
    if (force_flush_) { stream_.flush(); }
  }

  void flush() override { stream_.flush(); }

 private:
  ::rmm::detail::stream_sink stream_;
  bool force_flush_;
};

/// Writes to standard error.
class stderr_sink_mt : public sink {
 public:
  void log(log_record const& record) override { std::fwrite(record.line.data(), 1, record.line.size(), stderr); }
  void flush() override { std::fflush(stderr); }
};

/// Writes nowhere.
class null_sink_mt : public sink {
 public:
  void log(log_record const&) override {}
  void flush() override {}
};

/// Called with the number of the level and the line.
using log_callback_t   = void (*)(int level, char const* line);
using flush_callback_t = void (*)();

/// Passes lines to a function, which one thread at a time calls.
class callback_sink_mt : public sink {
 public:
  explicit callback_sink_mt(log_callback_t callback, flush_callback_t on_flush = nullptr)
    : callback_{callback}, flush_{on_flush}
  {}
  ~callback_sink_mt() override { mutex_.destroy(); }

  void log(log_record const& record) override
  {
    ::rmm::detail::mutex_lock const lock{mutex_.get()};
    if (callback_ != nullptr) { callback_(static_cast<int>(record.level), record.line.c_str()); }
  }

  void flush() override
  {
    ::rmm::detail::mutex_lock const lock{mutex_.get()};
    if (flush_ != nullptr) { flush_(); }
  }

 private:
  log_callback_t callback_;
  flush_callback_t flush_;
  ::rmm::detail::one_per_process<::rmm::detail::mutex>
    mutex_;  // held while the functions run: they need not be thread-safe
};

namespace detail {

/// The pattern of a line, in a subset of spdlog's notation: %t thread, %H %M %S %f time of day, %l level, %n logger, %v message, %% a
/// percent sign. A width between the sign and the letter pads on the left, a negative one on the right. Other letters stay as they are.
class line_pattern {
 public:
  line_pattern(std::string text, line_pattern const* before_this) : before{before_this}, text_{std::move(text)} {}
  line_pattern(line_pattern const&)            = delete;
  line_pattern& operator=(line_pattern const&) = delete;

  line_pattern const* before;  ///< the logger's pattern before this one

  [[nodiscard]] std::string line(level_enum level, std::string const& logger_name, std::string const& message) const
  {
    auto const now = ::rmm::detail::wall_clock::now();
    std::string line;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] != '%') {
        line += text_[i];
        continue;
      }
      auto const directive = i++;
      bool const left      = i < text_.size() && text_[i] == '-';
      if (left) { ++i; }
      std::size_t width{0};
      for (; i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; ++i) {
        width = std::min<std::size_t>(width * 10 + static_cast<std::size_t>(text_[i] - '0'), 64);
      }
      auto const letter = i < text_.size() ? text_[i] : '\0';
      auto const field =
        field_of(letter, now, level, logger_name, message).value_or(text_.substr(directive, i - directive + 1));
      auto const padding = width > field.size() ? width - field.size() : 0;
      if (!left) { line.append(padding, ' '); }
      line += field;
      if (left) { line.append(padding, ' '); }
    }
    return line + "\n";
  }

 private:
  /// Returns the text for a letter; nothing for letters without a meaning.
  template <class Time>
  [[nodiscard]] static std::optional<std::string> field_of(
    char letter, Time const& now, level_enum level, std::string const& logger_name, std::string const& message)
  {
    switch (letter) {
      case 't':
        return std::to_string(::rmm::detail::thread_number());
      case 'H':
        return number(now.hour, 2);
      case 'M':
        return number(now.minute, 2);
      case 'S':
        return number(now.second, 2);
      case 'f':
        return number(now.microsecond, 6);
      case 'l':
        return level_name(level);
      case 'n':
        return logger_name;
      case 'v':
        return message;
      case '%':
        return "%";
      default:
        return std::nullopt;
    }
  }

  [[nodiscard]] static std::string number(long value, std::size_t digits)
  {
    auto text = std::to_string(value);
    return text.insert(0, digits > text.size() ? digits - text.size() : 0, '0');
  }

  [[nodiscard]] static char const* level_name(level_enum level)
  {
    static constexpr std::array names{"trace", "debug", "info", "warning", "error", "critical", "off"};
    return names[std::min(static_cast<std::size_t>(level), names.size() - 1)];
  }

  std::string text_;
};

/// The functions of a logger. Other implementations than the one below make a logger write to another log.
class logger_implementation {
 public:
  logger_implementation()                                        = default;
  logger_implementation(logger_implementation const&)            = delete;
  logger_implementation& operator=(logger_implementation const&) = delete;
  virtual ~logger_implementation()                               = default;

  virtual void log(level_enum level, std::string const& message) = 0;
  virtual void flush()                                           = 0;
  [[nodiscard]] virtual level_enum level() const                 = 0;
  virtual void set_level(level_enum level)                       = 0;
  [[nodiscard]] virtual level_enum flush_level() const           = 0;
  virtual void flush_on(level_enum level)                        = 0;
  virtual void set_pattern(std::string pattern)                  = 0;
  virtual void push_sink(sink_ptr sink)                          = 0;
  virtual void pop_sink()                                        = 0;
  [[nodiscard]] virtual std::size_t sink_count() const           = 0;
};

/// A logger that passes messages on to its sinks.
///
/// Order: the levels guard no data. The update that makes a pattern the latest releases it and its link to the one before, and threads
/// that log acquire both. A pattern never changes after that, and all stay until the logger is destroyed, which no other thread uses then.
class sink_logger final : public logger_implementation {
 public:
  sink_logger(std::string name, std::vector<sink_ptr> sinks) : name_{std::move(name)}, sinks_{std::move(sinks)} {}
  ~sink_logger() override
  {
    for (auto const* each = pattern_.load(); each != nullptr;) { delete std::exchange(each, each->before); }
  }

  void log(level_enum level, std::string const& message) override
  {
    auto const line = pattern_.load()->line(level, name_, message);
    for (auto const& sink : sinks_) { sink->log({level, name_, message, line}); }
    if (level >= flush_level()) { flush(); }
  }

  void flush() override
  {
    for (auto const& sink : sinks_) { sink->flush(); }
  }

  [[nodiscard]] level_enum level() const override { return level_; }
  void set_level(level_enum level) override { level_ = level; }
  [[nodiscard]] level_enum flush_level() const override { return flush_level_; }
  void flush_on(level_enum level) override { flush_level_ = level; }

  void set_pattern(std::string pattern) override
  {
    auto* const made = new line_pattern{std::move(pattern), pattern_.load()};
    while (!pattern_.compare_exchange_weak(made->before, made)) {}
  }

  void push_sink(sink_ptr sink) override { sinks_.push_back(std::move(sink)); }
  void pop_sink() override { sinks_.pop_back(); }
  [[nodiscard]] std::size_t sink_count() const override { return sinks_.size(); }

 private:
  std::string name_;
  std::vector<sink_ptr> sinks_;  // changed by one thread while no other logs
  std::atomic<level_enum> level_{level_enum::info};
  std::atomic<level_enum> flush_level_{level_enum::off};
  // The latest pattern. Without a lock, which a forked child could wait for. Other threads may still use those before.
  std::atomic<line_pattern const*> pattern_{new line_pattern{"[%6t][%H:%M:%S:%f][%-6l] %v", nullptr}};
};

}  // namespace detail

/// The sinks of a logger, in the order in which they were added. Do not change them while other threads log.
class sink_vector {
 public:
  void push_back(sink_ptr sink) { implementation_->push_sink(std::move(sink)); }

  /// Requires that there is a sink.
  void pop_back() { implementation_->pop_sink(); }

  void clear()
  {
    while (!empty()) { pop_back(); }
  }

  [[nodiscard]] std::size_t size() const { return implementation_->sink_count(); }
  [[nodiscard]] bool empty() const { return size() == 0; }

 private:
  friend class logger;

  explicit sink_vector(std::unique_ptr<detail::logger_implementation> implementation)
    : implementation_{std::move(implementation)}
  {}

  std::unique_ptr<detail::logger_implementation> implementation_;
};

/// A logger that writes messages of a level and above to its sinks.
///
/// Formats are those of printf, where %s takes a std::string too.
class logger {
 public:
  /// Writes to `sinks`, at level info and above, and flushes when told to.
  logger(std::string name, std::vector<sink_ptr> sinks)
    : logger{std::make_unique<detail::sink_logger>(std::move(name), std::move(sinks))}
  {}

  /// Writes to the file of that name, at its end.
  logger(std::string name, std::string const& filename)
    : logger{std::move(name), std::vector<sink_ptr>{std::make_shared<basic_file_sink_mt>(filename)}}
  {}

  logger(std::string name, char const* filename) : logger{std::move(name), std::string{filename}} {}

  /// Writes to `stream`, which has to outlive the logger.
  logger(std::string name, std::ostream& stream)
    : logger{std::move(name), std::vector<sink_ptr>{std::make_shared<ostream_sink_mt>(stream)}}
  {}

  explicit logger(std::unique_ptr<detail::logger_implementation> implementation) : sinks_{std::move(implementation)} {}

  template <class... Args>
  void log(level_enum level, std::string const& format, Args const&... args)
  {
    if (!should_log(level)) { return; }
    if constexpr (sizeof...(Args) == 0) {
      implementation().log(level, format);
    } else {
      implementation().log(level, ::rmm::detail::formatted_log(format.c_str(), args...));
    }
  }

  template <class... Args>
  void trace(std::string const& format, Args const&... args)
  {
    log(level_enum::trace, format, args...);
  }

  template <class... Args>
  void debug(std::string const& format, Args const&... args)
  {
    log(level_enum::debug, format, args...);
  }

  template <class... Args>
  void info(std::string const& format, Args const&... args)
  {
    log(level_enum::info, format, args...);
  }

  template <class... Args>
  void warn(std::string const& format, Args const&... args)
  {
    log(level_enum::warn, format, args...);
  }

  template <class... Args>
  void error(std::string const& format, Args const&... args)
  {
    log(level_enum::error, format, args...);
  }

  template <class... Args>
  void critical(std::string const& format, Args const&... args)
  {
    log(level_enum::critical, format, args...);
  }

  void flush() { implementation().flush(); }

  [[nodiscard]] level_enum level() const { return implementation().level(); }
  void set_level(level_enum level) { implementation().set_level(level); }

  /// Messages of this level and above are flushed at once.
  [[nodiscard]] level_enum flush_level() const { return implementation().flush_level(); }
  void flush_on(level_enum level) { implementation().flush_on(level); }

  [[nodiscard]] bool should_log(level_enum level) const
  {
    return level >= implementation().level() && level < level_enum::off;
  }

  /// Sets the pattern of lines, in spdlog's notation; initially `[%6t][%H:%M:%S:%f][%-6l] %v`.
  void set_pattern(std::string pattern) { implementation().set_pattern(std::move(pattern)); }

  [[nodiscard]] sink_vector& sinks() { return sinks_; }
  [[nodiscard]] sink_vector const& sinks() const { return sinks_; }

 private:
  [[nodiscard]] detail::logger_implementation& implementation() const { return *sinks_.implementation_; }

  sink_vector sinks_;
};

/// A scope in which a logger has another level.
class log_level_setter {
 public:
  explicit log_level_setter(logger& changed, level_enum level) : logger_{changed}, before_{changed.level()}
  {
    logger_.set_level(level);
  }
  log_level_setter(log_level_setter const&)            = delete;
  log_level_setter& operator=(log_level_setter const&) = delete;
  ~log_level_setter() { logger_.set_level(before_); }

 private:
  logger& logger_;
  level_enum before_;
};

}  // namespace plain_logger
}  // namespace detail
}  // namespace RMM_NAMESPACE
