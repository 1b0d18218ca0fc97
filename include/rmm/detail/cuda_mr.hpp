// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The only header that includes <cuda/memory_resource>. It hides that releases of libcu++ use different names:
///
///   up to 3.0  resource_ref with allocate, async_resource_ref with allocate_async
///   from 3.1   synchronous_resource_ref with allocate_sync, resource_ref with allocate

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#if defined(CCCL_VERSION) && CCCL_VERSION < 3001000 && \
  (defined(_CUDA_MEMORY_RESOURCE) || defined(_CUDA__MEMORY_RESOURCE_GET_PROPERTY_H))
#error \
  "RMM requires LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE to be defined before the first #include of \
<cuda/memory_resource>: define it on the command line, link rmm::rmm, or include a header of RMM first."
#endif
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif

#include <rmm/detail/export.hpp>

#include <cuda/memory_resource>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace detail {

#if CCCL_VERSION >= 3001000

template <class... Properties>
using cccl_sync_ref = ::cuda::mr::synchronous_resource_ref<Properties...>;
template <class... Properties>
using cccl_async_ref = ::cuda::mr::resource_ref<Properties...>;

template <class Resource>
void* cccl_allocate_sync(Resource& resource, std::size_t bytes, std::size_t alignment)
{
  return resource.allocate_sync(bytes, alignment);
}

template <class Resource>
void cccl_deallocate_sync(Resource& resource, void* ptr, std::size_t bytes, std::size_t alignment)
{
  resource.deallocate_sync(ptr, bytes, alignment);
}

template <class Resource>
void* cccl_allocate(Resource& resource, ::cuda::stream_ref stream, std::size_t bytes, std::size_t alignment)
{
  return resource.allocate(stream, bytes, alignment);
}

template <class Resource>
void cccl_deallocate(Resource& resource, ::cuda::stream_ref stream, void* ptr, std::size_t bytes, std::size_t alignment)
{
  resource.deallocate(stream, ptr, bytes, alignment);
}

#else

template <class... Properties>
using cccl_sync_ref = ::cuda::mr::resource_ref<Properties...>;
template <class... Properties>
using cccl_async_ref = ::cuda::mr::async_resource_ref<Properties...>;

template <class Resource>
void* cccl_allocate_sync(Resource& resource, std::size_t bytes, std::size_t alignment)
{
  return resource.allocate(bytes, alignment);
}

template <class Resource>
void cccl_deallocate_sync(Resource& resource, void* ptr, std::size_t bytes, std::size_t alignment)
{
  resource.deallocate(ptr, bytes, alignment);
}

template <class Resource>
void* cccl_allocate(Resource& resource, ::cuda::stream_ref stream, std::size_t bytes, std::size_t alignment)
{
  return resource.allocate_async(bytes, alignment, stream);
}

template <class Resource>
void cccl_deallocate(Resource& resource, ::cuda::stream_ref stream, void* ptr, std::size_t bytes, std::size_t alignment)
{
  resource.deallocate_async(ptr, bytes, alignment, stream);
}

#endif

}  // namespace detail
}  // namespace RMM_NAMESPACE
