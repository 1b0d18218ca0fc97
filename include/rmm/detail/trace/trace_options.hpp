// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/memory_amount.hpp>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// How a trace is written.
struct trace_options {
  /// Where to: `%p` is the number of the process, `%d` that of the device, `%%` a percent sign. An existing file of the
  /// caller's is emptied. Empty: the value of the environment variable RMM_TRACE_FILE.
  std::string file{};

  /// A file that would grow beyond this is followed by the next, `<file>.1`, `<file>.2`, ...; 0: no limit.
  std::size_t max_file_bytes{0};

  /// How many files to keep, the newest ones; 0: all.
  std::size_t max_files{0};

  /// After how long what a thread has traced is written when it traces more. Until then, or until as much as `buffer_bytes`,
  /// flush(), the end of the thread or of the program, a crash of the program loses it.
  std::chrono::milliseconds flush_interval{1000};

  /// Memory for each thread.
  std::size_t buffer_bytes{std::size_t{64} << 10U};

  /// Record the call stack of every n-th allocation of a thread; 0: of none.
  std::size_t stack_every{0};

  /// What the environment says: RMM_TRACE_FILE, RMM_TRACE_MAX_FILE_SIZE (`512MB`), RMM_TRACE_MAX_FILES,
  /// RMM_TRACE_FLUSH_MS, RMM_TRACE_STACKS. What is not set is as above. Throws std::invalid_argument for what makes no sense.
  [[nodiscard]] RMM_COLD static trace_options from_environment()
  {
    trace_options options;
    if (auto const* const text = value_of("RMM_TRACE_FILE")) { options.file = text; }
    if (auto const* const text = value_of("RMM_TRACE_MAX_FILE_SIZE")) {
      auto const amount = memory_amount::parse(text);
      if (!amount.is_absolute()) {
        throw std::invalid_argument("RMM_TRACE_MAX_FILE_SIZE: a number of bytes is needed, not " +
                                    rmm::detail::quoted(text));
      }
      options.max_file_bytes = amount.bytes(0, 0);
    }
    options.max_files      = number_of("RMM_TRACE_MAX_FILES", options.max_files);
    options.flush_interval = std::chrono::milliseconds{static_cast<std::chrono::milliseconds::rep>(
      number_of("RMM_TRACE_FLUSH_MS", static_cast<std::size_t>(options.flush_interval.count())))};
    options.stack_every    = number_of("RMM_TRACE_STACKS", options.stack_every);
    return options;
  }

 private:
  [[nodiscard]] static char const* value_of(char const* name) noexcept
  {
    auto const* const text = std::getenv(name);
    return text != nullptr && *text != '\0' ? text : nullptr;
  }

  [[nodiscard]] static std::size_t number_of(char const* name, std::size_t otherwise)
  {
    auto const* const text = value_of(name);
    if (text == nullptr) { return otherwise; }
    std::size_t number        = 0;
    constexpr std::size_t max = std::numeric_limits<int>::max();
    for (auto const* digit = text; *digit != '\0'; ++digit) {
      if (*digit < '0' || *digit > '9' || number > max / 10) {
        throw std::invalid_argument(std::string{name} + ": a number is needed, not " + rmm::detail::quoted(text));
      }
      number = 10 * number + static_cast<std::size_t>(*digit - '0');
    }
    return number;
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
