// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/cuda_async_managed_memory_resource.hpp>  // IWYU pragma: export
