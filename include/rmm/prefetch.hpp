// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/prefetch.hpp>
#include <rmm/detail/export.hpp>

#include <cuda/std/span>

#include <cstddef>

namespace RMM_NAMESPACE {

/// Queues on `stream` the migration of `size` bytes of managed memory to `device`; cudaCpuDeviceId names the host.
///
/// Does nothing if the memory is of a kind that does not migrate, or if `size` is 0. Throws cuda_error on other failures.
///
/// @code{.cpp}
/// rmm::mr::managed_memory_resource managed;
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, managed};
/// rmm::prefetch(buffer.data(), buffer.size(), rmm::get_current_cuda_device(), rmm::cuda_stream_default);
/// @endcode
RMM_ALWAYS_INLINE void prefetch(void const* ptr, std::size_t size, cuda_device_id device, cuda_stream_view stream)
{
  detail::prefetch_memory(ptr, size, device.value(), stream.value());
}

/// Queues on `stream` the migration of the elements of `data` to `device`.
template <class T>
RMM_ALWAYS_INLINE void prefetch(::cuda::std::span<T const> data, cuda_device_id device, cuda_stream_view stream)
{
  prefetch(data.data(), data.size_bytes(), device, stream);
}

}  // namespace RMM_NAMESPACE
