// SPDX-License-Identifier: Apache-2.0
#include "../support/watched_upstream.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/device_vector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/equal.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::test::registered_for_current_device;
using rmm::test::watched_upstream;

// What the classes promise.
static_assert(std::is_same_v<rmm::device_vector<int>, thrust::device_vector<int, rmm::mr::thrust_allocator<int>>>);
static_assert(std::is_base_of_v<rmm::thrust_exec_policy_t, rmm::exec_policy>);
static_assert(std::is_base_of_v<rmm::thrust_exec_policy_nosync_t, rmm::exec_policy_nosync>);
static_assert(!std::is_same_v<rmm::thrust_exec_policy_t, rmm::thrust_exec_policy_nosync_t>);
static_assert(std::is_copy_constructible_v<rmm::exec_policy> && std::is_copy_constructible_v<rmm::exec_policy_nosync>);
static_assert(!std::is_convertible_v<rmm::cuda_stream_view, rmm::exec_policy>);

template <class T>
struct is_device_vector : std::false_type {};
template <class T>
struct is_device_vector<rmm::device_vector<T>> : std::true_type {};
static_assert(is_device_vector<rmm::device_vector<float>>::value);  // the alias can be deduced

template <class T>
struct is_device_uvector : std::false_type {};
template <class T>
struct is_device_uvector<rmm::device_uvector<T>> : std::true_type {};
static_assert(is_device_uvector<rmm::device_uvector<float>>::value);

// What both policies do.
template <class Policy>
struct ExecPolicy : ::testing::Test {
  watched_upstream upstream;
  rmm::cuda_stream stream;
};

using Policies = ::testing::Types<rmm::exec_policy, rmm::exec_policy_nosync>;
TYPED_TEST_SUITE(ExecPolicy, Policies);

TYPED_TEST(ExecPolicy, RunsAlgorithmsOnItsStream)
{
  rmm::device_uvector<int> vector{1000, this->stream};
  thrust::sequence(TypeParam(this->stream), vector.begin(), vector.end());
  EXPECT_EQ(vector.element(999, this->stream), 999);
}

TYPED_TEST(ExecPolicy, TakesStreamsInEverySpelling)
{
  rmm::device_uvector<int> vector{10, this->stream};
  thrust::sequence(TypeParam{this->stream}, vector.begin(), vector.end());
  thrust::sequence(TypeParam{this->stream.view()}, vector.begin(), vector.end());
  thrust::sequence(TypeParam{this->stream.value()}, vector.begin(), vector.end());
  this->stream.synchronize();
  thrust::sequence(TypeParam{}, vector.begin(), vector.end());
  thrust::sequence(TypeParam(), vector.begin(), vector.end());
  EXPECT_EQ(vector.back_element(rmm::cuda_stream_default), 9);
}

TYPED_TEST(ExecPolicy, TakesTemporaryMemoryFromItsResource)
{
  rmm::device_uvector<int> vector{1 << 16, this->stream};
  thrust::sequence(TypeParam(this->stream), vector.begin(), vector.end(), (1 << 16) - 1, -1);
  thrust::sort(TypeParam(this->stream, &this->upstream), vector.begin(), vector.end(), thrust::less<int>{});
  EXPECT_EQ(vector.front_element(this->stream), 0);
  EXPECT_EQ(vector.back_element(this->stream), (1 << 16) - 1);
  ASSERT_FALSE(this->upstream.allocated().empty());
  for (auto const& call : this->upstream.allocated()) { EXPECT_EQ(call.stream, this->stream.value()); }
  EXPECT_EQ(this->upstream.live_bytes(), 0U);
}

TYPED_TEST(ExecPolicy, TakesTemporaryMemoryFromTheRegisteredResource)
{
  rmm::device_uvector<int> vector{1 << 16, this->stream};
  thrust::sequence(TypeParam(this->stream), vector.begin(), vector.end());
  registered_for_current_device const registration{&this->upstream};
  auto const sum = thrust::reduce(TypeParam(this->stream), vector.begin(), vector.end(), std::int64_t{0});
  EXPECT_EQ(sum, std::int64_t{(1 << 16) - 1} * (1 << 15));
  EXPECT_FALSE(this->upstream.allocated().empty());
}

TYPED_TEST(ExecPolicy, CanBeStoredAndCopied)
{
  TypeParam const policy{this->stream, this->upstream};
  TypeParam const copy = policy;
  rmm::device_uvector<int> vector{1000, this->stream};
  thrust::sequence(copy, vector.begin(), vector.end());
  EXPECT_EQ(thrust::reduce(policy, vector.begin(), vector.end()), 499500);
}

// Vectors of Thrust with our allocator.
struct DeviceVector : ::testing::Test {
  watched_upstream upstream;
  rmm::cuda_stream stream;
};

TEST_F(DeviceVector, TakesMemoryFromTheRegisteredResource)
{
  registered_for_current_device const registration{&upstream};
  rmm::device_vector<int> vector(100, 7);
  ASSERT_EQ(upstream.allocated().size(), 1U);
  EXPECT_EQ(upstream.allocated()[0].bytes, 400U);
  EXPECT_EQ(vector[99], 7);
}

TEST_F(DeviceVector, TakesMemoryFromTheResourceOfItsAllocator)
{
  rmm::mr::thrust_allocator<int> const allocator{rmm::cuda_stream_default, upstream};
  rmm::device_vector<int> const sized(100, allocator);
  rmm::device_vector<int> const filled(100, 7, allocator);
  rmm::device_vector<int> const empty(allocator);
  EXPECT_EQ(upstream.allocated().size(), 2U);
  EXPECT_EQ(filled[99], 7);
  EXPECT_TRUE(empty.empty());
}

TEST_F(DeviceVector, GrowsInItsResource)
{
  rmm::device_vector<int> vector(rmm::mr::thrust_allocator<int>{rmm::cuda_stream_default, upstream});
  for (int i = 0; i < 100; ++i) { vector.push_back(i); }
  EXPECT_EQ(vector[99], 99);
  EXPECT_GE(upstream.live_bytes(), 400U);
}

TEST_F(DeviceVector, CopiesBetweenHostAndDevice)
{
  std::vector<int> const source{1, 2, 3, 4};
  rmm::device_vector<int> const vector = source;
  std::vector<int> target(4);
  thrust::copy(vector.begin(), vector.end(), target.begin());
  EXPECT_EQ(target, source);
}

// A kernel's view of a table that owns its columns on the host: the compiler sees the vector's special functions on both sides.
struct table {
  rmm::device_uvector<int> column;
  rmm::device_scalar<int> count;
  __host__ __device__ table(table&& other) : column{std::move(other.column)}, count{std::move(other.count)} {}
  table(rmm::device_uvector<int>&& values, rmm::device_scalar<int>&& number)
    : column{std::move(values)}, count{std::move(number)}
  {}
};

TEST_F(DeviceVector, ContainersMayBeMembersOfTypesForBothSides)
{
  rmm::device_uvector<int> values{4, stream, upstream};
  rmm::device_scalar<int> number{4, stream, upstream};
  auto* const data = values.data();
  table original{std::move(values), std::move(number)};
  table const target{std::move(original)};
  EXPECT_EQ(target.column.data(), data);
  EXPECT_EQ(target.count.value(stream), 4);
}

__global__ void add_one(int* values, std::size_t size, int const* addend)
{
  for (std::size_t i = 0; i < size; ++i) { values[i] += *addend; }
}

TEST_F(DeviceVector, KernelsUseTheContainersPointers)
{
  rmm::device_uvector<int> values{4, stream, upstream};
  rmm::device_scalar<int> const one{1, stream, upstream};
  thrust::sequence(rmm::exec_policy_nosync(stream), values.begin(), values.end());
  add_one<<<1, 1, 0, stream.value()>>>(values.data(), values.size(), one.data());
  EXPECT_EQ(values.element(3, stream), 4);
}

}  // namespace
