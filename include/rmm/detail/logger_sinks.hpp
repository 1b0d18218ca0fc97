// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_sink.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/logger_spdlog.hpp>
#include <rmm/detail/rapids_logger.hpp>

#if RMM_HAS_SPDLOG
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#endif

#include <string>
#include <string_view>
#include <utility>

/// @file
/// Sinks of text over sinks of logging libraries. Both kinds take lines without their ends, and add these themselves.

namespace RMM_NAMESPACE {
namespace detail {

[[nodiscard]] constexpr std::string_view without_line_end(std::string_view line) noexcept
{
  if (!line.empty() && line.back() == '\n') { line.remove_suffix(1); }
  return line;
}

/// A sink of text over a sink of rapids_logger, whose pattern it changes, so that only the text is printed. A template, because files of
/// one program may use different libraries rapids_logger.
template <class Logger>
class rapids_logger_text_sink final : public text_sink {
 public:
  template <class Sink>
  explicit rapids_logger_text_sink(Sink sink) : logger_{"RMM", {std::move(sink)}}
  {
    logger_.set_pattern("%v");
  }

  void write(std::string_view text) override { logger_.info("%s", std::string{without_line_end(text)}); }
  void flush() override { logger_.flush(); }

 private:
  Logger logger_;
};

#if RMM_HAS_SPDLOG

/// A sink of text over a sink of spdlog, whose pattern it changes, so that only the text is printed.
class spdlog_text_sink final : public text_sink {
 public:
  explicit spdlog_text_sink(spdlog::sink_ptr sink) : sink_{std::move(sink)} { sink_->set_pattern("%v"); }

  void write(std::string_view text) override
  {
    auto const line = without_line_end(text);
    sink_->log({"RMM", spdlog::level::info, spdlog::string_view_t{line.data(), line.size()}});
  }

  void flush() override { sink_->flush(); }

 private:
  spdlog::sink_ptr sink_;
};

#endif

}  // namespace detail
}  // namespace RMM_NAMESPACE
