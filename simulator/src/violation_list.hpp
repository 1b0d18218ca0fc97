// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudasim.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace cudasim {

/// What makes two violations one mistake to a reader: what was done wrong, and the places of the program that did it.
struct mistake {
  std::string what;
  void const* first{nullptr};
  void const* second{nullptr};
};

/// Violations, and how often each mistake was made.
///
/// Invariants:
///  I1  the first violations of each mistake are kept, as many as are printed of it
///  I2  further ones are kept while fewer than `most_kept` are; the rest are only counted
class violation_list {
 public:
  /// So many violations of one mistake are printed in full, unless all are asked for.
  static constexpr std::uint64_t printed_in_full = 3;

  /// So many violations are kept, and beyond them the first few of each mistake.
  static constexpr std::size_t most_kept = 100'000;

  /// Adds a violation. Returns how often the mistake was made so far.
  std::uint64_t add(mistake const& by, violation one);

  /// Those that are kept, oldest first.
  [[nodiscard]] std::vector<violation> const& all() const noexcept { return all_; }
  /// How many were added, kept or not.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  void clear() noexcept;

  /// The violations as lines that begin with `indent` and the kind, grouped by mistake, in the order in which the
  /// mistakes were first made. With `in_full`, every kept violation has its line; else the first few of each mistake,
  /// followed by a count of the rest.
  [[nodiscard]] std::string text(std::string const& indent, bool in_full) const;

  /// A line for each mistake whose later violations were not printed when they happened.
  [[nodiscard]] std::vector<std::string> untold() const;

 private:
  struct group {
    std::uint64_t count{0};
    std::vector<std::size_t> kept;  // places in all_
  };

  std::vector<violation> all_;
  std::uint64_t count_{0};
  std::vector<group> groups_;  // in the order of their first members
  std::map<std::tuple<violation::kind, std::string, void const*, void const*>, std::size_t> group_of_;
};

}  // namespace cudasim
