// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cccl_adaptors.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {

/// A non-owning reference to a resource whose memory the device can use.
using device_resource_ref = detail::cccl_resource_ref<detail::cccl_sync_ref<::cuda::mr::device_accessible>>;

/// A non-owning reference to a stream-ordered resource whose memory the device can use. Functions that allocate take it as a parameter,
/// and containers and allocators store it. The resource has to outlive all use of the reference.
///
/// Calls pass an alignment, by default 16 bytes, and resources round the size up to it: see device_memory_resource.
///
/// libcu++ is the C++ library of CUDA (namespace cuda), a part of CCCL. Where code needs a reference of libcu++, make it from this one.
/// With CCCL 3.1 or later, a reference of libcu++ that is made from the resource itself does not round sizes, and is unequal to this one.
/// What was allocated with one of them must not be freed with the other.
///
/// @code{.cpp}
/// auto const make_scratch = [](rmm::cuda_stream_view stream, rmm::device_async_resource_ref mr) {
///   return rmm::device_buffer{1000, stream, mr};
/// };
/// rmm::mr::cuda_memory_resource cuda;
/// auto const scratch = make_scratch(rmm::cuda_stream_default, cuda);
/// @endcode
using device_async_resource_ref =
  detail::cccl_async_resource_ref<detail::cccl_async_ref<::cuda::mr::device_accessible>>;

/// A non-owning reference to a resource whose memory the host can use.
using host_resource_ref = detail::cccl_resource_ref<detail::cccl_sync_ref<::cuda::mr::host_accessible>>;

/// A non-owning reference to a stream-ordered resource whose memory the host can use.
using host_async_resource_ref = detail::cccl_async_resource_ref<detail::cccl_async_ref<::cuda::mr::host_accessible>>;

/// A non-owning reference to a resource whose memory host and device can use.
using host_device_resource_ref =
  detail::cccl_resource_ref<detail::cccl_sync_ref<::cuda::mr::host_accessible, ::cuda::mr::device_accessible>>;

/// A non-owning reference to a stream-ordered resource whose memory host and device can use.
using host_device_async_resource_ref =
  detail::cccl_async_resource_ref<detail::cccl_async_ref<::cuda::mr::host_accessible, ::cuda::mr::device_accessible>>;

/// Returns a reference to `*resource`. Throws logic_error if `resource` is null, which the constructor of the reference does not check.
template <class Resource>
device_async_resource_ref to_device_async_resource_ref_checked(Resource* resource)
{
  RMM_EXPECTS(resource != nullptr, "Unexpected null resource pointer.");
  return device_async_resource_ref{*resource};
}

}  // namespace RMM_NAMESPACE
