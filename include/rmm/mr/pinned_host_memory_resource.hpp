// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/aligned.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/pinned_memory.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <memory>  // IWYU pragma: export
#include <string>
#include <typeinfo>

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that allocates page-locked host memory with cudaHostAlloc. Use it for memory that host and devices share.
///
/// Ignores streams; all instances are equal. Returns a null pointer for 0 bytes. Calls with an alignment get that alignment, however
/// large. These calls do not access the object, because programs may destroy it before a pool over it.
///
/// @code{.cpp}
/// rmm::mr::pinned_host_memory_resource pinned;
/// void* const staging = pinned.allocate(1000);
/// pinned.deallocate(staging, 1000);
/// @endcode
class pinned_host_memory_resource final : public device_memory_resource {
 public:
  using device_memory_resource::allocate;
  using device_memory_resource::allocate_async;
  using device_memory_resource::deallocate;
  using device_memory_resource::deallocate_async;

  /// Allocates memory that host and devices may use immediately. Throws bad_alloc unless `alignment` is a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment) { return allocate_aligned(bytes, alignment); }

  /// Allocates memory that host and devices may use immediately; ignores the stream.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view)
  {
    return allocate_aligned(bytes, alignment);
  }

  /// Frees memory immediately. All work that uses it has to be done.
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    deallocate_aligned(ptr, bytes, alignment);
  }

  /// Frees memory immediately. Ignores the stream and does not wait for it: all work that uses the memory has to be done.
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view) noexcept
  {
    deallocate_aligned(ptr, bytes, alignment);
  }

  friend void get_property(pinned_host_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view) override
  {
    return allocate_aligned(bytes, CUDA_ALLOCATION_ALIGNMENT);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view) override
  {
    deallocate_aligned(ptr, bytes, CUDA_ALLOCATION_ALIGNMENT);
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    return typeid(other) == typeid(pinned_host_memory_resource);
  }

  [[nodiscard]] static void* allocate_aligned(std::size_t bytes, std::size_t alignment)
  {
    if (!is_supported_alignment(alignment)) { throw_bad_alignment(alignment); }
    if (bytes == 0) { return nullptr; }
    auto const at_least = alignment < CUDA_ALLOCATION_ALIGNMENT ? CUDA_ALLOCATION_ALIGNMENT : alignment;
    return rmm::detail::aligned_host_allocate(bytes, at_least, rmm::detail::allocate_pinned_memory);
  }

  // Frees the pointer that CUDA returned, which is stored next to the memory. So the alignment does not matter.
  static void deallocate_aligned(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    rmm::detail::aligned_host_deallocate(ptr, bytes, alignment, rmm::detail::free_pinned_memory);
  }

  [[noreturn]] RMM_COLD static void throw_bad_alignment(std::size_t alignment)
  {
    throw bad_alloc{"the alignment is " + std::to_string(alignment) + ", but has to be a power of two"};
  }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
