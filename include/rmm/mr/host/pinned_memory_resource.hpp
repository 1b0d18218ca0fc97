// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/aligned.hpp>
#include <rmm/detail/cuda/pinned_memory.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/host_alignment.hpp>
#include <rmm/mr/host/host_memory_resource.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// Allocates page-locked host memory, which host and devices can use.
///
/// Also serves where a stream-ordered device resource is wanted; it ignores the streams. An alignment
/// that is no power of two counts as the default one. Zero bytes are a null pointer.
class pinned_memory_resource final : public host_memory_resource {
 public:
  using host_memory_resource::allocate;
  using host_memory_resource::deallocate;

  /// allocate(), whatever the stream.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view)
  {
    return allocate(bytes, alignment);
  }

  void* allocate_async(std::size_t bytes, cuda_stream_view) { return allocate(bytes); }

  /// deallocate(), whatever the stream: does not wait for its work, which has to be done.
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view)
  {
    deallocate(ptr, bytes, alignment);
  }

  void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view) { deallocate(ptr, bytes); }

  /// The same in the spelling of 25.10.
  void* allocate(cuda_stream_view, std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT)
  {
    return allocate(bytes, alignment);
  }

  /// deallocate_async() in the spelling of 25.10.
  void deallocate(cuda_stream_view, void* ptr, std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT)
  {
    deallocate(ptr, bytes, alignment);
  }

  friend void get_property(pinned_memory_resource const&, ::cuda::mr::device_accessible) noexcept {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT) override
  {
    if (bytes == 0) { return nullptr; }
    return rmm::detail::aligned_host_allocate(
      bytes, detail::host_alignment(alignment), rmm::detail::allocate_pinned_memory);
  }

  void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT) override
  {
    rmm::detail::aligned_host_deallocate(
      ptr, bytes, detail::host_alignment(alignment), rmm::detail::free_pinned_memory);
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
