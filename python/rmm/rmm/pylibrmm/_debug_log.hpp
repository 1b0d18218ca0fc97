// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/plain_logger.hpp>
#include <rmm/logger_macros.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace rmm_python {

namespace plain_logger = rmm::detail::plain_logger;

/// A sink that writes to a file. The first message opens and empties it.
///
/// Order: log() sees the file through call_once(). flush() acquires it with is_open_, which is released after the file was opened.
class late_file_sink final : public plain_logger::sink {
 public:
  void log(plain_logger::log_record const& record) override
  {
    std::call_once(opened_, [this] {
      auto const* const name = std::getenv("RMM_DEBUG_LOG_FILE");
      file_                  = std::make_unique<plain_logger::basic_file_sink_mt>(
        name != nullptr && *name != '\0' ? name : "rmm_log.txt", true);
      is_open_.store(true, std::memory_order_release);
    });
    file_->log(record);
  }

  void flush() override
  {
    if (is_open_.load(std::memory_order_acquire)) { file_->flush(); }
  }

 private:
  std::once_flag opened_;
  std::unique_ptr<plain_logger::sink> file_;
  std::atomic<bool> is_open_{false};
};

/// Returns the debug log of the package. It is never destroyed, because messages may be written at exit.
[[nodiscard]] inline plain_logger::logger& debug_log()
{
  static auto& log = *[] {
    auto* const made = new plain_logger::logger{"RMM", {std::make_shared<late_file_sink>()}};
    made->set_pattern("[%6t][%H:%M:%S:%f][%-6l] %v");
    made->flush_on(plain_logger::level_enum::warn);
    return made;
  }();
  return log;
}

/// Writes a message of the C++ library to the debug log.
inline void write_to_debug_log(rmm::detail::log_level level, char const* message) noexcept
{
  if (static_cast<int>(level) < RMM_LOG_ACTIVE_LEVEL) { return; }
  try {
    auto const as_level = static_cast<plain_logger::level_enum>(level);
    if (debug_log().should_log(as_level)) { debug_log().log(as_level, "%s", message); }
  } catch (...) {  // the file cannot be opened, and there is no other place for the message
  }
}

/// The lowest level that is compiled in.
inline constexpr int active_level = RMM_LOG_ACTIVE_LEVEL;

}  // namespace rmm_python
