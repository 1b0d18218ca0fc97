// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/cuda_memory_resource.hpp>
