// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>

namespace rmm_c {

[[nodiscard]] inline rmm::cuda_stream_view to_stream(void* stream) noexcept
{
  return rmm::cuda_stream_view{static_cast<cudaStream_t>(stream)};
}

}  // namespace rmm_c
