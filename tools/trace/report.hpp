// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/recorded_file.hpp>
#include <tools/trace/lifetimes.hpp>
#include <tools/trace/replays.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rmm::tools {

/// The document that the report page shows; see docs/traces.md.
///
/// Its size does not grow with the trace beyond a bound of some MB.
class report {
 public:
  /// The arguments have to outlive the report. `name` and `bytes` are those of the file.
  report(rmm::recorded::recorded_file const& file, std::string name, std::uint64_t bytes);

  /// Returns the numbers of the events at which the timelines have points, in ascending order.
  [[nodiscard]] std::vector<std::size_t> moments() const;

  /// Adds a replay to the document. The first one gives the reserved memory, if the file does not have it.
  void add(replay_figures figures) { replays_.push_back(std::move(figures)); }

  /// Returns the document as JSON.
  [[nodiscard]] std::string document() const;

  static constexpr std::size_t most_points = 8192;  // of a timeline

 private:
  class device;

  /// A device, its events, and those at which the timeline has points.
  struct device_events {
    int device{};
    std::vector<std::uint32_t> events;
    std::vector<std::uint32_t> points;
  };

  /// Returns the first and the last event, and between them the events with the least and the most live bytes of each slice.
  [[nodiscard]] std::vector<std::uint32_t> points_of(std::vector<std::uint32_t> const& events) const;

  rmm::recorded::recorded_file const& file_;
  std::string name_;
  std::uint64_t bytes_;
  lifetimes lifetimes_;
  std::uint64_t begin_ns_{};
  std::vector<device_events> devices_;
  std::vector<std::string> streams_;            // to show
  std::vector<std::uint32_t> stream_of_place_;  // in streams_
  std::vector<replay_figures> replays_;
};

/// Returns the page with the document. Throws std::logic_error if the template has no place for it.
[[nodiscard]] std::string page_of(std::string_view page_template, std::string_view document);

}  // namespace rmm::tools
