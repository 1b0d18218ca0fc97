// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/mr/per_device_resource.hpp>
