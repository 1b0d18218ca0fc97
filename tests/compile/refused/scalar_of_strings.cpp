// SPDX-License-Identifier: Apache-2.0
#include <rmm/device_scalar.hpp>

#include <string>

rmm::device_scalar<std::string> scalar{rmm::cuda_stream_default};
