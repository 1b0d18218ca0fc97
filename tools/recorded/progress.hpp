// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/terminal_text.hpp>

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

namespace rmm::recorded {

/// Shows the progress of long work, if standard error is a terminal.
class progress {
 public:
  progress() : is_shown_{::isatty(STDERR_FILENO) == 1} {}
  progress(progress const&)            = delete;
  progress& operator=(progress const&) = delete;
  ~progress() { clear(); }

  [[nodiscard]] bool is_shown() const noexcept { return is_shown_; }

  /// Begins a task of `steps` steps; 0 if their number is unknown.
  void begin(std::string const& what, std::size_t steps = 0)
  {
    what_  = terminal_text(what);
    steps_ = steps;
    last_  = {};
    show(0);
  }

  /// Reports that `done` steps are done. Cheap enough for a call at each thousandth step.
  void advance(std::size_t done)
  {
    if (is_shown_) { show(done); }
  }

  void clear()
  {
    if (is_shown_ && !what_.empty()) { std::fputs("\r\033[K", stderr); }
    what_.clear();
  }

 private:
  void show(std::size_t done)
  {
    auto const now = std::chrono::steady_clock::now();
    if (!is_shown_ || now - last_ < std::chrono::milliseconds{100}) { return; }
    last_ = now;
    if (steps_ == 0) {
      std::fprintf(stderr, "\r\033[K%s", what_.c_str());
    } else {
      std::fprintf(stderr, "\r\033[K%s: %zu %%", what_.c_str(), 100 * done / steps_);
    }
    std::fflush(stderr);
  }

  bool is_shown_;
  std::string what_;
  std::size_t steps_{0};
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace rmm::recorded
