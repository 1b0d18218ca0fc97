// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

namespace rmm_c {

/// From now on rmm_c_resource_destroy() refuses the resource.
void make_permanent(rmm_c_resource& resource) noexcept;

}  // namespace rmm_c
