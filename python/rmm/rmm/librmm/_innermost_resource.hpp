// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/device_memory_resource.hpp>

namespace rmm_python {

/// Returns the upstream of `resource` if it is an adaptor of the library, else null. Includes adaptors that only configurations or
/// environment variables make.
[[nodiscard]] rmm::mr::device_memory_resource* upstream_of_adaptor(rmm::mr::device_memory_resource& resource);

/// Returns the resource below all adaptors.
[[nodiscard]] rmm::mr::device_memory_resource& innermost(rmm::mr::device_memory_resource& resource);

}  // namespace rmm_python
