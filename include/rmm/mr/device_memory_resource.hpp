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
#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// The base class of resources that allocate memory for the device. Derive from it to write a resource; take a
/// device_async_resource_ref to use one.
///
/// Memory is aligned to at least CUDA_ALLOCATION_ALIGNMENT bytes. Work on the stream of the allocation may use it immediately; the
/// caller orders all other use. Free it with the size of the allocation, on a stream that is ordered after the work that uses it. A
/// failed allocation throws out_of_memory if memory is missing, and another bad_alloc on other failures; if host memory runs out, it may
/// throw plain std::bad_alloc. Deallocation does not throw.
/// In resources of this library, allocation and deallocation are thread-safe. Your own resource has to be, too, if several threads use it.
///
/// allocate(bytes, alignment), allocate_async(bytes, alignment, stream) and calls through resource references round the size up to a
/// multiple of the alignment. They do not align the address: it has the alignment of the resource. To pass sizes unchanged, as RAPIDS RMM
/// does from release 25.12 on, call use_unrounded_sizes(), set RMM_UNROUNDED_SIZES=1 in the environment, or define the macro
/// RMM_UNROUNDED_SIZES for all files of the program. A process chooses once, at the latest in the first call that could round.
///
/// @code{.cpp}
/// class zeroing_resource final : public rmm::mr::device_memory_resource {
///   void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
///   {
///     void* const ptr = cuda_.allocate(bytes, stream);
///     cudaMemsetAsync(ptr, 0, bytes, stream.value());
///     return ptr;
///   }
///   void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
///   {
///     cuda_.deallocate(ptr, bytes, stream);
///   }
///   rmm::mr::cuda_memory_resource cuda_;
/// } zeroing;
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, zeroing};
/// @endcode
class RMM_EXPORT device_memory_resource {
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

  /// Frees memory that allocate() returned for the same `bytes`.
  void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream = cuda_stream_view{})
  {
    RMM_FUNC_RANGE();
    do_deallocate(ptr, bytes, stream);
  }

  /// Allocates `bytes`, rounded up to `alignment`, for use on the default stream. Throws bad_alloc unless `alignment` is a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment)
  {
    RMM_FUNC_RANGE();
    return allocate_rounded(bytes, alignment, cuda_stream_view{});
  }

  /// Frees memory that allocate() returned for the same `bytes` and `alignment`.
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment)
  {
    RMM_FUNC_RANGE();
    deallocate_rounded(ptr, bytes, alignment, cuda_stream_view{});
  }

  /// Allocates `bytes`, rounded up to `alignment`, for use on `stream`. Throws bad_alloc unless `alignment` is a power of two. Resource
  /// references call this function.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    RMM_FUNC_RANGE();
    return allocate_rounded(bytes, alignment, stream);
  }

  /// Allocates `bytes`, not rounded, as allocate(bytes, stream) does.
  void* allocate_async(std::size_t bytes, cuda_stream_view stream)
  {
    RMM_FUNC_RANGE();
    return do_allocate(bytes, stream);
  }

  /// Frees memory that allocate_async() returned for the same `bytes` and, if one was given, `alignment`.
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

  /// Allocates `bytes`, not rounded, for use on the default stream. Does not wait: the name is that of RAPIDS RMM 25.10. Throws bad_alloc
  /// unless `alignment` is a power of two of at most CUDA_ALLOCATION_ALIGNMENT.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    expect_guaranteed(alignment);
    return do_allocate(bytes, cuda_stream_view{});
  }

  /// Frees memory that allocate_sync() returned for the same `bytes`.
  void deallocate_sync(void* ptr, std::size_t bytes, [[maybe_unused]] std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    RMM_ASSERT(is_guaranteed(alignment));
    do_deallocate(ptr, bytes, cuda_stream_view{});
  }

  /// Allocates as allocate_sync() does, but for use on `stream`.
  void* allocate(cuda_stream_view stream, std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    expect_guaranteed(alignment);
    return do_allocate(bytes, stream);
  }

  /// Frees memory that allocate() with a leading stream returned for the same `bytes`.
  void deallocate(cuda_stream_view stream,
                  void* ptr,
                  std::size_t bytes,
                  [[maybe_unused]] std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
  {
    RMM_FUNC_RANGE();
    RMM_ASSERT(is_guaranteed(alignment));
    do_deallocate(ptr, bytes, stream);
  }

  /// Whether memory from one of the two resources may be freed with the other.
  [[nodiscard]] bool is_equal(device_memory_resource const& other) const noexcept { return do_is_equal(other); }

  /// Whether the resources are equal: see is_equal().
  [[nodiscard]] bool operator==(device_memory_resource const& other) const noexcept { return do_is_equal(other); }

  [[nodiscard]] bool operator!=(device_memory_resource const& other) const noexcept { return !do_is_equal(other); }

  friend void get_property(device_memory_resource const&, ::cuda::mr::device_accessible) noexcept {}

 private:
  /// Allocates. `bytes` may be 0: resources of this library then return null, except a callback_memory_resource, whose callback decides,
  /// and adaptors over it.
  virtual void* do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;

  /// Frees. Must not throw; not declared noexcept, so that overrides with and without noexcept compile.
  virtual void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) = 0;

  /// Whether memory from one of the two resources may be freed with the other. By default only if they are one object.
  [[nodiscard]] virtual bool do_is_equal(device_memory_resource const& other) const noexcept { return this == &other; }

  [[noreturn]] RMM_COLD static void throw_bad_alignment(std::size_t alignment)
  {
    throw bad_alloc{"the alignment is " + std::to_string(alignment) +
                    (is_supported_alignment(alignment) ? ", but the resource guarantees only 256 bytes"
                                                       : ", but has to be a power of two")};
  }

  [[nodiscard]] static constexpr bool is_guaranteed(std::size_t alignment) noexcept
  {
    return is_supported_alignment(alignment) && alignment <= CUDA_ALLOCATION_ALIGNMENT;
  }

  static constexpr void expect_guaranteed(std::size_t alignment)
  {
    if (!is_guaranteed(alignment)) { throw_bad_alignment(alignment); }
  }

  // The alignment that resource references pass for calls without one.
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

  // For other alignments, and if sizes are not rounded or that is not known yet.

  RMM_HIDDEN RMM_COLD void* allocate_as_chosen(std::size_t bytes, std::size_t alignment, cuda_stream_view stream)
  {
    if (!is_supported_alignment(alignment)) { throw_bad_alignment(alignment); }
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
