// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/aligned.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/nvtx/func_range.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/detail/size_rounding.hpp>  // IWYU pragma: export

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {

/// Base of the classes that allocate memory which the device can use.
///
/// Memory is aligned to at least CUDA_ALLOCATION_ALIGNMENT bytes and may be used at once by work on the stream it was
/// allocated on; the caller orders all other use. It is given back with the size it was asked with, on a stream that
/// the work using it is ordered before. Failure to allocate throws out_of_memory, or another bad_alloc if memory is not
/// what is missing; deallocation does not throw.
///
/// A call with an alignment in the order of 24.08, which includes all calls through resource references, rounds the
/// size up to a multiple of that alignment. With use_unrounded_sizes(), RMM_UNROUNDED_SIZES=1 in the environment, or that
/// macro in the file that allocates first, sizes arrive as they were asked, as they do from 25.12 on.
class device_memory_resource {
 public:
  device_memory_resource()                                             = default;
  device_memory_resource(device_memory_resource const&)                = default;
  device_memory_resource(device_memory_resource&&) noexcept            = default;
  device_memory_resource& operator=(device_memory_resource const&)     = default;
  device_memory_resource& operator=(device_memory_resource&&) noexcept = default;
  virtual ~device_memory_resource()                                    = default;

  /// Allocates at least `bytes` bytes, for use on `stream`.
  void* allocate(std::size_t bytes, cuda_stream_view stream = cuda_stream_view{})
  {
    RMM_FUNC_RANGE();
    return do_allocate(bytes, stream);
  }

  /// Gives back what allocate() returned for the same `bytes`.
  void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream = cuda_stream_view{})
  {
    RMM_FUNC_RANGE();
    do_deallocate(ptr, bytes, stream);
  }

  /// The same with an alignment, on the default stream. Throws bad_alloc unless `alignment` is a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment)
  {
    RMM_FUNC_RANGE();
    return allocate_rounded(bytes, alignment, cuda_stream_view{});
  }

  /// Gives back what that returned for the same `bytes` and `alignment`.
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment)
  {
    RMM_FUNC_RANGE();
    deallocate_rounded(ptr, bytes, alignment, cuda_stream_view{});
  }

  /// allocate() in the spelling of resource references. Throws bad_alloc unless `alignment`, where there is one, is a power of
  /// two.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    RMM_FUNC_RANGE();
    return allocate_rounded(bytes, alignment, stream);
  }

  void* allocate_async(std::size_t bytes, cuda_stream_view stream)
  {
    RMM_FUNC_RANGE();
    return do_allocate(bytes, stream);
  }

  /// Gives back what allocate_async() returned for the same `bytes` and, where there was one, `alignment`.
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    RMM_FUNC_RANGE();
    deallocate_rounded(ptr, bytes, alignment, stream);
  }

  void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view stream)
  {
    RMM_FUNC_RANGE();
    do_deallocate(ptr, bytes, stream);
  }

  /// The same in the spelling of 25.10: the size is passed on as it is. Throws bad_alloc unless `alignment` is a power
  /// of two of at most CUDA_ALLOCATION_ALIGNMENT.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    expect_guaranteed(alignment);
    return do_allocate(bytes, cuda_stream_view{});
  }

  /// Gives back what allocate_sync() returned for the same `bytes`.
  void deallocate_sync(void* ptr, std::size_t bytes, [[maybe_unused]] std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    RMM_ASSERT(is_guaranteed(alignment));
    do_deallocate(ptr, bytes, cuda_stream_view{});
  }

  /// allocate_sync() for use on `stream`.
  void* allocate(cuda_stream_view stream, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    expect_guaranteed(alignment);
    return do_allocate(bytes, stream);
  }

  /// Gives back what that returned for the same `bytes`.
  void deallocate(cuda_stream_view stream,
                  void* ptr,
                  std::size_t bytes,
                  [[maybe_unused]] std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    RMM_ASSERT(is_guaranteed(alignment));
    do_deallocate(ptr, bytes, stream);
  }

  /// Whether memory allocated by one of the two resources may be given back to the other.
  [[nodiscard]] bool is_equal(device_memory_resource const& other) const noexcept { return do_is_equal(other); }

  /// is_equal().
  [[nodiscard]] bool operator==(device_memory_resource const& other) const noexcept { return do_is_equal(other); }

  [[nodiscard]] bool operator!=(device_memory_resource const& other) const noexcept { return !do_is_equal(other); }

  friend void get_property(device_memory_resource const&, ::cuda::mr::device_accessible) noexcept {}

 private:
  /// Allocates. `bytes` may be 0.
  virtual void* do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;

  /// Deallocates. Must not throw; not declared noexcept, so that overrides with and without it compile.
  virtual void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) = 0;

  /// Whether the resources are interchangeable; here: are the same.
  [[nodiscard]] virtual bool do_is_equal(device_memory_resource const& other) const noexcept { return this == &other; }

  [[noreturn]] RMM_COLD static void throw_bad_alignment()
  {
    throw bad_alloc{"the alignment is not a power of two, or is above what the resource guarantees"};
  }

  [[nodiscard]] static constexpr bool is_guaranteed(std::size_t alignment) noexcept
  {
    return is_supported_alignment(alignment) && alignment <= CUDA_ALLOCATION_ALIGNMENT;
  }

  static constexpr void expect_guaranteed(std::size_t alignment)
  {
    if (!is_guaranteed(alignment)) { throw_bad_alignment(); }
  }

  // What calls without an alignment pass in resource references.
  static constexpr std::size_t usual_alignment = alignof(std::max_align_t);

  RMM_HIDDEN void* allocate_rounded(std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    if (alignment != usual_alignment || !detail::sizes_known_as_rounded.load(std::memory_order_relaxed)) {
      return allocate_as_chosen(bytes, alignment, stream);
    }
    return do_allocate(rmm::detail::checked_align_up(bytes, usual_alignment), stream);
  }

  RMM_HIDDEN void deallocate_rounded(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    if (alignment != usual_alignment || !detail::sizes_known_as_rounded.load(std::memory_order_relaxed)) {
      return deallocate_as_chosen(ptr, bytes, alignment, stream);
    }
    do_deallocate(ptr, align_up(bytes, usual_alignment), stream);
  }

  // With another alignment, or where sizes are not rounded, or that is not known yet.

  RMM_HIDDEN RMM_COLD void* allocate_as_chosen(std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    if (!is_supported_alignment(alignment)) { throw_bad_alignment(); }
    return do_allocate(detail::sizes_are_rounded() ? rmm::detail::checked_align_up(bytes, alignment) : bytes, stream);
  }

  RMM_HIDDEN RMM_COLD void deallocate_as_chosen(void* ptr,
                                                std::size_t bytes,
                                                std::size_t alignment,
                                                cuda_stream_view stream)
  {
    do_deallocate(ptr, detail::size_when_allocated(bytes, alignment), stream);
  }
};

static_assert(rmm::detail::polyfill::async_resource_with<device_memory_resource, ::cuda::mr::device_accessible>);

}  // namespace mr
}  // namespace RMM_NAMESPACE
