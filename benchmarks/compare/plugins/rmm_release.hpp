// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the plug-in uses of an RMM, under one set of names, whatever the release of the headers.

#include <rmm/cuda_stream_view.hpp>

#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#else
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#endif

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#else  // as in RAPIDS RMM 26.10: resources satisfy concepts of CCCL, and have no common base class
#include <rmm/aligned.hpp>
#include <rmm/resource_ref.hpp>
#define RMM_COMPARE_CONCEPTS
#endif

#if __has_include(<rmm/mr/cached_memory_resource.hpp>)
#include <rmm/mr/cached_memory_resource.hpp>
#define RMM_COMPARE_CACHED
#endif

#if __has_include(<rmm/mr/elastic_pool_memory_resource.hpp>)
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#define RMM_COMPARE_ELASTIC
#endif

#if __has_include(<rmm/mr/pinned_pool_memory_resource.hpp>)
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#define RMM_COMPARE_PINNED_POOL
#elif __has_include(<rmm/mr/pinned_host_memory_resource.hpp>)
#include <rmm/mr/pinned_host_memory_resource.hpp>
#define RMM_COMPARE_PINNED_HOST
#endif

#if __has_include(<rmm/capture_scope.hpp>)
#define RMM_COMPARE_CHECK_CAPTURE
#endif

#if __has_include(<rmm/version_config.hpp>)
#include <rmm/version_config.hpp>
#endif

#include <cstddef>

namespace release {

using cuda_resource = rmm::mr::cuda_memory_resource;

#ifdef RMM_COMPARE_CONCEPTS
using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;  ///< what containers hold
using stream_view  = cuda::stream_ref;

template <class>
using pool_over = rmm::mr::pool_memory_resource;

using arena_resource      = rmm::mr::arena_memory_resource;
using binning_resource    = rmm::mr::binning_memory_resource;
using fixed_size_resource = rmm::mr::fixed_size_memory_resource;
using limiting_adaptor    = rmm::mr::limiting_resource_adaptor;
using logging_adaptor     = rmm::mr::logging_resource_adaptor;
using statistics_adaptor  = rmm::mr::statistics_resource_adaptor;
using tracking_adaptor    = rmm::mr::tracking_resource_adaptor;

/// Returns `resource` in the form in which this release takes it: a reference.
template <class Resource>
Resource& ref(Resource& resource)
{
  return resource;
}

inline void* allocate(any_resource& resource, std::size_t bytes, stream_view stream)
{
  return resource.allocate(stream, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
}

inline void deallocate(any_resource& resource, void* ptr, std::size_t bytes, stream_view stream)
{
  resource.deallocate(stream, ptr, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
}
#else
using any_resource = rmm::mr::device_memory_resource*;
using stream_view  = rmm::cuda_stream_view;

template <class Upstream>
using pool_over = rmm::mr::pool_memory_resource<Upstream>;

using arena_resource      = rmm::mr::arena_memory_resource<cuda_resource>;
using binning_resource    = rmm::mr::binning_memory_resource<pool_over<cuda_resource>>;
using fixed_size_resource = rmm::mr::fixed_size_memory_resource<cuda_resource>;
using limiting_adaptor    = rmm::mr::limiting_resource_adaptor<pool_over<cuda_resource>>;
using logging_adaptor     = rmm::mr::logging_resource_adaptor<pool_over<cuda_resource>>;
using statistics_adaptor  = rmm::mr::statistics_resource_adaptor<pool_over<cuda_resource>>;
using tracking_adaptor    = rmm::mr::tracking_resource_adaptor<pool_over<cuda_resource>>;

/// Returns `resource` in the form in which this release takes it: a pointer.
template <class Resource>
Resource* ref(Resource& resource)
{
  return &resource;
}

inline void* allocate(any_resource resource, std::size_t bytes, stream_view stream)
{
  return resource->allocate(bytes, stream);
}

inline void deallocate(any_resource resource, void* ptr, std::size_t bytes, stream_view stream)
{
  resource->deallocate(ptr, bytes, stream);
}
#endif

using pool_resource = pool_over<cuda_resource>;

}  // namespace release
