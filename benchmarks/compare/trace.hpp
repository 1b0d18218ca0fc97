// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/row.hpp>

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace compare {

struct trace_event {
  std::uint32_t block;
  std::uint32_t stream;
  std::uint64_t bytes;
  bool frees;
};

/// The allocations and frees of a program, in the order of the host's calls.
///
/// Blocks and streams are numbered from 0. Each block is allocated once, and then freed at most once.
struct trace {
  std::vector<trace_event> events;
  std::size_t blocks{};
  std::size_t streams{};
  std::size_t peak_bytes{};  ///< peak of the live bytes
};

/// Reads lines `op,block,bytes,stream` below a header; op is `a` or `f`. Throws std::runtime_error with the line number if the
/// text is not a trace.
trace parse_trace(std::istream& in);

/// Reads a trace from a file. Runs gzip to read names that end in .gz. Throws std::runtime_error.
trace read_trace(std::string const& path);

/// Replays a trace on as many streams as it has. Returns the index of the first event that fails, or the number of events.
std::size_t replay(trace const& events, allocator const& memory, std::vector<stream> const& streams);

/// Returns the smallest pool size that can replay a trace, to within 1/2000 of the trace's peak; 0 if eight times the peak is
/// too small.
std::size_t smallest_pool(trace const& events, candidate const& c);

/// Makes the row `trace-<name of the file>`: time per event, and the smallest pool over the peak of live bytes.
row make_trace_row(std::string const& path);

}  // namespace compare
