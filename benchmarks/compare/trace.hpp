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

/// What a program allocated and freed, in the order in which its host asked.
///
/// Blocks and streams are numbered from 0; each block is allocated once, and freed at most once, after that.
struct trace {
  std::vector<trace_event> events;
  std::size_t blocks{};
  std::size_t streams{};
  std::size_t peak_bytes{};  ///< most bytes live at a time
};

/// Reads rows `op,block,bytes,stream` below a header; op is `a` or `f`. Throws std::runtime_error, with the number of the
/// line, if the text is not a trace.
trace parse_trace(std::istream& in);

/// The trace of a file; one that ends in .gz is read through gzip. Throws std::runtime_error.
trace read_trace(std::string const& path);

/// Replays a trace, on as many streams as it has. Returns the first event that fails, or the number of events.
std::size_t replay(trace const& events, allocator const& memory, std::vector<stream> const& streams);

/// The smallest pool that a trace can be replayed in, to within 1/2000 of its peak; 0 if eight times the peak is too little.
std::size_t smallest_pool(trace const& events, candidate const& c);

/// The row `trace-<name of the file>`: time an event, and the smallest pool over the peak of live bytes.
row make_trace_row(std::string const& path);

}  // namespace compare
