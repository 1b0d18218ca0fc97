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
}

namespace detail {

template <class Resource>
inline constexpr bool is_device_memory_resource = std::is_base_of_v<::rmm::mr::device_memory_resource, Resource>;

/// Whether the older names of the synchronous calls are the ones to call: of what derives from device_memory_resource,
/// and of what has no later ones.
template <class Resource>
inline constexpr bool calls_older_sync = offers<sync_calls, Resource> &&
                                         (is_device_memory_resource<Resource> || !offers<later_sync_calls, Resource>);

/// The same for the stream-ordered calls.
template <class Resource>
inline constexpr bool calls_older_async = offers<async_calls, Resource> &&
                                          (is_device_memory_resource<Resource> || !offers<later_async_calls, Resource>);

/// Whether a reference of libcu++ to a `Resource` as it is would not compile, or would call other functions.
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
  throw logic_error{"a libcu++ wrapper tried to copy the resource behind a reference, which cannot be copied"};
}

/// The calls of a resource under all the names that some release of libcu++ gives them.
///
/// A reference of libcu++ keeps the address of a resource and a table of functions made from its type. Where it would
/// refuse the type, or call the wrong functions, ours are made from this one: a pointer to a `Resource`, taken for a
/// pointer to its facade, and turned back by each function. There are no objects of this class, and nothing reads
/// memory through it. libcu++ from 3.2 on wants a type that can be copied; whoever does copy gets an exception.
template <class Resource>
class resource_facade : public ::cuda::forward_property<resource_facade<Resource>, Resource> {
 public:
  /// `resource`, which may be null, taken for its facade.
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

  /// The resource; forward_property asks for it by this name.
  [[nodiscard]] Resource const& upstream_resource() const noexcept { return *reinterpret_cast<Resource const*>(this); }

 private:
  [[nodiscard]] Resource& target() noexcept { return *reinterpret_cast<Resource*>(this); }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
