// SPDX-License-Identifier: Apache-2.0
#include <rmm/device_uvector.hpp>

#include <string>

rmm::device_uvector<std::string> vector(1, rmm::cuda_stream_default);
