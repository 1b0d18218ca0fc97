// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/cuda/stream_device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

/// @file
/// Functions for copies and waits across devices. The handle of a default stream means a stream of the current device, so these
/// functions take the device to use. A negative number is the current device. They do not change the current device.

namespace rmm_python {

/// Returns the device of the memory; the current device if `ptr` is null.
[[nodiscard]] inline int device_of(void const* ptr)
{
  if (ptr == nullptr || rmm::detail::sees_one_device()) { return rmm::detail::current_device(); }
  cudaPointerAttributes attributes{};
  RMM_CUDA_TRY(cudaPointerGetAttributes(&attributes, ptr));
  return attributes.device >= 0 ? attributes.device : rmm::detail::current_device();
}

/// Returns whether two handles name one stream, given that default streams are on one device.
[[nodiscard]] inline bool is_same_stream(cudaStream_t lhs, cudaStream_t rhs) noexcept
{
  return lhs == rhs || (rmm::detail::is_legacy_stream(lhs) && rmm::detail::is_legacy_stream(rhs));
}

/// Orders later work of `waiting` after the work that `awaited` has now. Each device is used only if its stream is a default
/// stream.
inline void make_wait(cudaStream_t waiting, int waiting_device, cudaStream_t awaited, int awaited_device)
{
  bool const awaits_default = rmm::detail::is_default_stream(awaited);
  if (is_same_stream(waiting, awaited) && (!awaits_default || waiting_device == awaited_device)) { return; }
  auto const device = awaits_default ? awaited_device : rmm::detail::device_of_stream(awaited);
  rmm::detail::device_scope const on_awaited_device{device};  // needed to record an event on one of its streams
  rmm::detail::owned_event event;
  bool is_ordered = event.try_record(awaited);
  if (is_ordered) {
    rmm::detail::device_scope const on_waiting_device{rmm::detail::is_default_stream(waiting) ? waiting_device : -1};
    is_ordered = event.try_make_wait(waiting);
  }
  if (!is_ordered) { RMM_CUDA_TRY(cudaStreamSynchronize(awaited)); }
}

/// Copies between any two places. `device` is used only if `stream` is a default stream. Waits for the stream if `waits`, and
/// always for the legacy default stream.
inline void copy_in_order(
  void* destination, void const* source, std::size_t size, rmm::cuda_stream_view stream, int device, bool waits)
{
  bool const is_default = stream.is_default() || stream.is_per_thread_default();
  rmm::detail::device_scope const on_device{is_default ? device : -1};
  rmm::detail::copy_async(destination, source, size, stream.value());
  if (waits || stream.is_default()) { stream.synchronize(); }
}

/// Makes a copy of a buffer on its device. Waits for the legacy default stream.
[[nodiscard]] inline std::unique_ptr<rmm::device_buffer> copy_of(rmm::device_buffer const& source,
                                                                 rmm::cuda_stream_view stream,
                                                                 rmm::mr::device_memory_resource* resource)
{
  rmm::detail::device_scope const on_device{source.device().value()};
  auto copy = std::make_unique<rmm::device_buffer>(source, stream, resource);
  if (stream.is_default()) { stream.synchronize(); }
  return copy;
}

}  // namespace rmm_python
