// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/error.hpp>

#include <cuda_runtime_api.h>

namespace rmm_python {

/// The device that memory is on; the current one if there is no memory.
[[nodiscard]] inline int device_of(void const* ptr)
{
  if (ptr == nullptr) { return rmm::detail::current_device(); }
  cudaPointerAttributes attributes{};
  RMM_CUDA_TRY(cudaPointerGetAttributes(&attributes, ptr));
  return attributes.device >= 0 ? attributes.device : rmm::detail::current_device();
}

/// Orders later work of one stream after what another one has now.
inline void make_wait(cudaStream_t waiting, cudaStream_t awaited)
{
  if (waiting == awaited) { return; }
  rmm::detail::owned_event event;
  if (!event.try_record(awaited) || !event.try_make_wait(waiting)) { RMM_CUDA_TRY(cudaStreamSynchronize(awaited)); }
}

}  // namespace rmm_python
