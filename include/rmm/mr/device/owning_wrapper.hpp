// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/owning_wrapper.hpp>  // IWYU pragma: export
