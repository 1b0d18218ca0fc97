// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

/// @file
/// The amount of host memory that this process can use.

namespace RMM_NAMESPACE {
namespace detail {

struct close_c_file {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

/// Reads a number from a file in the format of /proc/meminfo: from the first line that begins with `name`, right after the name.
/// Returns `fallback` if there is no such file, line or number.
[[nodiscard]] RMM_COLD inline std::size_t number_in_file(char const* path,
                                                         char const* name,
                                                         std::size_t fallback) noexcept
{
  detail::owned_ptr<std::FILE, close_c_file> const file{std::fopen(path, "r")};
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::strncmp(line, name, std::strlen(name)) != 0) { continue; }
    char const* const text = line + std::strlen(name);
    char* end{};
    auto const number = std::strtoull(text, &end, 10);
    return end != text ? static_cast<std::size_t>(number) : fallback;
  }
  return fallback;
}

/// Returns the free and the total bytes of host memory. Free is what can be used without swapping. A smaller limit of the control group
/// of the process counts instead. (0, 0) if the system does not tell.
[[nodiscard]] RMM_COLD inline std::pair<std::size_t, std::size_t> host_memory_info() noexcept
{
  constexpr auto no_limit   = std::numeric_limits<std::size_t>::max();
  auto const total          = number_in_file("/proc/meminfo", "MemTotal:", 0) * 1024;
  auto const available      = number_in_file("/proc/meminfo", "MemAvailable:", 0) * 1024;
  auto const group_limit    = number_in_file("/sys/fs/cgroup/memory.max", "", no_limit);
  auto const group_use      = number_in_file("/sys/fs/cgroup/memory.current", "", 0);
  auto const left_for_group = group_limit > group_use ? group_limit - group_use : 0;
  return {detail::min(available, left_for_group), detail::min(total, group_limit)};
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
