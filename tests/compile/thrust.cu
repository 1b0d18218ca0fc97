// SPDX-License-Identifier: Apache-2.0

// How programs use the library together with Thrust: forms that have to compile for the device. Nothing here runs.

#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/device_vector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/thrust_allocator_adaptor.hpp>

#include <thrust/fill.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstddef>
#include <type_traits>
#include <utility>

template class rmm::mr::thrust_allocator<int>;

namespace client {

static_assert(std::is_base_of_v<thrust::device_malloc_allocator<int>, rmm::mr::thrust_allocator<int>>);
static_assert(std::is_same_v<rmm::device_vector<int>, thrust::device_vector<int, rmm::mr::thrust_allocator<int>>>);
static_assert(std::is_same_v<rmm::mr::thrust_allocator<int>::rebind<char>::other, rmm::mr::thrust_allocator<char>>);
static_assert(std::is_base_of_v<rmm::thrust_exec_policy_t, rmm::exec_policy>);
static_assert(std::is_base_of_v<rmm::thrust_exec_policy_nosync_t, rmm::exec_policy_nosync>);
static_assert(std::is_copy_constructible_v<rmm::exec_policy> && std::is_copy_constructible_v<rmm::exec_policy_nosync>);
static_assert(!std::is_convertible_v<rmm::cuda_stream_view, rmm::exec_policy>);

// Traits of programs, specialised for the vectors.
template <class T>
struct is_column : std::false_type {};
template <class T>
struct is_column<rmm::device_uvector<T>> : std::true_type {};
template <class T>
struct is_column<rmm::device_vector<T>> : std::true_type {};
static_assert(is_column<rmm::device_uvector<float>>::value && is_column<rmm::device_vector<float>>::value);

// An allocator of a program with ours as base.
template <class T>
class uninitialising_allocator : public rmm::mr::thrust_allocator<T> {
 public:
  using rmm::mr::thrust_allocator<T>::thrust_allocator;
  template <class U>
  struct rebind {
    using other = uninitialising_allocator<U>;
  };
  __host__ __device__ void construct(T*) {}
};

// An aggregate for both sides of which the host owns the memory.
struct table {
  rmm::device_uvector<int> keys;
  rmm::device_uvector<float> values;
  __host__ __device__ int* data() { return nullptr; }
};
static_assert(std::is_nothrow_move_constructible_v<table>);

__global__ void increment(int* values, std::size_t size)
{
  auto const index = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index < size) { ++values[index]; }
}

int algorithms(rmm::cuda_stream const& owner, cudaStream_t handle, rmm::mr::cuda_memory_resource& resource)
{
  rmm::cuda_stream_view const view{owner};
  rmm::device_uvector<int> values(100, view);
  thrust::sequence(rmm::exec_policy(view), values.begin(), values.end());
  thrust::fill(rmm::exec_policy_nosync(owner), values.begin(), values.end(), 1);
  thrust::sort(rmm::exec_policy{handle}, values.begin(), values.end());
  thrust::exclusive_scan(rmm::exec_policy(view, &resource), values.begin(), values.end(), values.begin());
  thrust::fill(rmm::exec_policy(), values.begin(), values.end(), 2);
  auto const policy = rmm::exec_policy_nosync(view, resource);
  auto const copy   = policy;
  increment<<<1, 128, 0, view.value()>>>(values.data(), values.size());
  return thrust::reduce(copy, values.begin(), values.end(), 0, thrust::plus<int>{});
}

void vectors(rmm::cuda_stream_view stream, rmm::mr::device_memory_resource* resource)
{
  rmm::mr::thrust_allocator<int> const allocator{stream, resource};
  rmm::device_vector<int> empty;
  rmm::device_vector<int> const sized(10, 7);
  rmm::device_vector<int> const in_resource(10, allocator);
  thrust::device_vector<int, uninitialising_allocator<int>> const derived(10);
  empty = sized;
  table moved{rmm::device_uvector<int>(1, stream), rmm::device_uvector<float>(1, stream)};
  table const to{std::move(moved)};
}

}  // namespace client
