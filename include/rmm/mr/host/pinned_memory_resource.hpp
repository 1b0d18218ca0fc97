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

/// A host resource that allocates page-locked memory, which host and devices can use. Use it where code takes a host_memory_resource.
///
/// It can also be used as a stream-ordered device resource, but ignores streams. Uses the default alignment if the requested one is not
/// a power of two. Returns a null pointer for 0 bytes.
///
/// @code{.cpp}
/// rmm::mr::pinned_memory_resource pinned;
/// void* const staging = pinned.allocate(1000);
/// pinned.deallocate(staging, 1000);
/// @endcode
class pinned_memory_resource final : public host_memory_resource {
 public:
  using host_memory_resource::allocate;
  using host_memory_resource::deallocate;

  /// Allocates as allocate() does; ignores the stream.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view)
  {
    return allocate(bytes, alignment);
  }

  void* allocate_async(std::size_t bytes, cuda_stream_view) { return allocate(bytes); }

  /// Frees as deallocate() does. Ignores the stream and does not wait for it: all work that uses the memory has to be done.
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view)
  {
    deallocate(ptr, bytes, alignment);
  }

  void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view) { deallocate(ptr, bytes); }

  /// Allocates as allocate_async() does; a function of 25.10.
  void* allocate(cuda_stream_view, std::size_t bytes, std::size_t alignment = RMM_DEFAULT_HOST_ALIGNMENT)
  {
    return allocate(bytes, alignment);
  }

  /// Frees as deallocate_async() does; a function of 25.10.
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
