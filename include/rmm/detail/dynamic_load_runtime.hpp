// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/async_alloc.hpp>
#include <rmm/detail/cuda/dynamic_load_runtime.hpp>
#include <rmm/detail/runtime_capabilities.hpp>
