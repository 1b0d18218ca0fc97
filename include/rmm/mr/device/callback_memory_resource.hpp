// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/callback_memory_resource.hpp>  // IWYU pragma: export
