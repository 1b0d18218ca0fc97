// SPDX-License-Identifier: Apache-2.0
#include <rmm/device_uvector.hpp>

void set(rmm::device_uvector<int>& vector) { vector.set_element_async(0, 7, rmm::cuda_stream_default); }
