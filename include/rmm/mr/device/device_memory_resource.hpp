// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/device_memory_resource.hpp>
