// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/polymorphic_allocator.hpp>  // IWYU pragma: export
