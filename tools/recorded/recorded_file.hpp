// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/log_parser.hpp>
#include <tools/recorded/trace_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rmm::recorded {

/// A range of memory that an allocator held on a device, from one event until another.
struct recorded_region {
  int device{};
  std::uint64_t address{};
  std::uint64_t bytes{};
  std::size_t begin{};  ///< number of the first event with the region
  std::size_t end{};    ///< number of the first event without it; the number of all events if it stayed
};

/// The allocations and frees of a program, from any kind of file.
struct recorded_file {
  recorded_trace trace;
  std::string format;                    ///< "rmm trace 1", "csv" or "pytorch snapshot"
  std::vector<recorded_region> regions;  ///< the allocator's memory; only in snapshots of PyTorch
};

/// Describes the part of a trace that could not be read; empty if the trace is complete.
[[nodiscard]] std::string damage_of(recorded_trace const& trace);

/// Reads a trace of trace_resource_adaptor, a log of logging_resource_adaptor or a snapshot of PyTorch's memory. A time
/// earlier than the previous one, as in a broken file, becomes the previous one. Throws bad_trace or logic_error, with
/// the offset or the line, for other or broken files, and std::runtime_error if the file cannot be read.
[[nodiscard]] recorded_file read_recorded_file(std::string const& path);

/// Returns the events of a log.
[[nodiscard]] recorded_trace trace_of_log(std::vector<rmm::detail::event> const& events);

/// Reads a snapshot that torch.cuda.memory._dump_snapshot() wrote; messages use `name`. Memory that was allocated
/// before the history began appears as allocated by the first events. Throws bad_trace.
[[nodiscard]] recorded_file read_torch_snapshot(std::string_view content, std::string const& name);

}  // namespace rmm::recorded
