// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/trace_reader.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rmm::tools {

/// The figures of a replay of a trace under a configuration, on simulated devices.
struct replay_figures {
  struct failure {
    std::size_t event{};
    std::uint64_t time_ns{};  ///< time in the trace
    std::uint64_t bytes{};
    std::string text;
  };

  std::string configuration;
  std::optional<failure> first_failure;              ///< the replay ends there
  std::uint64_t peak_live{};                         ///< requested bytes, on all devices together
  std::optional<std::uint64_t> peak_reserved;        ///< bytes taken from the devices; nothing for other memory
  std::optional<std::uint64_t> reserved_at_end;      ///< includes memory that the trace never freed
  std::uint64_t upstream_calls{};                    ///< calls that took memory from a device or gave it back
  double seconds{};                                  ///< time of the whole replay on the host
  std::vector<std::vector<std::uint64_t>> reserved;  ///< for each device, at each requested moment

  /// Returns the share of the peak of reserved memory that exceeds the peak of live memory.
  [[nodiscard]] std::optional<double> fragmentation() const
  {
    if (!peak_reserved || *peak_reserved == 0) { return std::nullopt; }
    auto const unused = *peak_reserved - std::min(*peak_reserved, peak_live);
    return static_cast<double>(unused) / static_cast<double>(*peak_reserved);
  }
};

/// A trace that can be replayed on a simulated machine, under any number of configurations.
class replays {
 public:
  /// `memory` is the size of each device. Throws std::invalid_argument if the trace has too many devices.
  replays(rmm::recorded::recorded_trace const& trace, std::size_t memory);
  ~replays();
  replays(replays const&)            = delete;
  replays& operator=(replays const&) = delete;

  /// Throws std::invalid_argument if the text is not a configuration.
  static void check_configuration(std::string_view configuration);

  /// Records the reserved bytes after the events in `moments`, numbers in ascending order, until the replay fails.
  /// Calls `on_progress` from time to time with the number of replayed events.
  [[nodiscard]] replay_figures replay(std::string const& configuration,
                                      std::vector<std::size_t> const& moments             = {},
                                      std::function<void(std::size_t)> const& on_progress = {});

  static constexpr int most_devices = 64;

  [[nodiscard]] std::size_t events() const;

  /// Returns the devices of the trace, in the order of replay_figures::reserved.
  [[nodiscard]] std::vector<int> const& devices() const;

 private:
  struct content;
  std::unique_ptr<content> content_;
};

}  // namespace rmm::tools
