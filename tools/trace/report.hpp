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
/// Its size is bounded by some MB, however long the trace is.
class report {
 public:
  /// The arguments have to outlive the report. `name` and `bytes` describe the file.
  report(rmm::recorded::recorded_file const& file, std::string name, std::uint64_t bytes);

  /// Returns the numbers of the events at which the timelines have points, in ascending order.
  [[nodiscard]] std::vector<std::size_t> moments() const;

  /// Adds a replay to the document. If the file lacks the reserved memory, the first replay supplies it.
  void add(replay_figures figures) { replays_.push_back(std::move(figures)); }

  /// Returns the document as JSON.
  [[nodiscard]] std::string document() const;

  static constexpr std::size_t most_points = 8192;  // of a timeline

 private:
  class device;

  /// A device, its events, and the events that are points of the timeline.
  struct device_events {
    int device{};
    std::vector<std::uint32_t> events;
    std::vector<std::uint32_t> points;
  };

  /// Returns the first and the last event, and for each slice between them the events with the least and the most live
  /// bytes.
  [[nodiscard]] std::vector<std::uint32_t> points_of(std::vector<std::uint32_t> const& events) const;

  rmm::recorded::recorded_file const& file_;
  std::string name_;
  std::uint64_t bytes_;
  lifetimes lifetimes_;
  std::uint64_t begin_ns_{};
  std::vector<device_events> devices_;
  std::vector<std::string> streams_;            // as they are shown
  std::vector<std::uint32_t> stream_of_place_;  // in streams_
  std::vector<replay_figures> replays_;
};

/// Returns the page with the document. Throws std::logic_error if the template has no place for it.
[[nodiscard]] std::string page_of(std::string_view page_template, std::string_view document);

}  // namespace rmm::tools
