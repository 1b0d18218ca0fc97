// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

/// What only Python does with a buffer: fills one that it has made, and gives memory back, without releasing the GIL where that
/// cannot wait.
struct device_buffer_parts {
  /// The device that was current when the buffer was made.
  [[nodiscard]] static int device(device_buffer const& buffer) noexcept { return buffer.device_.value(); }

  /// Makes a new buffer without memory one of `size` bytes for `stream`; `from` is its resource. False if it cannot at once.
  [[nodiscard]] static bool try_fill_at_once(device_buffer& buffer,
                                             std::size_t size,
                                             cuda_stream_view stream,
                                             mr::detail::immediate_resource* from) noexcept
  {
    void* const block = from != nullptr ? from->try_allocate_nonblocking(asked_for(size), stream) : nullptr;
    if (block == nullptr) { return false; }
    buffer.set_stream(stream);
    buffer.block_    = block;
    buffer.data_     = block;
    buffer.capacity_ = size;
    buffer.size_     = size;
    return true;
  }

  /// The same in any case; throws as the constructors do. The device of the buffer is current.
  static void fill(device_buffer& buffer, std::size_t size, cuda_stream_view stream)
  {
    buffer.set_stream(stream);
    buffer.allocate(size);
  }

  /// Gives the memory back to `to`, another face of `resource`. False, and nothing has changed, if it came from elsewhere, or if
  /// that cannot be done at once.
  [[nodiscard]] static bool try_give_back_at_once(device_buffer& buffer,
                                                  mr::device_memory_resource& resource,
                                                  mr::detail::immediate_resource& to) noexcept
  {
    if (buffer.block_ == nullptr) { return true; }
    if (buffer.resource_ != device_async_resource_ref{resource} ||
        !to.try_deallocate_nonblocking(
          buffer.block_, asked_for(buffer.block_size(buffer.capacity_)), buffer.stream_)) {
      return false;
    }
    buffer.block_    = nullptr;
    buffer.data_     = nullptr;
    buffer.capacity_ = 0;
    buffer.size_     = 0;
    return true;
  }

 private:
  /// What a reference to a resource, by which buffers allocate else, asks the resource for: adaptors count it.
  [[nodiscard]] static std::size_t asked_for(std::size_t bytes) noexcept
  {
    return mr::detail::size_when_allocated(bytes, alignof(std::max_align_t));  // 0 if it wraps, which nothing serves at once
  }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
