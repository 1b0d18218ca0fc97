// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/error.hpp>

#include <cstddef>
#include <type_traits>

namespace RMM_NAMESPACE {

namespace mr {
class device_memory_resource;
class host_memory_resource;
}  // namespace mr

namespace detail {

template <class Resource>
inline constexpr bool is_device_memory_resource = std::is_base_of_v<::rmm::mr::device_memory_resource, Resource>;

/// Whether to call synchronous functions by their older names: of the library's base classes, and of resources without the later names.
template <class Resource>
inline constexpr bool calls_older_sync = offers<sync_calls, Resource> &&
                                         (is_device_memory_resource<Resource> ||
                                          std::is_base_of_v<::rmm::mr::host_memory_resource, Resource> ||
                                          !offers<later_sync_calls, Resource>);

/// Whether to call the stream-ordered functions of `Resource` by their older names.
template <class Resource>
inline constexpr bool calls_older_async = offers<async_calls, Resource> &&
                                          (is_device_memory_resource<Resource> || !offers<later_async_calls, Resource>);

/// Whether a libcu++ reference made directly from a `Resource` would not compile, or would call the wrong functions.
template <class Resource>
inline constexpr bool needs_facade =
#if CCCL_VERSION >= 3001000
  calls_older_sync<Resource> || calls_older_async<Resource> || !std::is_copy_constructible_v<Resource> ||
  !std::is_copy_assignable_v<Resource>;
#else
  !calls_older_sync<Resource> || (polyfill::async_resource<Resource> && !calls_older_async<Resource>);
#endif

[[noreturn]] RMM_COLD inline void throw_facade_copied()
{
  throw logic_error{"libcu++ tried to copy a resource that cannot be copied: pass a reference to the resource instead"};
}

/// A type that offers the calls of a resource under the names of all releases of libcu++.
///
/// A libcu++ reference stores the address of a resource, and a table of functions made from its type. If libcu++ would reject
/// `Resource` or call its wrong functions, the table is made from the facade instead. The address stays that of the `Resource`: the
/// pointer is cast to a facade, and each function casts it back. No facade is ever constructed or read. libcu++ from 3.2 on requires a
/// copyable type; the copy functions throw.
template <class Resource>
class resource_facade : public ::cuda::forward_property<resource_facade<Resource>, Resource> {
 public:
  /// Returns the pointer, which may be null, cast to the facade.
  [[nodiscard]] static resource_facade* of(Resource* resource) noexcept
  {
    return reinterpret_cast<resource_facade*>(resource);
  }

  resource_facade(resource_facade const&) { throw_facade_copied(); }
  resource_facade& operator=(resource_facade const&) { throw_facade_copied(); }

  void* allocate(std::size_t bytes, std::size_t alignment) { return allocate_sync(bytes, alignment); }

  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    deallocate_sync(ptr, bytes, alignment);
  }

  void* allocate_sync(std::size_t bytes, std::size_t alignment)
  {
    if constexpr (calls_older_sync<Resource>) {
      return target().allocate(bytes, alignment);
    } else {
      return target().allocate_sync(bytes, alignment);
    }
  }

  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    if constexpr (calls_older_sync<Resource>) {
      target().deallocate(ptr, bytes, alignment);
    } else {
      target().deallocate_sync(ptr, bytes, alignment);
    }
  }

  template <class R = Resource, std::enable_if_t<polyfill::async_resource<R>, int> = 0>
  void* allocate_async(std::size_t bytes, std::size_t alignment, ::cuda::stream_ref stream)
  {
    return allocate(stream, bytes, alignment);
  }

  template <class R = Resource, std::enable_if_t<polyfill::async_resource<R>, int> = 0>
  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, ::cuda::stream_ref stream) noexcept
  {
    deallocate(stream, ptr, bytes, alignment);
  }

  template <class R = Resource, std::enable_if_t<polyfill::async_resource<R>, int> = 0>
  void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t alignment)
  {
    if constexpr (calls_older_async<Resource>) {
      return target().allocate_async(bytes, alignment, stream);
    } else {
      return target().allocate(stream, bytes, alignment);
    }
  }

  template <class R = Resource, std::enable_if_t<polyfill::async_resource<R>, int> = 0>
  void deallocate(::cuda::stream_ref stream, void* ptr, std::size_t bytes, std::size_t alignment) noexcept
  {
    if constexpr (calls_older_async<Resource>) {
      target().deallocate_async(ptr, bytes, alignment, stream);
    } else {
      target().deallocate(stream, ptr, bytes, alignment);
    }
  }

  [[nodiscard]] bool operator==(resource_facade const& other) const
  {
    return upstream_resource() == other.upstream_resource();
  }

  [[nodiscard]] bool operator!=(resource_facade const& other) const { return !(*this == other); }

  /// Returns the resource. cuda::forward_property requires this name.
  [[nodiscard]] Resource const& upstream_resource() const noexcept { return *reinterpret_cast<Resource const*>(this); }

 private:
  [[nodiscard]] Resource& target() noexcept { return *reinterpret_cast<Resource*>(this); }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
