// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/progress.hpp>
#include <tools/recorded/trace_reader.hpp>
#include <tools/trace/replays.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace rmm::tools {

using rmm::recorded::progress;

/// The configurations that were tried on a trace, and the best of them.
struct advice {
  std::vector<replay_figures> tried;
  std::optional<std::size_t> best;  ///< position in `tried`; nothing if the trace fails under all of them
  std::string why;
};

/// Tries the given configurations; without any, all kinds of pools, and pools of a fixed size, from slightly more than
/// the peak of live memory up to one that is large enough.
///
/// Candidates need at most a tenth more memory than the smallest. The best candidate calls the device least often,
/// because each such call stops the device or the host. If it grows, it is also tried with all its memory as initial
/// size. Every figure is measured.
[[nodiscard]] advice advise(replays& trace, std::vector<std::string> configurations, progress& shown);

/// The events of one device of several.
struct device_trace {
  int device{};
  rmm::recorded::recorded_trace trace;
  std::vector<std::size_t> positions;  ///< positions of its events in the whole trace
};

/// Returns a trace for each device with events, in the order of their numbers.
[[nodiscard]] std::vector<device_trace> by_device(rmm::recorded::recorded_trace const& trace);

/// The advice for each device alone, and one configuration for all devices, because RMM_RESOURCE names only one.
struct device_advice {
  int device{};
  advice given;
};
struct advice_for_devices {
  std::vector<device_advice> devices;
  advice together;
};

/// Returns the advice for one device, from its own trace. Events keep their numbers in the trace of all devices.
[[nodiscard]] device_advice advise(device_trace const& of, advice given);

/// Tries each device's recommended configuration on all devices, until one serves the whole trace. Begins with the
/// device that has most memory in use.
[[nodiscard]] advice_for_devices advise(replays& all, std::vector<device_advice> devices, progress& shown);

/// Return the advice as text for people, and as JSON for programs.
[[nodiscard]] std::string text_of(advice const& given);
[[nodiscard]] std::string text_of(advice_for_devices const& given);
[[nodiscard]] std::string json_of(advice const& given);
[[nodiscard]] std::string json_of(advice_for_devices const& given);

}  // namespace rmm::tools
