// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace rmm::test {

/// A temporary folder. The destructor removes it with its content.
class temporary_folder {
 public:
  temporary_folder()
  {
    std::string pattern = ::testing::TempDir() + "rmm-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) { throw std::runtime_error{"mkdtemp failed"}; }
    path_ = pattern;
  }
  ~temporary_folder() { std::filesystem::remove_all(path_); }

  temporary_folder(temporary_folder const&)            = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;

  /// Returns the path of a file in the folder.
  [[nodiscard]] std::string operator/(std::string const& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string contents_of(std::string const& path)
{
  std::ostringstream text;
  text << std::ifstream{path}.rdbuf();
  return text.str();
}

/// Sets an environment variable. The destructor restores the previous value.
class environment_variable {
 public:
  explicit environment_variable(char const* name) : name_{name}
  {
    if (auto const* const value = std::getenv(name)) {
      was_set_   = true;
      old_value_ = value;
    }
  }
  ~environment_variable()
  {
    if (was_set_) {
      set(old_value_.c_str());
    } else {
      unset();
    }
  }

  environment_variable(environment_variable const&)            = delete;
  environment_variable& operator=(environment_variable const&) = delete;

  void set(char const* value) const { ::setenv(name_, value, 1); }
  void unset() const { ::unsetenv(name_); }

 private:
  char const* name_;
  bool was_set_{false};
  std::string old_value_;
};

}  // namespace rmm::test
