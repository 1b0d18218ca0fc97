// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/c/rmm.h>

namespace rmm_c {

/// Makes rmm_c_resource_destroy() refuse the resource from now on.
void make_permanent(rmm_c_resource& resource) noexcept;

}  // namespace rmm_c
