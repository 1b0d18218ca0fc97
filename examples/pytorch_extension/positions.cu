// SPDX-License-Identifier: Apache-2.0
//
// This file does not include PyTorch, so that nvcc need not compile its headers.

#include "positions.hpp"

#include <rmm/detail/error.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>

#include <cstddef>

std::int64_t find_positions(bool const* mask, std::int64_t size, std::int64_t* positions, rmm::cuda_stream_view stream)
{
  // CUB returns the size of its temporary memory. This memory and the count come from the current resource, in the order of `stream`.
  thrust::counting_iterator<std::int64_t> const all{0};
  rmm::device_scalar<std::int64_t> count{stream};
  std::size_t bytes{0};
  RMM_CUDA_TRY(cub::DeviceSelect::Flagged(nullptr, bytes, all, mask, positions, count.data(), size, stream.value()));
  rmm::device_buffer temporary{bytes, stream};
  RMM_CUDA_TRY(
    cub::DeviceSelect::Flagged(temporary.data(), bytes, all, mask, positions, count.data(), size, stream.value()));
  return count.value(stream);
}
