// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/prefetch_resource_adaptor.hpp>  // IWYU pragma: export
