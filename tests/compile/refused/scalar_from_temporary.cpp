// SPDX-License-Identifier: Apache-2.0
#include <rmm/device_scalar.hpp>

void set(rmm::device_scalar<int>& scalar) { scalar.set_value_async(7, rmm::cuda_stream_default); }
