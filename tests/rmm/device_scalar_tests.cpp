// SPDX-License-Identifier: Apache-2.0
#include "../support/watched_upstream.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::device_scalar;
using rmm::test::registered_for_current_device;
using rmm::test::watched_upstream;

// A value type without a constructor from 0.
struct point {
  float x, y, z;
  friend bool operator==(point const& lhs, point const& rhs)
  {
    return lhs.x == rhs.x && lhs.y == rhs.y && lhs.z == rhs.z;
  }
};

// Compile-time guarantees of the class.
using int_scalar = device_scalar<int>;
static_assert(!std::is_default_constructible_v<int_scalar>);
static_assert(!std::is_copy_constructible_v<int_scalar> && !std::is_copy_assignable_v<int_scalar>);
static_assert(std::is_nothrow_move_constructible_v<int_scalar> && std::is_nothrow_move_assignable_v<int_scalar>);
static_assert(std::is_constructible_v<int_scalar, rmm::cuda_stream_view>);
static_assert(std::is_constructible_v<int_scalar, rmm::cuda_stream const&>);
static_assert(std::is_constructible_v<int_scalar, cudaStream_t>);
static_assert(std::is_constructible_v<int_scalar, int, rmm::cuda_stream_view>);
static_assert(!std::is_constructible_v<int_scalar, int>);  // the stream has no default
static_assert(!std::is_convertible_v<rmm::cuda_stream_view, int_scalar>);
static_assert(std::is_same_v<int_scalar::value_type, int> && std::is_same_v<int_scalar::size_type, std::size_t>);
static_assert(std::is_same_v<int_scalar::reference, int&> && std::is_same_v<int_scalar::pointer, int*>);
static_assert(std::is_same_v<int_scalar::const_reference, int const&>);
static_assert(std::is_same_v<int_scalar::const_pointer, int const*>);

template <class T, class = void>
constexpr bool takes_temporaries_async = false;
template <class T>
constexpr bool takes_temporaries_async<T,
                                       std::void_t<decltype(std::declval<device_scalar<T>&>().set_value_async(
                                         std::declval<T>(), rmm::cuda_stream_view{}))>> = true;
static_assert(!takes_temporaries_async<int>);

template <class T>
T value_of(int number)
{
  if constexpr (std::is_same_v<T, point>) {
    return {static_cast<float>(number), 1.5F, -2.0F};
  } else {
    return static_cast<T>(number);
  }
}

template <class T>
class DeviceScalar : public ::testing::Test {
 protected:
  watched_upstream upstream;
  rmm::cuda_stream stream;
  T const value{value_of<T>(1)};
  T const another{value_of<T>(0)};
};

using Values = ::testing::Types<bool,
                                std::int8_t,
                                std::int16_t,
                                std::int32_t,
                                std::int64_t,
                                std::uint8_t,
                                std::uint16_t,
                                std::uint32_t,
                                std::uint64_t,
                                float,
                                double,
                                point>;
TYPED_TEST_SUITE(DeviceScalar, Values);

TYPED_TEST(DeviceScalar, WithoutAValueOnlyHasMemory)
{
  device_scalar<TypeParam> const scalar{this->stream, this->upstream};
  EXPECT_NE(scalar.data(), nullptr);
  EXPECT_EQ(scalar.size(), 1U);
  EXPECT_EQ(scalar.stream(), this->stream);
  ASSERT_EQ(this->upstream.allocated().size(), 1U);
  EXPECT_EQ(this->upstream.allocated()[0].bytes, rmm::align_up(sizeof(TypeParam), 16));
  EXPECT_EQ(this->upstream.allocated()[0].stream, this->stream.value());
}

TYPED_TEST(DeviceScalar, AStreamIsNeverTakenForTheValue)
{
  device_scalar<TypeParam> const from_owner{this->stream, &this->upstream};
  device_scalar<TypeParam> const from_view{this->stream.view(), this->upstream};
  device_scalar<TypeParam> const from_handle{this->stream.value(), &this->upstream};
  for (auto const& call : this->upstream.allocated()) { EXPECT_EQ(call.stream, this->stream.value()); }
  EXPECT_EQ(this->upstream.allocated().size(), 3U);
}

TYPED_TEST(DeviceScalar, StartsWithTheGivenValue)
{
  device_scalar<TypeParam> const scalar{this->value, this->stream, this->upstream};
  EXPECT_TRUE(scalar.value(this->stream) == this->value);
}

TYPED_TEST(DeviceScalar, StartsWithTheValueOfATemporary)
{
  device_scalar<TypeParam> const scalar{value_of<TypeParam>(1), this->stream, this->upstream};
  EXPECT_TRUE(scalar.value(this->stream) == this->value);
}

TYPED_TEST(DeviceScalar, CopiesTheValueOfAnother)
{
  device_scalar<TypeParam> const scalar{this->value, this->stream, this->upstream};
  device_scalar<TypeParam> const copy{scalar, this->stream, this->upstream};
  EXPECT_NE(copy.data(), scalar.data());
  EXPECT_TRUE(copy.value(this->stream) == this->value);
}

TYPED_TEST(DeviceScalar, UsesTheRegisteredResourceByDefault)
{
  registered_for_current_device const registration{&this->upstream};
  device_scalar<TypeParam> const without{this->stream};
  device_scalar<TypeParam> const with{this->value, this->stream};
  device_scalar<TypeParam> const copy{with, this->stream};
  EXPECT_EQ(this->upstream.allocated().size(), 3U);
  for (auto const& call : this->upstream.allocated()) { EXPECT_EQ(call.bytes, rmm::align_up(sizeof(TypeParam), 16)); }
}

TYPED_TEST(DeviceScalar, ChangesItsValue)
{
  device_scalar<TypeParam> scalar{this->value, this->stream, this->upstream};
  scalar.set_value_async(this->another, this->stream);
  EXPECT_TRUE(scalar.value(this->stream) == this->another);
  scalar.set_value_async(this->value, this->stream);
  EXPECT_TRUE(scalar.value(this->stream) == this->value);
}

TYPED_TEST(DeviceScalar, BecomesZero)
{
  device_scalar<TypeParam> scalar{this->value, this->stream, this->upstream};
  scalar.set_value_to_zero_async(this->stream);
  EXPECT_TRUE(scalar.value(this->stream) == TypeParam{});
}

TYPED_TEST(DeviceScalar, MoveConstructionTakesTheMemoryOver)
{
  device_scalar<TypeParam> scalar{this->value, this->stream, this->upstream};
  auto* const data = scalar.data();
  auto const target{std::move(scalar)};
  EXPECT_EQ(target.data(), data);
  EXPECT_TRUE(target.value(this->stream) == this->value);
  EXPECT_EQ(scalar.data(), nullptr);  // NOLINT(bugprone-use-after-move)
}

TYPED_TEST(DeviceScalar, MoveAssignmentTakesTheMemoryOver)
{
  device_scalar<TypeParam> scalar{this->value, this->stream, this->upstream};
  device_scalar<TypeParam> target{this->stream, this->upstream};
  auto* const data = scalar.data();
  target           = std::move(scalar);
  EXPECT_EQ(target.data(), data);
  EXPECT_EQ(scalar.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(this->upstream.deallocated().size(), 1U);
}

TYPED_TEST(DeviceScalar, GivesTheMemoryBackOnItsStream)
{
  rmm::cuda_stream other;
  {
    device_scalar<TypeParam> scalar{this->stream, this->upstream};
    scalar.set_stream(other);
    EXPECT_EQ(scalar.stream(), other);
  }
  ASSERT_EQ(this->upstream.deallocated().size(), 1U);
  EXPECT_EQ(this->upstream.deallocated()[0].stream, other.value());
}

struct alignas(512) page {
  int value[128];
};

TEST(DeviceScalarOfPages, IsAlignedAboveWhatResourcesGuarantee)
{
  rmm::cuda_stream const stream;
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource pool{&cuda, 1 << 20, 1 << 20};
  std::vector<rmm::device_buffer> between;
  std::vector<device_scalar<page>> scalars;
  for (int i = 0; i != 8; ++i) {
    between.emplace_back(256, stream, pool);
    scalars.emplace_back(stream, pool);
    EXPECT_TRUE(rmm::is_pointer_aligned(scalars.back().data(), alignof(page)));
  }
}

}  // namespace
