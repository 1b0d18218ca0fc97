// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/row.hpp>

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace compare {

/// The figures of one row and one allocator.
struct result {
  std::string row;
  std::string allocator;
  figures values;
  std::string failure;  ///< why the row failed; empty if it did not
};

/// Returns the figure with this name, if there is one.
std::optional<double> find_figure(figures const& values, std::string const& name);

/// Returns the median of each figure over several runs. All runs have figures with the same names in the same order. Requires
/// at least one run.
figures medians(std::vector<figures> const& runs);

/// Writes a table with a line for each figure of each row, and a column for each allocator. Failures are listed below it.
void write_table(std::ostream& out, std::vector<result> const& results);

/// Writes CSV with the columns allocator, row, figure, value.
void write_csv(std::ostream& out, std::vector<result> const& results);

/// A limit that a figure must keep.
struct target {
  enum class relation { at_most, at_least };
  enum class base {
    number,
    peers,    ///< the best figure of the other libraries in the row
    perfect,  ///< the figure of `perfect packing` in the row
    other     ///< the figure of the allocator `other` in the row
  };

  std::string allocator;
  std::string row;  ///< "*" for every row
  std::string figure;
  relation how;
  base relative_to;
  double limit;  ///< the limit; added to the base for `peers` and `perfect`, a factor for `other`
  std::string other{};
};

/// Reads lines `allocator,row,figure,relation,limit` below a header. The relation is <= or >=. The limit is a number; `peers`
/// or `perfect`, optionally with a number added or subtracted; or `NUMBER*ALLOCATOR`. Lines that begin with # are comments.
/// Throws std::runtime_error.
std::vector<target> parse_targets(std::istream& in);

/// The targets of this project, in the form of parse_targets().
extern char const* const own_targets;

/// Writes a line for each target that was missed, or whose row ran without the figure. Returns the number of those targets.
std::size_t judge(std::ostream& out, std::vector<result> const& results, std::vector<target> const& targets);

}  // namespace compare
