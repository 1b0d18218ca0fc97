// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/row.hpp>

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace compare {

/// What a row gave for an allocator.
struct result {
  std::string row;
  std::string allocator;
  figures values;
  std::string failure;  ///< why there are no values, if there should be
};

/// The figure of that name; nothing if it is not there.
std::optional<double> find_figure(figures const& values, std::string const& name);

/// Medians of the figures of several runs, which have the same names in the same order. Requires a run.
figures medians(std::vector<figures> const& runs);

/// A table: a line for each figure of each row, a column for each allocator. Failures are listed below it.
void write_table(std::ostream& out, std::vector<result> const& results);

/// allocator,row,figure,value
void write_csv(std::ostream& out, std::vector<result> const& results);

/// What a figure has to reach.
struct target {
  enum class relation { at_most, at_least };
  enum class base {
    number,
    peers,    ///< the best of the other allocators that stand for something
    perfect,  ///< what `perfect packing` has in the same row
    other     ///< what the allocator `other` has in the same row
  };

  std::string allocator;
  std::string row;  ///< * is every row
  std::string figure;
  relation how;
  base relative_to;
  double limit;  ///< or what is added to the base; what that of another allocator is multiplied by
  std::string other{};
};

/// Reads rows `allocator,row,figure,relation,limit` below a header; relation is <= or >=, limit a number, `peers` or
/// `perfect`, these two perhaps with a number added or subtracted, or `NUMBER*ALLOCATOR`. Lines that begin with # are
/// comments. Throws std::runtime_error.
std::vector<target> parse_targets(std::istream& in);

/// What this project asks of itself.
extern char const* const own_targets;

/// Writes a line for each target that was missed, or that has no figure although its row ran. Returns how many there are.
std::size_t judge(std::ostream& out, std::vector<result> const& results, std::vector<target> const& targets);

}  // namespace compare
