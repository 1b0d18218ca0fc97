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

/// Configurations that were tried on a trace, and which of them is the best for it.
struct advice {
  std::vector<replay_figures> tried;
  std::optional<std::size_t> best;  ///< in `tried`; nothing if the trace fails under all of them
  std::string why;
};

/// Tries configurations: those given or, if there are none, all kinds of pools, and pools of a fixed size, from little
/// more than what was in use at most up to one that is large enough.
///
/// The best one is, of those that need at most a tenth more memory than the most frugal one, that which asks the device least
/// often: each such call stops the device or the host. If it grows, the same with as much memory from the start is tried. Every
/// figure is measured.
[[nodiscard]] advice advise(replays& trace, std::vector<std::string> configurations, progress& shown);

/// What happened on one device of several.
struct device_trace {
  int device{};
  rmm::recorded::recorded_trace trace;
  std::vector<std::size_t> positions;  ///< of its events, in the trace of all
};

/// One for each device that has events, in the order of their numbers.
[[nodiscard]] std::vector<device_trace> by_device(rmm::recorded::recorded_trace const& trace);

/// The same for each device by itself, and one configuration that serves all of them, for RMM_RESOURCE has only one.
struct device_advice {
  int device{};
  advice given;
};
struct advice_for_devices {
  std::vector<device_advice> devices;
  advice together;
};

/// What a device is to have, of what was found for its own trace. Names events by their numbers in the trace of all.
[[nodiscard]] device_advice advise(device_trace const& of, advice given);

/// Tries what the devices are to have on all of them, that of the device with most in use first, until one serves the whole
/// trace.
[[nodiscard]] advice_for_devices advise(replays& all, std::vector<device_advice> devices, progress& shown);

/// For people, and for programs.
[[nodiscard]] std::string text_of(advice const& given);
[[nodiscard]] std::string text_of(advice_for_devices const& given);
[[nodiscard]] std::string json_of(advice const& given);
[[nodiscard]] std::string json_of(advice_for_devices const& given);

}  // namespace rmm::tools
