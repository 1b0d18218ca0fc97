// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <stdexcept>
#include <string>

namespace RMM_NAMESPACE {
namespace detail {

/// Thrown when a file cannot be opened for writing.
class file_error : public std::runtime_error {
 public:
  /// `number` is the value of errno; 0 if the library refuses the file itself.
  RMM_COLD file_error(std::string const& path, int number, char const* reason)
    : std::runtime_error{"cannot open '" + path + "' for writing: " + reason},
      path_{path},
      reason_{reason},
      number_{number}
  {}

  [[nodiscard]] char const* path() const noexcept { return path_.what(); }
  [[nodiscard]] char const* reason() const noexcept { return reason_.what(); }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  std::runtime_error path_;  // copies share its string: copying an exception must not throw
  std::runtime_error reason_;
  int number_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
