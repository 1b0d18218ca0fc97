// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/sam_headroom_memory_resource.hpp>  // IWYU pragma: export
