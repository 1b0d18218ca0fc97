// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/report.hpp>

#include <algorithm>
#include <cstdio>
#include <istream>
#include <ostream>
#include <sstream>
#include <stdexcept>

namespace compare {

namespace {

/// Formats with three digits, or with all digits before the decimal point.
std::string format(double value)
{
  char text[32];
  auto const size = value < 0 ? -value : value;
  std::snprintf(text,
                sizeof text,
                size >= 100 || value == 0 ? "%.0f"
                : size >= 10              ? "%.1f"
                : size >= 1               ? "%.2f"
                                          : "%.3f",
                value);
  return text;
}

template <class Member>
std::vector<std::string> distinct(std::vector<result> const& results, Member&& member)
{
  std::vector<std::string> names;
  for (auto const& r : results) {
    auto const& name = member(r);
    if (std::find(names.begin(), names.end(), name) == names.end()) { names.push_back(name); }
  }
  return names;
}

result const* find_result(std::vector<result> const& results, std::string const& row, std::string const& allocator)
{
  auto const found = std::find_if(
    results.begin(), results.end(), [&](result const& r) { return r.row == row && r.allocator == allocator; });
  return found == results.end() ? nullptr : &*found;
}

std::string padded(std::string text, std::size_t width, bool left = false)
{
  auto const missing = text.size() < width ? width - text.size() : 0;
  return left ? text + std::string(missing, ' ') : std::string(missing, ' ') + text;
}

/// Whether the candidate is a built-in one, which is no real allocator.
bool is_built_in(std::string const& allocator) { return allocator == "floor" || allocator == "perfect packing"; }

/// Returns the library that an allocator belongs to: the part of its name before the dot.
std::string family(std::string const& allocator) { return allocator.substr(0, allocator.find('.')); }

}  // namespace

std::optional<double> find_figure(figures const& values, std::string const& name)
{
  for (auto const& f : values) {
    if (f.name == name) { return f.value; }
  }
  return std::nullopt;
}

figures medians(std::vector<figures> const& runs)
{
  auto result = runs.front();
  for (auto& f : result) {
    std::vector<double> values;
    for (auto const& run : runs) {
      if (auto const value = find_figure(run, f.name)) { values.push_back(*value); }
    }
    std::sort(values.begin(), values.end());
    auto const middle = values.size() / 2;
    f.value           = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  }
  return result;
}

void write_table(std::ostream& out, std::vector<result> const& results)
{
  auto const allocators = distinct(
    results, [](result const& r) -> auto const& { return r.allocator; });
  auto const rows = distinct(
    results, [](result const& r) -> auto const& { return r.row; });

  struct line {
    std::string head;
    std::vector<std::string> cells;
  };
  std::vector<line> lines;
  for (auto const& row : rows) {
    std::vector<std::string> names;
    for (auto const& r : results) {
      if (r.row != row) { continue; }
      for (auto const& f : r.values) {
        bool const quiet = (f.name == "syncs" || f.name == "failures") && f.value == 0;
        if (!quiet && std::find(names.begin(), names.end(), f.name) == names.end()) { names.push_back(f.name); }
      }
    }
    for (auto const& name : names) {
      line next{row + " " + name, {}};
      for (auto const& allocator : allocators) {
        auto const* const found = find_result(results, row, allocator);
        auto const value        = found != nullptr ? find_figure(found->values, name) : std::nullopt;
        next.cells.push_back(value ? format(*value) : found != nullptr && !found->failure.empty() ? "failed" : "-");
      }
      lines.push_back(std::move(next));
    }
  }

  std::size_t head = 0;
  for (auto const& l : lines) { head = std::max(head, l.head.size()); }
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < allocators.size(); ++i) {
    auto width = allocators[i].size();
    for (auto const& l : lines) { width = std::max(width, l.cells[i].size()); }
    widths.push_back(width + 2);
  }
  out << std::string(head, ' ');
  for (std::size_t i = 0; i < allocators.size(); ++i) { out << padded(allocators[i], widths[i]); }
  out << '\n';
  for (auto const& l : lines) {
    out << padded(l.head, head, true);
    for (std::size_t i = 0; i < allocators.size(); ++i) { out << padded(l.cells[i], widths[i]); }
    out << '\n';
  }
  for (auto const& r : results) {
    if (!r.failure.empty()) { out << r.row << ", " << r.allocator << ": " << r.failure << '\n'; }
  }
}

void write_csv(std::ostream& out, std::vector<result> const& results)
{
  out << "allocator,row,figure,value\n";
  for (auto const& r : results) {
    for (auto const& f : r.values) {
      char number[32];
      std::snprintf(number, sizeof number, "%.6g", f.value);
      out << r.allocator << ',' << r.row << ',' << f.name << ',' << number << '\n';
    }
  }
}

std::vector<target> parse_targets(std::istream& in)
{
  std::vector<target> targets;
  std::string text;
  bool seen_header = false;
  for (std::size_t line = 1; std::getline(in, text); ++line) {
    if (text.empty() || text[0] == '#') { continue; }
    auto const fail = [&](char const* what) {
      throw std::runtime_error{"line " + std::to_string(line) + " of the targets: " + what};
    };
    if (!seen_header) {
      if (text != "allocator,row,figure,relation,limit") {
        fail("the header is not allocator,row,figure,relation,limit");
      }
      seen_header = true;
      continue;
    }
    std::vector<std::string> fields;
    std::istringstream row{text};
    for (std::string field; std::getline(row, field, ',');) { fields.push_back(field); }
    if (fields.size() != 5) { fail("there are not five fields"); }
    if (fields[3] != "<=" && fields[3] != ">=") { fail("the relation is neither <= nor >="); }

    target next{fields[0], fields[1], fields[2], target::relation::at_most, target::base::number, 0};
    if (fields[3] == ">=") { next.how = target::relation::at_least; }
    auto limit = fields[4];
    for (auto const& [word, base] :
         {std::pair{"peers", target::base::peers}, std::pair{"perfect", target::base::perfect}}) {
      if (limit.rfind(word, 0) == 0) {
        next.relative_to = base;
        limit.erase(0, std::string{word}.size());
        if (limit.empty()) { limit = "0"; }
      }
    }
    if (auto const times = limit.find('*'); times != std::string::npos && times + 1 != limit.size()) {
      next.relative_to = target::base::other;
      next.other       = limit.substr(times + 1);
      limit.erase(times);
    }
    std::istringstream number{limit};
    if (!(number >> next.limit) || !(number >> std::ws).eof()) {
      fail("the limit is not a number, peers, perfect or NUMBER*ALLOCATOR");
    }
    targets.push_back(next);
  }
  return targets;
}

std::size_t judge(std::ostream& out, std::vector<result> const& results, std::vector<target> const& targets)
{
  std::size_t missed = 0;

  auto const limit_of = [&](target const& t, std::string const& row) -> std::optional<double> {
    if (t.relative_to == target::base::number) { return t.limit; }
    if (t.relative_to == target::base::other) {
      auto const* const found = find_result(results, row, t.other);
      auto const value        = found != nullptr ? find_figure(found->values, t.figure) : std::nullopt;
      return value ? std::optional<double>{*value * t.limit} : std::nullopt;
    }
    std::optional<double> best;
    for (auto const& r : results) {
      bool const counts = t.relative_to == target::base::perfect
                            ? r.allocator == "perfect packing"
                            : !is_built_in(r.allocator) && family(r.allocator) != family(t.allocator);
      auto const value  = find_figure(r.values, t.figure);
      if (r.row != row || !counts || !value) { continue; }
      bool const better = !best || (t.how == target::relation::at_most ? *value < *best : *value > *best);
      if (better) { best = value; }
    }
    return best ? std::optional<double>{*best + t.limit} : std::nullopt;
  };

  for (auto const& t : targets) {
    for (auto const& r : results) {
      if (r.allocator != t.allocator || (t.row != "*" && r.row != t.row)) { continue; }
      auto const value = find_figure(r.values, t.figure);
      auto const limit = limit_of(t, r.row);
      auto const what  = t.allocator + ", " + r.row + ", " + t.figure;
      if (!value) {
        if (t.row != "*") {
          ++missed;
          out << "missed: " << what << ": there is no figure\n";
        }
        continue;
      }
      if (!limit) { continue; }
      bool const met = t.how == target::relation::at_most ? *value <= *limit : *value >= *limit;
      if (!met) {
        ++missed;
        out << "missed: " << what << ": " << format(*value) << " instead of at "
            << (t.how == target::relation::at_most ? "most " : "least ") << format(*limit)
            << (t.relative_to == target::base::peers ? " (the best peer)" : "")
            << (t.relative_to == target::base::other ? " (" + t.other + ")" : std::string{}) << '\n';
      }
    }
  }
  return missed;
}

char const* const own_targets =
  R"(# One H200, 16 host cores.
allocator,row,figure,relation,limit
rmm.pool,pair-256,ns,<=,15
rmm.pool,steady-small-1k,ns,<=,30
rmm.pool,steady-small-1k,p999_ns,<=,1000
rmm.pool,steady-small-100k,ns,<=,60
rmm.pool,steady-mid-1k,ns,<=,60
rmm.pool,steady-mid-1k,p999_ns,<=,3000
rmm.pool,random-100k-1M,ns,<=,80
rmm.pool,handoff,ns,<=,100
rmm.pool,threads-1,ns,<=,40
rmm.pool,threads-16,ns,<=,4
rmm.pool,uvector-1,ns,<=,50
rmm.pool,uvector-1-several-devices,ns,<=,110
rmm.pool,uvector-16,ns,<=,70
rmm.pool,uvector-16-several-devices,ns,<=,130
rmm.pool,*,ns,<=,peers
rmm.pool,*,syncs,<=,0
rmm.pool,trace-gpt2-train-varlen,smallest_over_peak,<=,1.08
rmm.pool,trace-six-streams-sort,smallest_over_peak,<=,1.26
rmm.elastic,pair-256,ns,<=,1.1*rmm.pool
rmm.elastic,steady-small-1k,ns,<=,1.1*rmm.pool
rmm.elastic,steady-small-100k,ns,<=,1.1*rmm.pool
rmm.elastic,steady-mid-1k,ns,<=,1.1*rmm.pool
rmm.elastic,trace-gpt2-train-varlen,reserved_over_live,<=,1.03
rmm.cached,pair-256,ns,<=,1.3*rmm.pool
rmm.cached,steady-small-1k,ns,<=,1.3*rmm.pool
rmm.cached,steady-small-100k,ns,<=,1.3*rmm.pool
rmm.cached,steady-mid-1k,ns,<=,1.3*rmm.pool
rmm.elastic,frag-small,mean_share,>=,0.98
rmm.elastic,frag-small,worst_share,>=,0.94
rmm.elastic,frag-large,mean_share,>=,perfect-0.015
rmm.elastic,frag-large,worst_share,>=,perfect-0.02
rmm.elastic,frag-large,ns,<=,4000
rmm.elastic,first-allocation,first_full_ns,<=,15000000
rmm.elastic,growth,ns,<=,500
rmm.elastic,reserved-small,reserved_over_live,<=,1.2
rmm.pool,reserved-small,reserved_over_live,<=,1.5
rmm.pool,reserved-mid,reserved_over_live,<=,1.3
rmm.pool,pair-256-foreign,ns,<=,30
rmm.pool,pair-64M-shared,ns,<=,100
rmm.pool,streams-8,ns,<=,60
rmm.pool,streams-8-cross,ns,<=,100
rmm.pool,streams-32-large,ns,<=,200
rmm.pool,threads-16-large,ns,<=,100
rmm.pool,threads-16-large,p99_ns,<=,20000
rmm.pool,short-threads-8,ns,<=,300
rmm.pool,tight-8-80,ns,<=,500
rmm.pool,tight-8-80,failures_in_a_million,<=,0
rmm.pool,holes-4096,ns,<=,100
rmm.pool,holes-65536,ns,<=,100
rmm.pinned_pool,holes-4096,ns,<=,100
rmm.pinned_pool,holes-65536,ns,<=,100
rmm.elastic,tight-8-95,ns,<=,2000
rmm.elastic,tight-8-95,failures_in_a_million,<=,0
rmm.cached,streams-8,ns,<=,60
rmm.cached,threads-16,ns,<=,8
rmm.cached,threads-16,p999_ns,<=,1.3*rmm.pool
rmm.cached,threads-64-200,ns,<=,8
rmm.tracking,adaptor-16,ns,<=,100
rmm.tracking_stacks,adaptor-16,ns,<=,100
)";

}  // namespace compare
