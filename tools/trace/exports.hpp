// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/recorded_file.hpp>

#include <ostream>

namespace rmm::tools {

/// The trace as JSON of Chrome's trace events, which ui.perfetto.dev opens: live bytes of each device as counters, allocations
/// as slices from their beginnings to their ends, failures as instants.
void export_perfetto(rmm::recorded::recorded_file const& file, std::ostream& out);

/// The trace as a pickle of protocol 4 with the structure of torch.cuda.memory._snapshot(), which pytorch.org/memory_viz opens.
void export_torch(rmm::recorded::recorded_file const& file, std::ostream& out);

/// The trace as a log of logging_resource_adaptor. Where there are several devices, it has one column more.
void export_csv(rmm::recorded::recorded_file const& file, std::ostream& out);

}  // namespace rmm::tools
