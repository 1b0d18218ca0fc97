// SPDX-License-Identifier: Apache-2.0
#include "violation_list.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cudasim {
namespace {

[[nodiscard]] char const* kind_name(violation::kind kind)
{
  switch (kind) {
    case violation::kind::race:
      return "race";
    case violation::kind::use_after_free:
      return "use after free";
    case violation::kind::out_of_bounds:
      return "out of bounds";
    case violation::kind::misuse:
      return "misuse";
    case violation::kind::deadlock:
      return "deadlock";
  }
  return "violation";
}

}  // namespace

std::uint64_t violation_list::add(mistake const& by, violation one)
{
  auto const [at, is_new] = group_of_.try_emplace({one.what, by.what, by.first, by.second}, groups_.size());
  if (is_new) { groups_.emplace_back(); }
  auto& same = groups_[at->second];
  if (same.count < printed_in_full || all_.size() < most_kept) {
    same.kept.push_back(all_.size());
    all_.push_back(std::move(one));
  }
  ++count_;
  return ++same.count;
}

void violation_list::clear() noexcept
{
  all_.clear();
  count_ = 0;
  groups_.clear();
  group_of_.clear();
}

std::string violation_list::text(std::string const& indent, bool in_full) const
{
  std::string lines;
  for (auto const& each : groups_) {
    auto const shown = in_full ? each.kept.size() : std::min<std::size_t>(each.kept.size(), printed_in_full);
    for (std::size_t i = 0; i < shown; ++i) {
      auto const& one = all_[each.kept[i]];
      lines += indent + kind_name(one.what) + ": " + one.text + "\n";
    }
    if (shown < each.count) {
      lines += indent + "  and " + std::to_string(each.count - shown) + " more from the same callers\n";
    }
  }
  return lines;
}

std::vector<std::string> violation_list::untold() const
{
  std::vector<std::string> lines;
  for (auto const& each : groups_) {
    if (each.count <= printed_in_full) { continue; }
    lines.push_back(std::to_string(each.count - printed_in_full) +
                    " more from the same callers: " + all_[each.kept.front()].text);
  }
  return lines;
}

}  // namespace cudasim
