// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/thrust_namespace.h>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/thrust_allocator_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <thrust/system/cuda/execution_policy.h>
#include <thrust/version.h>

#include <utility>

namespace RMM_NAMESPACE {

/// The type of thrust::cuda::par with an allocator and a stream.
using thrust_exec_policy_t =
  decltype(thrust::cuda::par(std::declval<mr::thrust_allocator<char> const&>()).on(cudaStream_t{}));

/// An execution policy for Thrust's algorithms. Use it to run them on a stream, with their temporary memory from a resource:
/// `thrust::sort(rmm::exec_policy(stream), ...)`.
class exec_policy : public thrust_exec_policy_t {
 public:
  /// `mr` has to outlive the algorithms.
  explicit exec_policy(cuda_stream_view on_stream   = cuda_stream_default,
                       device_async_resource_ref mr = mr::get_current_device_resource_ref())
    : thrust_exec_policy_t{thrust::cuda::par(mr::thrust_allocator<char>{on_stream, mr}).on(on_stream.value())}
  {}
};

#if THRUST_VERSION >= 101600

/// The type of thrust::cuda::par_nosync with an allocator and a stream.
using thrust_exec_policy_nosync_t =
  decltype(thrust::cuda::par_nosync(std::declval<mr::thrust_allocator<char> const&>()).on(cudaStream_t{}));

/// An exec_policy for code in which the host need not wait: an algorithm waits for the stream only if it returns a result that the device
/// computes. With Thrust before 1.16 it is exec_policy, so that all algorithms wait.
class exec_policy_nosync : public thrust_exec_policy_nosync_t {
 public:
  /// `mr` has to outlive the algorithms.
  explicit exec_policy_nosync(cuda_stream_view on_stream   = cuda_stream_default,
                              device_async_resource_ref mr = mr::get_current_device_resource_ref())
    : thrust_exec_policy_nosync_t{
        thrust::cuda::par_nosync(mr::thrust_allocator<char>{on_stream, mr}).on(on_stream.value())}
  {}
};

#else

using thrust_exec_policy_nosync_t = thrust_exec_policy_t;
using exec_policy_nosync          = exec_policy;

#endif

}  // namespace RMM_NAMESPACE
