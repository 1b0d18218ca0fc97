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

/// Options of a trace.
struct trace_options {
  /// The name of the file: `%p` stands for the id of the process, `%d` for the number of the device, `%%` for a percent sign. An existing
  /// file is emptied. Empty: the value of the environment variable RMM_TRACE_FILE.
  std::string file{};

  /// The most bytes of a file. Further events go to the files `<file>.1`, `<file>.2`, ...; 0: no limit.
  std::size_t max_file_bytes{0};

  /// The number of files to keep. Older ones are removed; 0: all are kept.
  std::size_t max_files{0};

  /// The time after which a thread writes its events, when it records another one. It also writes them when its buffer is full, in flush(),
  /// and when the thread or the program ends. A crash of the program loses events that were not written.
  std::chrono::milliseconds flush_interval{1000};

  /// The bytes of each thread's buffer.
  std::size_t buffer_bytes{std::size_t{64} << 10U};

  /// Records the call stack of each n-th allocation of a thread; 0: no stacks.
  std::size_t stack_every{0};

  /// Returns the options that the environment sets: RMM_TRACE_FILE, RMM_TRACE_MAX_FILE_SIZE (such as `512MB`), RMM_TRACE_MAX_FILES,
  /// RMM_TRACE_FLUSH_MS and RMM_TRACE_STACKS. The others have their defaults. Throws std::invalid_argument for invalid values.
  [[nodiscard]] RMM_COLD static trace_options from_environment()
  {
    trace_options options;
    if (auto const* const text = value_of("RMM_TRACE_FILE")) { options.file = text; }
    if (auto const* const text = value_of("RMM_TRACE_MAX_FILE_SIZE")) {
      try {
        auto const amount = memory_amount::parse(text);
        if (!amount.is_absolute()) {
          throw std::invalid_argument("must be a number of bytes, but is " + rmm::detail::quoted(text));
        }
        options.max_file_bytes = amount.bytes(0, 0);
      } catch (std::invalid_argument const& error) {
        throw std::invalid_argument(std::string{"RMM_TRACE_MAX_FILE_SIZE: "} + error.what());
      }
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
        throw std::invalid_argument(std::string{name} + " must be a number, but is " + rmm::detail::quoted(text));
      }
      number = 10 * number + static_cast<std::size_t>(*digit - '0');
    }
    return number;
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
