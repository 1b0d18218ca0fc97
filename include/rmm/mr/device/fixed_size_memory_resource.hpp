// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/fixed_size_memory_resource.hpp>  // IWYU pragma: export
