// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/text_failure.hpp>
#include <rmm/detail/export.hpp>

#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// The value of RMM_AUDIT.
struct mode {
  enum class action { report, allow, deny, route };

  action does{action::report};
  std::string text{"report"};  ///< the value as the report shows it
  std::vector<std::string>
    libraries;                ///< patterns: those that may allocate, or those that may not; empty after "deny" alone
  std::string configuration;  ///< of the resource to route to; empty: use RMM_RESOURCE; or "current"
  std::string complaint;      ///< the mistake in the text, if any; then the library only reports

  /// Whether allocations are routed to the program's own current resources.
  [[nodiscard]] bool routes_to_current() const { return does == action::route && configuration == "current"; }
};

/// Splits a list at its commas. Empty parts are left out.
[[nodiscard]] inline std::vector<std::string> split_at_commas(std::string_view list)
{
  std::vector<std::string> parts;
  while (!list.empty()) {
    auto const end = std::min(list.find(','), list.size());
    if (end != 0) { parts.emplace_back(list.substr(0, end)); }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

/// Reads the value of RMM_AUDIT, which may be null.
[[nodiscard]] inline mode read_mode(char const* value)
{
  mode made;
  std::string_view const text{value != nullptr ? value : ""};
  if (text.empty() || text == "report") { return made; }
  auto const colon     = text.find(':');
  auto const word      = text.substr(0, colon);
  auto const rest      = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  auto const libraries = split_at_commas(rest);
  if (word == "allow" && !libraries.empty()) {
    made.does = mode::action::allow;
  } else if (word == "deny" && libraries.empty() == (colon == std::string_view::npos)) {
    made.does = mode::action::deny;
  } else if (word == "route" && rest.empty() == (colon == std::string_view::npos)) {
    made.does          = mode::action::route;
    made.configuration = rest;
  } else {
    made.complaint = "RMM_AUDIT is " + rmm::detail::quoted(text) +
                     ", but takes one of: report, allow:LIBRARY,..., deny, deny:LIBRARY,..., route, "
                     "route:CONFIGURATION, route:current; nothing is refused or routed, only reported";
    return made;
  }
  if (made.does != mode::action::route) { made.libraries = libraries; }
  made.text = text;
  return made;
}

/// Whether a shell pattern matches a library's name in reports, or its file name without folders.
[[nodiscard]] inline bool matches(std::string const& pattern, std::string const& library)
{
  auto const slash = library.rfind('/');
  auto const* file = library.c_str() + (slash == std::string::npos ? 0 : slash + 1);
  return ::fnmatch(pattern.c_str(), library.c_str(), 0) == 0 || ::fnmatch(pattern.c_str(), file, 0) == 0;
}

[[nodiscard]] inline bool matches_any(std::vector<std::string> const& patterns, std::string const& library)
{
  return std::any_of(patterns.begin(), patterns.end(), [&](auto const& pattern) { return matches(pattern, library); });
}

/// Whether a library is not allowed to allocate memory of a device.
[[nodiscard]] inline bool is_refused(mode const& chosen, std::string const& library)
{
  if (chosen.does == mode::action::allow) { return !matches_any(chosen.libraries, library); }
  return chosen.does == mode::action::deny && (chosen.libraries.empty() || matches_any(chosen.libraries, library));
}

/// Whether a library belongs to RMM, by its name.
[[nodiscard]] inline bool is_of_rmm(std::string const& library)
{
  return matches("rmm/*", library) || matches("librmm*", library);
}

/// Whether allocations of a library are routed. Excluded are RMM, whose pools would lie in a pool, and libraries that
/// share their memory with other processes, which is impossible with memory of a pool.
[[nodiscard]] inline bool is_routed(mode const& chosen, std::string const& library)
{
  // Never destroyed, because libraries allocate until the process ends.
  static auto const& never = *new std::vector<std::string>{"libnccl*", "libnvshmem*", "libuc[mpst]*.so*"};
  return chosen.does == mode::action::route && !is_of_rmm(library) && !matches_any(never, library);
}

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
