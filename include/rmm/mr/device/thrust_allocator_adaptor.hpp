// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/thrust_allocator_adaptor.hpp>  // IWYU pragma: export
