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
#include <typeinfo>

namespace RMM_NAMESPACE {
namespace mr {

/// Allocates page-locked host memory, which host and devices can use, with cudaHostAlloc.
///
/// Ignores streams; all instances are equal. Zero bytes are a null pointer. Calls that name an
/// alignment get it, also above what other resources give. They read nothing of the object: pools over it call these, and
/// programs destroy it before the pool.
class pinned_host_memory_resource final : public device_memory_resource {
 public:
  using device_memory_resource::allocate;
  using device_memory_resource::allocate_async;
  using device_memory_resource::deallocate;
  using device_memory_resource::deallocate_async;

  /// Memory that can be used at once, on the host too. Throws bad_alloc unless `alignment` is a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment) { return allocate_aligned(bytes, alignment); }

  /// The same, whatever the stream.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view)
  {
    return allocate_aligned(bytes, alignment);
  }

  /// Gives memory back at once: all work with it has to be done.
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    deallocate_aligned(ptr, bytes, alignment);
  }

  /// The same, whatever the stream: does not wait for its work.
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
    if (!is_supported_alignment(alignment)) { throw_bad_alignment(); }
    if (bytes == 0) { return nullptr; }
    auto const at_least = alignment < CUDA_ALLOCATION_ALIGNMENT ? CUDA_ALLOCATION_ALIGNMENT : alignment;
    return rmm::detail::aligned_host_allocate(bytes, at_least, rmm::detail::allocate_pinned_memory);
  }

  // The pointer that came from CUDA is kept next to the memory, so the alignment does not matter.
  static void deallocate_aligned(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    rmm::detail::aligned_host_deallocate(ptr, bytes, alignment, rmm::detail::free_pinned_memory);
  }

  [[noreturn]] RMM_COLD static void throw_bad_alignment() { throw bad_alloc{"the alignment is not a power of two"}; }
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
