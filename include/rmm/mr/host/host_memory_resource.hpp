// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/nvtx/func_range.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/error.hpp>

#include <cstddef>
#include <memory>  // IWYU pragma: export

namespace RMM_NAMESPACE {
namespace mr {

/// Base of the classes that allocate memory which the host can use.
///
/// Memory is aligned to the alignment asked for, at least alignof(std::max_align_t), and is given back with the size
/// and alignment it was asked with. Failure to allocate throws std::bad_alloc; deallocation does not throw.
class host_memory_resource {
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

  /// Gives back what allocate() returned for the same arguments.
  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
  {
    RMM_FUNC_RANGE();
    do_deallocate(ptr, bytes, alignment);
  }

  /// The same in the spelling of 25.10, except that it throws bad_alloc unless `alignment` is a power of two.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
  {
    if (!is_supported_alignment(alignment)) { throw bad_alloc{"the alignment is not a power of two"}; }
    return allocate(bytes, alignment);
  }

  /// Gives back what allocate_sync() returned for the same arguments.
  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
  {
    deallocate(ptr, bytes, alignment);
  }

  /// Whether memory allocated by one of the two resources may be given back to the other.
  [[nodiscard]] bool is_equal(host_memory_resource const& other) const noexcept { return do_is_equal(other); }

  /// is_equal().
  [[nodiscard]] bool operator==(host_memory_resource const& other) const noexcept { return do_is_equal(other); }

  [[nodiscard]] bool operator!=(host_memory_resource const& other) const noexcept { return !do_is_equal(other); }

  friend void get_property(host_memory_resource const&, ::cuda::mr::host_accessible) noexcept {}

 private:
  /// Allocates. `bytes` may be 0.
  virtual void* do_allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;

  /// Must not throw.
  virtual void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;

  /// Whether the resources are interchangeable; here: are the same.
  [[nodiscard]] virtual bool do_is_equal(host_memory_resource const& other) const noexcept { return this == &other; }
};

static_assert(rmm::detail::polyfill::resource_with<host_memory_resource, ::cuda::mr::host_accessible>);

}  // namespace mr
}  // namespace RMM_NAMESPACE
