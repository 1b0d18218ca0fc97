// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/recorded_file.hpp>

#include <ostream>

namespace rmm::tools {

/// Writes the trace as JSON of Chrome's trace events, for ui.perfetto.dev: live bytes of each device as counters, allocations as slices,
/// failures as instants.
void export_perfetto(rmm::recorded::recorded_file const& file, std::ostream& out);

/// Writes the trace as a pickle of protocol 4 with the structure of torch.cuda.memory._snapshot(), for pytorch.org/memory_viz.
void export_torch(rmm::recorded::recorded_file const& file, std::ostream& out);

/// Writes the trace as a log of logging_resource_adaptor, with one more column if there are several devices.
void export_csv(rmm::recorded::recorded_file const& file, std::ostream& out);

}  // namespace rmm::tools
