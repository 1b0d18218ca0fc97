// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/trace/progress.hpp>
#include <tools/trace/replays.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace rmm::tools {

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

/// For people, and for programs.
[[nodiscard]] std::string text_of(advice const& given);
[[nodiscard]] std::string json_of(advice const& given);

}  // namespace rmm::tools
