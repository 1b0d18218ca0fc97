// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/nvtx/func_range.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/error.hpp>

#include <cstddef>
#include <memory>  // IWYU pragma: export
#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// The base class of resources that allocate memory for the host. Derive from it to write a host resource.
///
/// Memory has the requested alignment, and at least alignof(std::max_align_t). Free it with the size and alignment of the allocation. A
/// failed allocation throws std::bad_alloc; deallocation does not throw.
///
/// @code{.cpp}
/// class malloc_resource final : public rmm::mr::host_memory_resource {
///   void* do_allocate(std::size_t bytes, std::size_t) override { return std::malloc(bytes); }
///   void do_deallocate(void* ptr, std::size_t, std::size_t) override { std::free(ptr); }
/// } resource;
/// resource.deallocate(resource.allocate(1000), 1000);
/// @endcode
class RMM_EXPORT host_memory_resource {
 public:
  host_memory_resource()                                           = default;
  host_memory_resource(host_memory_resource const&)                = default;
  host_memory_resource(host_memory_resource&&) noexcept            = default;
  host_memory_resource& operator=(host_memory_resource const&)     = default;
  host_memory_resource& operator=(host_memory_resource&&) noexcept = default;
  virtual ~host_memory_resource()                                  = default;

  /// Allocates at least `bytes` bytes.
  void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
  {
    RMM_FUNC_RANGE();
    return do_allocate(bytes, alignment);
  }

  /// Frees memory that allocate() returned for the same arguments.
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
  {
    RMM_FUNC_RANGE();
    do_deallocate(ptr, bytes, alignment);
  }

  /// Allocates as allocate() does; a function of 25.10. Throws bad_alloc unless `alignment` is a power of two.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
  {
    if (!is_supported_alignment(alignment)) { throw_bad_alignment(alignment); }
    return allocate(bytes, alignment);
  }

  /// Frees memory that allocate_sync() returned for the same arguments.
  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
  {
    deallocate(ptr, bytes, alignment);
  }

  /// Whether memory from one of the two resources may be freed with the other.
  [[nodiscard]] bool is_equal(host_memory_resource const& other) const noexcept { return do_is_equal(other); }

  /// Whether the resources are equal: see is_equal().
  [[nodiscard]] bool operator==(host_memory_resource const& other) const noexcept { return do_is_equal(other); }

  [[nodiscard]] bool operator!=(host_memory_resource const& other) const noexcept { return !do_is_equal(other); }

  friend void get_property(host_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  /// Allocates. `bytes` may be 0.
  virtual void* do_allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;

  /// Frees. Must not throw.
  virtual void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;

  /// Whether memory from one of the two resources may be freed with the other. By default only if they are one object.
  [[nodiscard]] virtual bool do_is_equal(host_memory_resource const& other) const noexcept { return this == &other; }

  [[noreturn]] RMM_COLD static void throw_bad_alignment(std::size_t alignment)
  {
    throw bad_alloc{"the alignment is " + std::to_string(alignment) + ", but has to be a power of two"};
  }
};

static_assert(rmm::detail::polyfill::resource_with<host_memory_resource, ::cuda::mr::host_accessible>);

}  // namespace mr
}  // namespace RMM_NAMESPACE
