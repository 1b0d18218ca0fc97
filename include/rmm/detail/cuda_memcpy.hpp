// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// Queues a copy of `count` bytes between host and device memory, in any direction, on `stream`. Returns the result of CUDA. For programs
/// written for later releases of RMM.
[[nodiscard]] inline cudaError_t memcpy_async(void* dst,
                                              void const* src,
                                              std::size_t count,
                                              cuda_stream_view stream) noexcept
{
  return try_copy_async(dst, src, count, stream.value());
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
