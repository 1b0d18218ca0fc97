// SPDX-License-Identifier: Apache-2.0

#include "check_orders.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

namespace weak_memory {
namespace {

[[nodiscard]] bool ends_with(std::string const& text, std::string const& end)
{
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

[[nodiscard]] std::string source_line(std::string const& path, place const& where)
{
  std::ifstream file{RMM_MODELS_SOURCE_FOLDER "/" + path};
  std::string line;
  for (int i = 0; i != where.line; ++i) { std::getline(file, line); }
  auto const first = line.find_first_not_of(' ');
  return first == std::string::npos ? line : line.substr(first);
}

}  // namespace

void expect_right(checked_part const& part)
{
  std::uint64_t runs    = 0;
  std::uint64_t cut_off = 0;
  for (auto const& each : part.programs) {
    auto const result = explore(each, part.given);
    EXPECT_EQ(result.error, "");
    EXPECT_TRUE(result.is_complete);
    runs += result.runs;
    cut_off += result.cut_off;
  }
  ::testing::Test::RecordProperty("runs", static_cast<int>(runs));
  ::testing::Test::RecordProperty("cut_off", static_cast<int>(cut_off));
}

std::set<std::string> unnoticed_weakenings(checked_part const& part, std::set<std::string> const& harmless)
{
  std::vector<weakening> tried;
  auto const add = [&](ordered_place const& found) {
    if (!ends_with(found.where.file, part.file)) { return; }
    for (auto const to : weaker_orders(found.kind, found.order)) {
      bool const is_known = std::any_of(tried.begin(), tried.end(), [&](weakening const& each) {
        return each.where.line == found.where.line && each.kind == found.kind && each.from == found.order &&
               each.to == to;
      });
      if (!is_known) { tried.push_back({found.where, found.kind, found.order, to}); }
    }
  };
  for (auto const& each : part.programs) {
    for (auto const& found : explore(each, part.given).places) { add(found); }
  }
  EXPECT_FALSE(tried.empty()) << "no operation of " << part.file << " is reached";
  std::set<std::string> unnoticed;
  std::size_t left_out = 0;
  for (auto const& each : tried) {
    auto const text = source_line(part.file, each.where) + ": " + name_of(each.from) + " -> " + name_of(each.to);
    if (harmless.count(text) != 0) {
      ++left_out;
      continue;
    }
    bool const is_noticed = std::any_of(part.programs.begin(), part.programs.end(), [&](set_up_program const& program) {
      return !explore(program, part.given, each).error.empty();
    });
    if (!is_noticed) { unnoticed.insert(text); }
  }
  EXPECT_EQ(left_out, harmless.size()) << "what is known as harmless is not there";
  return unnoticed;
}

}  // namespace weak_memory
