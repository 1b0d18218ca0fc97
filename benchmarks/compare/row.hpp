// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/plugin.hpp>
#include <benchmarks/compare/workload.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace compare {

/// A number that a row gives; the unit is part of the name: ns (nanoseconds an operation), p99_ns, mean_share, syncs.
struct figure {
  std::string name;
  double value;
};
using figures = std::vector<figure>;

/// What all rows share.
struct settings {
  double seconds{0.3};               ///< that the clock runs, at least
  std::size_t pool_bytes{16 * gib};  ///< of the pools of rows that name no other size
  int seeds{5};                      ///< sequences of the rows about shares
};

/// One row of the comparison: a workload and what is measured of it. The first figure is the row's own.
struct row {
  std::string name;
  std::string title;
  unsigned needs;      ///< set of plugin_feature
  bool needs_kernels;  ///< and a device that runs them
  std::function<figures(candidate const&, settings const&)> run;
};

/// All rows, in the order in which they are shown; `threads`: of the rows threads-T.
std::vector<row> make_rows(int devices, std::vector<unsigned> const& threads);

/// Parts of make_rows().
std::vector<row> make_one_thread_rows();
std::vector<row> make_thread_rows(int devices, std::vector<unsigned> const& threads);
std::vector<row> make_stream_rows();
std::vector<row> make_memory_rows();
std::vector<row> make_load_rows();

}  // namespace compare
