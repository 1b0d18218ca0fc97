// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/cuda_memory_resource.hpp>
