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

/// Memory that an allocator had from a device for some time, from one event to before another.
struct recorded_region {
  int device{};
  std::uint64_t address{};
  std::uint64_t bytes{};
  std::size_t begin{};  ///< number of the event before which it came
  std::size_t end{};    ///< number of the event before which it went; the number of all events if it did not
};

/// What a program allocated and freed, from whatever kind of file.
struct recorded_file {
  recorded_trace trace;
  std::string format;                    ///< "rmm trace 1", "csv" or "pytorch snapshot"
  std::vector<recorded_region> regions;  ///< what the allocator had; only snapshots of PyTorch say
};

/// What part of a trace could not be read, in words; empty if it is whole.
[[nodiscard]] std::string damage_of(recorded_trace const& trace);

/// Reads a trace of trace_resource_adaptor, a log of logging_resource_adaptor or a snapshot of PyTorch's memory. A time that is
/// earlier than the one before, which a broken file may have, becomes that one. Throws
/// bad_trace or logic_error, with the offset or the line, if it is none or broken, and std::runtime_error if
/// it cannot be read.
[[nodiscard]] recorded_file read_recorded_file(std::string const& path);

/// The events of a log.
[[nodiscard]] recorded_trace trace_of_log(std::vector<rmm::detail::event> const& events);

/// Reads a snapshot, as torch.cuda.memory._dump_snapshot() writes it; `name` is for messages. What was allocated before the
/// history began, and shows in a free or at the end, counts as allocated by the first events. Throws bad_trace.
[[nodiscard]] recorded_file read_torch_snapshot(std::string_view content, std::string const& name);

}  // namespace rmm::recorded
