// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stands in for the library rapids_logger: the names that RMM uses, for other objects.

#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace rapids_logger {

enum class level_enum : int { trace, debug, info, warn, error, critical, off };

class sink {
 public:
  virtual ~sink() = default;

  virtual void take(level_enum level, std::string const& text) = 0;
};

using sink_ptr = std::shared_ptr<sink>;

class basic_file_sink_mt : public sink {
 public:
  explicit basic_file_sink_mt(std::string const&, bool = false) {}
  void take(level_enum, std::string const&) override {}
};

class stderr_sink_mt : public sink {
 public:
  void take(level_enum, std::string const& text) override { std::fputs(text.c_str(), stderr); }
};

class ostream_sink_mt : public sink {
 public:
  explicit ostream_sink_mt(std::ostream& out, bool = false) : out_{out} {}
  void take(level_enum, std::string const& text) override { out_ << "library: " << text; }

 private:
  std::ostream& out_;
};

class callback_sink_mt : public sink {
 public:
  explicit callback_sink_mt(void (*callback)(int, char const*), void (*)() = nullptr) : callback_{callback} {}
  void take(level_enum level, std::string const& text) override { callback_(static_cast<int>(level), text.c_str()); }

 private:
  void (*callback_)(int, char const*);
};

class logger {
 public:
  logger(std::string name, std::vector<sink_ptr> sinks) : name_{std::move(name)}, sinks_{std::move(sinks)} {}

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
  void log(level_enum level, std::string const& format, Args const&... args)
  {
    std::string text(1000, '\0');
    text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), format.c_str(), printable(args)...)));
    for (auto const& each : sinks_) { each->take(level, text + "\n"); }
  }

  void set_pattern(std::string const&) {}
  void flush() {}

 private:
  [[nodiscard]] static char const* printable(std::string const& text) { return text.c_str(); }
  [[nodiscard]] static char const* printable(char const* text) { return text; }

  std::string name_;
  std::vector<sink_ptr> sinks_;
};

}  // namespace rapids_logger
