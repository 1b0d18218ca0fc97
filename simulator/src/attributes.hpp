// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The attributes of simulated devices: the values of an NVIDIA H200. All functions expect the lock.

#include "world.hpp"

namespace cudasim {

/// Value of an attribute of a device. The runtime's and the driver's numbers are the same. Returns false for an unknown one.
[[nodiscard]] bool find_attribute(device const& d, int attribute, int& value);

/// The device of that number; null, after a misuse report, if it does not exist (cudaErrorInvalidDevice).
[[nodiscard]] device* find_device(call& c, int number);

}  // namespace cudasim
