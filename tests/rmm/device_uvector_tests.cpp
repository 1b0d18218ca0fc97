// SPDX-License-Identifier: Apache-2.0
#include "../support/watched_upstream.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/prefetch.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <cuda/std/span>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::device_uvector;
using rmm::test::registered_for_current_device;
using rmm::test::watched_upstream;

// A value type without a default constructor, larger than any register.
struct record {
  explicit record(int number) : first{number}, last{number} {}
  friend bool operator==(record const& lhs, record const& rhs)
  {
    return lhs.first == rhs.first && lhs.last == rhs.last;
  }
  std::int64_t first;
  std::int64_t between[3]{};
  std::int64_t last;
};

// Compile-time guarantees of the class.
using ints = device_uvector<int>;
static_assert(!std::is_default_constructible_v<ints>);
static_assert(!std::is_copy_constructible_v<ints> && !std::is_copy_assignable_v<ints>);
static_assert(std::is_nothrow_move_constructible_v<ints> && std::is_nothrow_move_assignable_v<ints>);
static_assert(std::is_nothrow_destructible_v<ints>);
static_assert(std::is_constructible_v<ints, std::size_t, rmm::cuda_stream_view>);
static_assert(std::is_constructible_v<ints, int, rmm::cuda_stream const&>);
static_assert(std::is_constructible_v<ints, std::size_t, cudaStream_t>);
static_assert(!std::is_constructible_v<ints, std::size_t>);  // the stream has no default
static_assert(!std::is_constructible_v<ints, std::size_t, int>);
static_assert(std::is_constructible_v<ints, ints const&, rmm::cuda_stream_view>);
static_assert(std::is_same_v<ints::value_type, int> && std::is_same_v<ints::size_type, std::size_t>);
static_assert(std::is_same_v<ints::reference, int&> && std::is_same_v<ints::pointer, int*>);
static_assert(std::is_same_v<ints::const_reference, int const&>);
static_assert(std::is_same_v<ints::const_pointer, int const*>);
static_assert(std::is_same_v<ints::iterator, int*> && std::is_same_v<ints::const_iterator, int const*>);
static_assert(std::is_same_v<ints::reverse_iterator, std::reverse_iterator<int*>>);
static_assert(std::is_same_v<ints::const_reverse_iterator, std::reverse_iterator<int const*>>);
static_assert(std::is_same_v<decltype(std::declval<ints const&>().ssize()), std::int64_t>);
static_assert(std::is_convertible_v<ints&, cuda::std::span<int>>);
static_assert(std::is_convertible_v<ints&, cuda::std::span<int const>>);
static_assert(std::is_convertible_v<ints const&, cuda::std::span<int const>>);
static_assert(!std::is_convertible_v<ints const&, cuda::std::span<int>>);

template <class T, class = void>
constexpr bool takes_temporaries_async = false;
template <class T>
constexpr bool takes_temporaries_async<T,
                                       std::void_t<decltype(std::declval<device_uvector<T>&>().set_element_async(
                                         0, std::declval<T>(), rmm::cuda_stream_view{}))>> = true;
static_assert(!takes_temporaries_async<int>);
static_assert(!takes_temporaries_async<record>);

template <class T>
class DeviceUvector : public ::testing::Test {
 protected:
  [[nodiscard]] device_uvector<T> make(std::size_t size) { return device_uvector<T>{size, stream, upstream}; }

  // Returns a vector with the values 1, 2, ...
  [[nodiscard]] device_uvector<T> make_sequence(std::size_t size)
  {
    auto result = make(size);
    for (std::size_t i = 0; i < size; ++i) { result.set_element(i, T(static_cast<int>(i) + 1), stream); }
    return result;
  }

  void expect_sequence(device_uvector<T> const& vector, std::size_t size)
  {
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_TRUE(vector.element(i, stream) == T(static_cast<int>(i) + 1)) << "element " << i;
    }
  }

  watched_upstream upstream;
  rmm::cuda_stream stream;
};

using Elements = ::testing::Types<std::int8_t, std::uint16_t, std::int32_t, std::uint64_t, float, double, record>;
TYPED_TEST_SUITE(DeviceUvector, Elements);

TYPED_TEST(DeviceUvector, TakesWholeElementsFromTheResource)
{
  auto const vector = this->make(64);
  EXPECT_EQ(vector.size(), 64U);
  EXPECT_EQ(vector.ssize(), 64);
  EXPECT_EQ(vector.capacity(), 64U);
  EXPECT_FALSE(vector.is_empty());
  EXPECT_NE(vector.data(), nullptr);
  ASSERT_EQ(this->upstream.allocated().size(), 1U);
  EXPECT_EQ(this->upstream.allocated()[0].bytes, 64 * sizeof(TypeParam));
  EXPECT_EQ(this->upstream.allocated()[0].stream, this->stream.value());
}

TYPED_TEST(DeviceUvector, GivesTheMemoryBackOnItsStream)
{
  rmm::cuda_stream other;
  {
    auto vector = this->make(64);
    EXPECT_EQ(vector.stream(), this->stream);
    vector.set_stream(other);
    EXPECT_EQ(vector.stream(), other);
  }
  ASSERT_EQ(this->upstream.deallocated().size(), 1U);
  EXPECT_EQ(this->upstream.deallocated()[0].stream, other.value());
}

TYPED_TEST(DeviceUvector, WithNoElementsAllocatesNothing)
{
  auto const vector = this->make(0);
  EXPECT_EQ(vector.size(), 0U);
  EXPECT_EQ(vector.ssize(), 0);
  EXPECT_TRUE(vector.is_empty());
  EXPECT_EQ(vector.capacity(), 0U);
  EXPECT_EQ(vector.data(), nullptr);
  EXPECT_EQ(vector.begin(), vector.end());
  EXPECT_TRUE(this->upstream.allocated().empty());
}

TYPED_TEST(DeviceUvector, UsesTheRegisteredResourceByDefault)
{
  registered_for_current_device const registration{&this->upstream};
  device_uvector<TypeParam> const vector(16, this->stream);
  device_uvector<TypeParam> const copy(vector, this->stream);
  EXPECT_EQ(this->upstream.allocated().size(), 2U);
  EXPECT_TRUE(vector.memory_resource() == rmm::mr::get_current_device_resource_ref());
  EXPECT_TRUE(copy.memory_resource() == rmm::mr::get_current_device_resource_ref());
}

TYPED_TEST(DeviceUvector, TellsItsResource)
{
  auto const vector = this->make(16);
  EXPECT_TRUE(vector.memory_resource() == rmm::device_async_resource_ref{this->upstream});
}

TYPED_TEST(DeviceUvector, RefusesMoreElementsThanAnAddressSpaceHas)
{
  auto const fits     = std::numeric_limits<std::size_t>::max() / sizeof(TypeParam);
  auto const too_many = sizeof(TypeParam) == 1 ? fits : fits + 1;
  auto vector         = this->make_sequence(2);
  EXPECT_THROW(static_cast<void>(this->make(too_many)), rmm::out_of_memory);
  EXPECT_THROW(vector.resize(too_many, this->stream), rmm::out_of_memory);
  EXPECT_THROW(vector.reserve(too_many, this->stream), rmm::out_of_memory);
  EXPECT_EQ(vector.size(), 2U);
  this->expect_sequence(vector, 2);
}

TYPED_TEST(DeviceUvector, CopiesTheElementsOfAnother)
{
  auto const vector = this->make_sequence(8);
  device_uvector<TypeParam> const copy(vector, this->stream, this->upstream);
  EXPECT_EQ(copy.size(), 8U);
  EXPECT_NE(copy.data(), vector.data());
  this->expect_sequence(copy, 8);
}

TYPED_TEST(DeviceUvector, CopiesNoSlack)
{
  auto vector = this->make_sequence(8);
  vector.resize(3, this->stream);
  device_uvector<TypeParam> const copy(vector, this->stream, this->upstream);
  EXPECT_EQ(copy.size(), 3U);
  EXPECT_EQ(copy.capacity(), 3U);
}

TYPED_TEST(DeviceUvector, MoveConstructionTakesTheMemoryOver)
{
  auto vector       = this->make_sequence(8);
  auto* const data  = vector.data();
  auto const target = std::move(vector);
  EXPECT_EQ(target.data(), data);
  EXPECT_EQ(target.size(), 8U);
  EXPECT_EQ(target.stream(), this->stream);
  EXPECT_EQ(vector.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(vector.size(), 0U);
  EXPECT_EQ(vector.capacity(), 0U);
  EXPECT_EQ(this->upstream.allocated().size(), 1U);
}

TYPED_TEST(DeviceUvector, MoveAssignmentGivesTheOldMemoryBack)
{
  auto vector      = this->make_sequence(8);
  auto target      = this->make(4);
  auto* const data = vector.data();
  target           = std::move(vector);
  EXPECT_EQ(target.data(), data);
  ASSERT_EQ(this->upstream.deallocated().size(), 1U);
  EXPECT_EQ(this->upstream.deallocated()[0].bytes, rmm::align_up(4 * sizeof(TypeParam), 16));
  this->expect_sequence(target, 8);
}

TYPED_TEST(DeviceUvector, GrowsWithItsElements)
{
  auto vector = this->make_sequence(8);
  vector.resize(32, this->stream);
  EXPECT_EQ(vector.size(), 32U);
  EXPECT_EQ(vector.capacity(), 32U);
  this->expect_sequence(vector, 8);
}

TYPED_TEST(DeviceUvector, ShrinksInPlace)
{
  auto vector      = this->make_sequence(8);
  auto* const data = vector.data();
  vector.resize(3, this->stream);
  EXPECT_EQ(vector.size(), 3U);
  EXPECT_EQ(vector.capacity(), 8U);
  EXPECT_EQ(vector.data(), data);
  this->expect_sequence(vector, 3);
}

TYPED_TEST(DeviceUvector, ReservesWithoutAddingElements)
{
  auto vector = this->make_sequence(8);
  vector.reserve(32, this->stream);
  auto* const data = vector.data();
  EXPECT_EQ(vector.size(), 8U);
  EXPECT_EQ(vector.capacity(), 32U);
  vector.resize(32, this->stream);
  EXPECT_EQ(vector.data(), data);
  this->expect_sequence(vector, 8);
}

TYPED_TEST(DeviceUvector, ShrinkToFitGivesSlackBack)
{
  auto vector = this->make_sequence(8);
  vector.resize(3, this->stream);
  vector.shrink_to_fit(this->stream);
  EXPECT_EQ(vector.capacity(), 3U);
  EXPECT_EQ(this->upstream.live_bytes(), rmm::align_up(3 * sizeof(TypeParam), 16));
  this->expect_sequence(vector, 3);
  vector.resize(0, this->stream);
  vector.shrink_to_fit(this->stream);
  EXPECT_EQ(vector.data(), nullptr);
  EXPECT_EQ(vector.capacity(), 0U);
}

TYPED_TEST(DeviceUvector, IsAsBeforeIfItCannotGrow)
{
  auto vector            = this->make_sequence(8);
  auto* const data       = vector.data();
  this->upstream.largest = 8 * sizeof(TypeParam);
  EXPECT_THROW(vector.resize(1000, this->stream), rmm::out_of_memory);
  EXPECT_THROW(vector.reserve(1000, this->stream), rmm::out_of_memory);
  EXPECT_EQ(vector.size(), 8U);
  EXPECT_EQ(vector.capacity(), 8U);
  EXPECT_EQ(vector.data(), data);
  this->expect_sequence(vector, 8);
}

TYPED_TEST(DeviceUvector, ReleasesItsMemoryAsABuffer)
{
  auto vector            = this->make_sequence(8);
  void const* const data = vector.data();
  vector.resize(3, this->stream);
  rmm::device_buffer const buffer = vector.release();
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(buffer.size(), 3 * sizeof(TypeParam));
  EXPECT_EQ(buffer.capacity(), 8 * sizeof(TypeParam));
  EXPECT_EQ(buffer.stream(), this->stream);
  EXPECT_EQ(vector.size(), 0U);
  EXPECT_EQ(vector.capacity(), 0U);
  EXPECT_EQ(vector.data(), nullptr);
}

TYPED_TEST(DeviceUvector, GrowsAgainAfterRelease)
{
  auto vector = this->make(8);
  vector.release();
  vector.resize(2, this->stream);
  vector.set_element(1, TypeParam(7), this->stream);
  EXPECT_EQ(vector.size(), 2U);
  EXPECT_TRUE(vector.back_element(this->stream) == TypeParam(7));
  EXPECT_TRUE(vector.memory_resource() == rmm::device_async_resource_ref{this->upstream});
}

TYPED_TEST(DeviceUvector, SetsAndReadsElements)
{
  auto vector = this->make(4);
  vector.set_element(0, TypeParam(5), this->stream);
  vector.set_element(3, TypeParam(6), this->stream);
  EXPECT_TRUE(vector.element(0, this->stream) == TypeParam(5));
  EXPECT_TRUE(vector.front_element(this->stream) == TypeParam(5));
  EXPECT_TRUE(vector.back_element(this->stream) == TypeParam(6));
}

TYPED_TEST(DeviceUvector, SetsElementsAsynchronously)
{
  auto vector = this->make(2);
  TypeParam const value(9);
  vector.set_element_async(1, value, this->stream);
  this->stream.synchronize();
  EXPECT_TRUE(vector.element(1, this->stream) == value);
}

TYPED_TEST(DeviceUvector, SetsOneElementToZero)
{
  auto vector = this->make_sequence(3);
  vector.set_element_to_zero_async(1, this->stream);
  EXPECT_TRUE(vector.element(0, this->stream) == TypeParam(1));
  EXPECT_TRUE(vector.element(1, this->stream) == TypeParam(0));
  EXPECT_TRUE(vector.element(2, this->stream) == TypeParam(3));
}

TYPED_TEST(DeviceUvector, RefusesIndicesBeyondItsSize)
{
  auto vector = this->make_sequence(4);
  vector.resize(2, this->stream);  // indices below the capacity are refused, too
  TypeParam const value(9);
  EXPECT_THROW(vector.element(2, this->stream), rmm::out_of_range);
  EXPECT_THROW(vector.set_element(2, value, this->stream), rmm::out_of_range);
  EXPECT_THROW(vector.set_element_async(2, value, this->stream), rmm::out_of_range);
  EXPECT_THROW(vector.set_element_to_zero_async(2, this->stream), rmm::out_of_range);
  EXPECT_THROW(vector.element(std::numeric_limits<std::size_t>::max(), this->stream), rmm::out_of_range);
}

TYPED_TEST(DeviceUvector, WithoutElementsRefusesFrontAndBack)
{
  auto const vector = this->make(0);
  EXPECT_THROW(vector.front_element(this->stream), rmm::out_of_range);
  EXPECT_THROW(vector.back_element(this->stream), rmm::out_of_range);
}

TYPED_TEST(DeviceUvector, PointsAtItsElements)
{
  auto vector          = this->make(4);
  auto const& as_const = vector;
  EXPECT_EQ(vector.element_ptr(3), vector.data() + 3);
  EXPECT_EQ(as_const.element_ptr(3), as_const.data() + 3);
}

TYPED_TEST(DeviceUvector, IteratesOverItsElements)
{
  auto vector          = this->make(4);
  auto const& as_const = vector;
  EXPECT_EQ(vector.begin(), vector.data());
  EXPECT_EQ(vector.end(), vector.data() + 4);
  EXPECT_EQ(as_const.begin(), vector.cbegin());
  EXPECT_EQ(as_const.end(), vector.cend());
  EXPECT_EQ(std::distance(vector.cbegin(), vector.cend()), 4);
}

TYPED_TEST(DeviceUvector, IteratesBackwards)
{
  auto vector          = this->make(4);
  auto const& as_const = vector;
  EXPECT_EQ(vector.rbegin().base(), vector.end());
  EXPECT_EQ(vector.rend().base(), vector.begin());
  EXPECT_EQ(as_const.rbegin(), vector.crbegin());
  EXPECT_EQ(as_const.rend(), vector.crend());
  EXPECT_EQ(vector.crbegin().base(), vector.cend());
  EXPECT_EQ(vector.crend().base(), vector.cbegin());
}

TYPED_TEST(DeviceUvector, ConvertsToSpans)
{
  auto vector          = this->make(4);
  auto const& as_const = vector;

  cuda::std::span<TypeParam> const all             = vector;
  cuda::std::span<TypeParam const> const read_only = vector;
  cuda::std::span<TypeParam const> const of_const  = as_const;
  EXPECT_EQ(all.data(), vector.data());
  EXPECT_EQ(all.size(), 4U);
  EXPECT_EQ(read_only.data(), vector.data());
  EXPECT_EQ(read_only.size(), 4U);
  EXPECT_EQ(of_const.data(), vector.data());
  EXPECT_EQ(of_const.size(), 4U);
}

TEST(DeviceUvectorOfBool, SetsElements)
{
  rmm::cuda_stream stream;
  device_uvector<bool> vector{2, stream};
  vector.set_element(0, true, stream);
  vector.set_element(1, false, stream);
  EXPECT_TRUE(vector.element(0, stream));
  EXPECT_FALSE(vector.element(1, stream));
}

TEST(DeviceUvectorOfDouble, KeepsTheSignOfZero)
{
  rmm::cuda_stream stream;
  device_uvector<double> vector{1, stream};
  vector.set_element(0, -0.0, stream);
  EXPECT_TRUE(std::signbit(vector.element(0, stream)));
}

TEST(DeviceUvectorOfBytes, TakesTheSizeInBraces)
{
  rmm::cuda_stream stream;
  device_uvector<std::uint8_t> const braces{100, stream};
  device_uvector<std::uint8_t> const parentheses(100, stream);
  EXPECT_EQ(braces.size(), 100U);
  EXPECT_EQ(parentheses.size(), 100U);
}

struct alignas(1024) page {
  int value[256];
};

TEST(DeviceUvectorOfPages, IsAlignedAboveWhatResourcesGuarantee)
{
  rmm::cuda_stream stream;
  auto const is_aligned = [](auto const& vector) { return rmm::is_pointer_aligned(vector.data(), alignof(page)); };
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource pool{&cuda, 1 << 20, 1 << 20};
  std::vector<rmm::device_buffer> between;
  std::vector<device_uvector<page>> vectors;
  for (int i = 0; i != 8; ++i) {
    between.emplace_back(256, stream, pool);
    vectors.emplace_back(3, stream, pool);
  }
  for (auto& each : vectors) {
    EXPECT_TRUE(is_aligned(each));
    each.resize(5, stream);
    EXPECT_TRUE(is_aligned(each));
  }
  device_uvector<page> const copy{vectors[0], stream, pool};
  EXPECT_TRUE(is_aligned(copy));
  EXPECT_EQ(copy.size(), 5U);
}

TEST(DeviceUvectorOfInts, CanBePrefetched)
{
  if (rmm::detail::device_attribute(cudaDevAttrConcurrentManagedAccess) == 0) {
    GTEST_SKIP() << "managed memory of this device does not migrate";
  }
  rmm::mr::managed_memory_resource managed;
  rmm::cuda_stream stream;
  device_uvector<int> const vector{1000, stream, managed};
  auto const device = rmm::get_current_cuda_device();
  rmm::prefetch<int>(vector, device, stream);
  stream.synchronize();
  int location{};
  ASSERT_EQ(cudaMemRangeGetAttribute(
              &location, sizeof location, cudaMemRangeAttributeLastPrefetchLocation, vector.data(), sizeof(int)),
            cudaSuccess);
  EXPECT_EQ(location, device.value());
}

TEST(DeviceUvectorOnAnotherDevice, KeepsUsingItsOwn)
{
  if (rmm::get_num_cuda_devices() < 2) { GTEST_SKIP() << "needs two devices"; }
  watched_upstream upstream;
  rmm::cuda_set_device_raii const original{rmm::cuda_device_id{0}};
  {
    device_uvector<int> vector{10, rmm::cuda_stream_default, upstream};
    rmm::cuda_set_device_raii const other{rmm::cuda_device_id{1}};
    vector.resize(20, rmm::cuda_stream_default);
    vector.set_element(19, 7, rmm::cuda_stream_default);
    EXPECT_EQ(vector.element(19, rmm::cuda_stream_default), 7);
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
  }
  for (auto const& calls : {upstream.allocated(), upstream.deallocated()}) {
    ASSERT_EQ(calls.size(), 2U);
    EXPECT_EQ(calls[0].device, 0);
    EXPECT_EQ(calls[1].device, 0);
  }
}

}  // namespace
