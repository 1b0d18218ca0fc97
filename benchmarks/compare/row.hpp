// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/plugin.hpp>
#include <benchmarks/compare/workload.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace compare {

/// A named number of a row. The name includes the unit: ns (nanoseconds per operation), p99_ns, mean_share, syncs.
struct figure {
  std::string name;
  double value;
};
using figures = std::vector<figure>;

/// The settings of all rows.
struct settings {
  double seconds{0.3};               ///< least time that the clock runs
  std::size_t pool_bytes{16 * gib};  ///< size of the pools, where the row names no other
  int seeds{5};                      ///< random sequences of the rows frag-*
};

/// A workload and its figures. The first figure is the row's main one.
struct row {
  std::string name;
  std::string title;
  unsigned needs;      ///< set of plugin_feature
  bool needs_kernels;  ///< whether it launches kernels
  std::function<figures(candidate const&, settings const&)> run;
};

/// Returns all rows in display order. `threads` are the thread counts of the rows threads-T.
std::vector<row> make_rows(int devices, std::vector<unsigned> const& threads);

/// The parts of make_rows().
std::vector<row> make_one_thread_rows();
std::vector<row> make_thread_rows(int devices, std::vector<unsigned> const& threads);
std::vector<row> make_stream_rows();
std::vector<row> make_memory_rows();
std::vector<row> make_load_rows();

}  // namespace compare
