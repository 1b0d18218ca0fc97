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
/// How much memory the host has for this process.

namespace RMM_NAMESPACE {
namespace detail {

struct close_c_file {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

/// The number after `name` at the beginning of a line of the file, as /proc/meminfo has it; the first line's if the name is
/// empty. `otherwise` if there is no such file, line or number.
[[nodiscard]] RMM_COLD inline std::size_t number_in_file(char const* path,
                                                         char const* name,
                                                         std::size_t otherwise) noexcept
{
  detail::owned_ptr<std::FILE, close_c_file> const file{std::fopen(path, "r")};
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::strncmp(line, name, std::strlen(name)) != 0) { continue; }
    char const* const text = line + std::strlen(name);
    char* end{};
    auto const number = std::strtoull(text, &end, 10);
    return end != text ? static_cast<std::size_t>(number) : otherwise;
  }
  return otherwise;
}

/// (free, total) bytes of host memory: what the system says can be used without swapping, and has in all, or what the control
/// group of the process leaves, if that is less. (0, 0) where neither is known.
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
