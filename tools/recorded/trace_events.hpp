// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/log_parser.hpp>
#include <tools/recorded/recorded_file.hpp>
#include <tools/recorded/trace_reader.hpp>

#include <rmm/detail/trace/format.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rmm::recorded {

/// The allocations and frees of a program, from any kind of file.
struct logged_events {
  std::vector<rmm::detail::event> events;
  std::uint64_t lost{};  ///< events that could not be written
  std::string damage;    ///< the part that could not be read; empty if none
};

/// Returns the events of a binary trace.
inline logged_events events_of(recorded_trace const& trace)
{
  using rmm::detail::action;
  logged_events result;
  result.lost   = trace.lost;
  result.damage = damage_of(trace);
  result.events.reserve(trace.events.size());
  for (auto const& each : trace.events) {
    auto const what   = each.what == kind::allocate ? action::ALLOCATE
                        : each.what == kind::free   ? action::FREE
                                                    : action::ALLOCATE_FAILURE;
    auto const& where = trace.places[each.place];
    auto const thread = static_cast<std::size_t>(trace.threads[each.thread]);
    auto& event       = result.events.emplace_back(thread,
                                             what,
                                             std::size_t{each.bytes},
                                             std::uintptr_t{each.address},
                                             std::uintptr_t{where.stream},
                                             result.events.size());
    event.device      = where.device;
    event.stream_id   = where.stream_id;
    event.time_ns     = each.time_ns;
  }
  return result;
}

/// Reads a log of logging_resource_adaptor, a trace of trace_resource_adaptor or a snapshot of PyTorch's memory. Throws
/// like read_recorded_file().
inline logged_events read_events(std::string const& path) { return events_of(read_recorded_file(path).trace); }

}  // namespace rmm::recorded
