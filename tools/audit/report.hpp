// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ledger.hpp"

#include <rmm/detail/export.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {

/// Returns a number with commas: 1234567 as "1,234,567".
[[nodiscard]] inline std::string with_commas(std::uint64_t number)
{
  auto text = std::to_string(number);
  for (auto at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

/// Returns the rows of a report: one for each library and kind, most memory first; then the sum over all devices.
[[nodiscard]] inline std::string make_table(ledger const& known)
{
  struct row {
    figures counted;
    char const* kind;
    std::string library;
  };
  std::vector<row> rows;
  for (auto const& library : known.libraries()) {
    for (std::size_t kind = 0; kind < library.by_kind.size(); ++kind) {
      auto const& counted = library.by_kind[kind];
      if (counted.calls + counted.refused_calls != 0) {
        rows.push_back({counted, name_of(static_cast<memory_kind>(kind)), library.name});
      }
    }
  }
  std::stable_sort(
    rows.begin(), rows.end(), [](row const& a, row const& b) { return a.counted.most > b.counted.most; });
  rows.push_back({known.on_devices(), "in all", "(device memory)"});

  std::string text;
  auto const add_line =
    [&](
      char const* calls, char const* bytes, char const* most, char const* live, char const* kind, char const* library) {
      char line[160];
      std::snprintf(line, sizeof line, "%12s %22s %20s %20s  %-15s  ", calls, bytes, most, live, kind);
      text += line;
      text += library;
    };
  add_line("calls", "bytes in all", "most at once", "live now", "kind", "library\n");
  for (auto const& each : rows) {
    add_line(with_commas(each.counted.calls).c_str(),
             with_commas(each.counted.bytes).c_str(),
             with_commas(each.counted.most).c_str(),
             with_commas(each.counted.live).c_str(),
             each.kind,
             each.library.c_str());
    if (each.counted.refused_calls != 0) {
      text += " (refused: " + with_commas(each.counted.refused_calls) + " calls, " +
              with_commas(each.counted.refused_bytes) + " bytes)";
    }
    text += '\n';
  }
  return text;
}

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
