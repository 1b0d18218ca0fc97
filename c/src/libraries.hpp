// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

namespace rmm_c {

/// Makes the driver serve libraries again on a device, if the resource does. Requires list_mutex().
void end_serving_locked(rmm_c_resource const& resource, int device) noexcept;

}  // namespace rmm_c
