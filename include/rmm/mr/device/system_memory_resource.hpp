// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/system_memory_resource.hpp>  // IWYU pragma: export
