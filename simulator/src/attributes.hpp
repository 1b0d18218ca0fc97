// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the simulated devices are: the values of an NVIDIA H200. All functions expect the lock.

#include "world.hpp"

namespace cudasim {

/// Value of an attribute of a device. The runtime's and the driver's numbers are the same. Returns false for an unknown one.
[[nodiscard]] bool find_attribute(device const& d, int attribute, int& value);

/// Device of that number, or null after a misuse report; the call then answers cudaErrorInvalidDevice.
[[nodiscard]] device* find_device(call& c, int number);

}  // namespace cudasim
