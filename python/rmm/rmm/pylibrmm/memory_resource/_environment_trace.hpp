// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "_owned_resources.hpp"
#include "environment_trace.hpp"

#include <rmm/mr/device_memory_resource.hpp>

#include <memory>
#include <string>

namespace rmm_python {

using rmm::tools::environment_trace;

/// A resource over another, which ends after it, and writes to the trace of the environment.
[[nodiscard]] inline resource_ptr make_environment_trace(resource_ptr const& upstream, int device)
{
  struct layer {
    resource_ptr upstream;
    environment_trace resource;
  };
  std::shared_ptr<layer> const made{new layer{upstream, {upstream.get(), device}}};
  return {made, &made->resource};
}

inline void flush_environment_trace(rmm::mr::device_memory_resource* resource) noexcept
{
  static_cast<environment_trace*>(resource)->flush();
}

[[nodiscard]] inline std::string file_of_environment_trace(rmm::mr::device_memory_resource* resource)
{
  return static_cast<environment_trace*>(resource)->file_name();
}

}  // namespace rmm_python
