// SPDX-License-Identifier: Apache-2.0
#include "../support/watched_upstream.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::device_buffer;
using rmm::test::device_call;
using rmm::test::watched_upstream;
using kind = device_call::kind;

static_assert(!std::is_copy_constructible_v<device_buffer>);
static_assert(!std::is_copy_assignable_v<device_buffer>);
static_assert(std::is_nothrow_move_constructible_v<device_buffer>);
static_assert(std::is_nothrow_move_assignable_v<device_buffer>);
static_assert(std::is_nothrow_destructible_v<device_buffer>);
static_assert(std::is_default_constructible_v<device_buffer>);
static_assert(!std::is_constructible_v<device_buffer, std::size_t>);
static_assert(!std::is_convertible_v<std::pair<std::size_t, rmm::cuda_stream_view>, device_buffer>);
static_assert(std::is_same_v<decltype(std::declval<device_buffer const&>().size()), std::size_t>);
static_assert(std::is_same_v<decltype(std::declval<device_buffer const&>().ssize()), std::int64_t>);
static_assert(std::is_same_v<decltype(std::declval<device_buffer const&>().data()), void const*>);
static_assert(std::is_same_v<decltype(std::declval<device_buffer&>().data()), void*>);

std::vector<std::uint8_t> numbers(std::size_t count)
{
  std::vector<std::uint8_t> values(count);
  std::iota(values.begin(), values.end(), std::uint8_t{1});
  return values;
}

std::vector<std::uint8_t> content(device_buffer const& buffer)
{
  std::vector<std::uint8_t> values(buffer.size());
  EXPECT_EQ(cudaMemcpyAsync(values.data(), buffer.data(), values.size(), cudaMemcpyDefault, buffer.stream().value()),
            cudaSuccess);
  buffer.stream().synchronize();
  return values;
}

// With each kind of resource.

template <class Resource>
struct DeviceBufferTest : ::testing::Test {
  rmm::cuda_stream stream;
  Resource mr;
  std::size_t const size{10'007};
};
using resources = ::testing::Types<rmm::mr::cuda_memory_resource, rmm::mr::managed_memory_resource>;
TYPED_TEST_SUITE(DeviceBufferTest, resources);

TYPED_TEST(DeviceBufferTest, HasTheSizeItIsGiven)
{
  device_buffer const buffer{this->size, this->stream, &this->mr};
  EXPECT_NE(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), this->size);
  EXPECT_EQ(buffer.ssize(), static_cast<std::int64_t>(this->size));
  EXPECT_EQ(buffer.capacity(), this->size);
  EXPECT_FALSE(buffer.is_empty());
  EXPECT_EQ(buffer.stream(), this->stream.view());
  EXPECT_EQ(buffer.memory_resource(), rmm::device_async_resource_ref{this->mr});
}

TYPED_TEST(DeviceBufferTest, CopiesHostMemory)
{
  auto const source = numbers(this->size);
  device_buffer const buffer{source.data(), source.size(), this->stream, this->mr};
  EXPECT_EQ(buffer.size(), this->size);
  EXPECT_EQ(buffer.capacity(), this->size);
  EXPECT_EQ(content(buffer), source);
}

TYPED_TEST(DeviceBufferTest, CopiesDeviceMemory)
{
  auto const source = numbers(this->size);
  device_buffer const first{source.data(), source.size(), this->stream, this->mr};
  device_buffer const second{first.data(), first.size(), this->stream, this->mr};
  EXPECT_NE(second.data(), first.data());
  EXPECT_EQ(content(second), source);
}

TYPED_TEST(DeviceBufferTest, CopiesABuffer)
{
  auto const source = numbers(this->size);
  device_buffer const first{source.data(), source.size(), this->stream, this->mr};
  device_buffer const second{first, this->stream, this->mr};
  EXPECT_NE(second.data(), first.data());
  EXPECT_EQ(second.memory_resource(), rmm::device_async_resource_ref{this->mr});
  EXPECT_EQ(content(second), source);
}

TYPED_TEST(DeviceBufferTest, ACopyLeavesTheSlackBehind)
{
  auto const source = numbers(this->size);
  device_buffer first{source.data(), source.size(), this->stream, this->mr};
  first.resize(100, this->stream);
  device_buffer const second{first, this->stream, this->mr};
  EXPECT_EQ(first.capacity(), this->size);
  EXPECT_EQ(second.size(), 100);
  EXPECT_EQ(second.capacity(), 100);
  EXPECT_EQ(content(second), numbers(100));
}

TYPED_TEST(DeviceBufferTest, ResizingWithinTheCapacityKeepsTheMemory)
{
  auto const source = numbers(this->size);
  device_buffer buffer{source.data(), source.size(), this->stream, this->mr};
  void const* const data = buffer.data();
  buffer.resize(10, this->stream);
  EXPECT_EQ(buffer.size(), 10);
  EXPECT_EQ(buffer.capacity(), this->size);
  EXPECT_EQ(buffer.data(), data);
  buffer.resize(this->size, this->stream);
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(content(buffer), source);
}

TYPED_TEST(DeviceBufferTest, ResizingAboveTheCapacityKeepsTheContent)
{
  auto const source = numbers(this->size);
  device_buffer buffer{source.data(), source.size(), this->stream, this->mr};
  void const* const data = buffer.data();
  buffer.resize(this->size + 1, this->stream);
  EXPECT_EQ(buffer.size(), this->size + 1);
  EXPECT_EQ(buffer.capacity(), this->size + 1);
  EXPECT_NE(buffer.data(), data);
  auto values = content(buffer);
  values.pop_back();
  EXPECT_EQ(values, source);
}

TYPED_TEST(DeviceBufferTest, ReservingAboveTheCapacityKeepsContentAndSize)
{
  auto const source = numbers(this->size);
  device_buffer buffer{source.data(), source.size(), this->stream, this->mr};
  buffer.reserve(2 * this->size, this->stream);
  EXPECT_EQ(buffer.size(), this->size);
  EXPECT_EQ(buffer.capacity(), 2 * this->size);
  EXPECT_EQ(content(buffer), source);
}

TYPED_TEST(DeviceBufferTest, ReservingWithinTheCapacityKeepsTheMemory)
{
  device_buffer buffer{this->size, this->stream, this->mr};
  void const* const data = buffer.data();
  buffer.reserve(this->size, this->stream);
  buffer.reserve(0, this->stream);
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(buffer.capacity(), this->size);
}

TYPED_TEST(DeviceBufferTest, ShrinkingGivesTheSlackBack)
{
  auto const source = numbers(this->size);
  device_buffer buffer{source.data(), source.size(), this->stream, this->mr};
  buffer.resize(100, this->stream);
  buffer.shrink_to_fit(this->stream);
  EXPECT_EQ(buffer.size(), 100);
  EXPECT_EQ(buffer.capacity(), 100);
  EXPECT_EQ(buffer.memory_resource(), rmm::device_async_resource_ref{this->mr});
  EXPECT_EQ(content(buffer), numbers(100));
}

TYPED_TEST(DeviceBufferTest, MovingTakesEverythingOver)
{
  auto const source = numbers(this->size);
  device_buffer from{source.data(), source.size(), this->stream, this->mr};
  from.reserve(2 * this->size, this->stream);
  void const* const data = from.data();
  device_buffer const to{std::move(from)};
  EXPECT_EQ(to.data(), data);
  EXPECT_EQ(to.size(), this->size);
  EXPECT_EQ(to.capacity(), 2 * this->size);
  EXPECT_EQ(to.stream(), this->stream.view());
  EXPECT_EQ(to.memory_resource(), rmm::device_async_resource_ref{this->mr});
  EXPECT_EQ(content(to), source);
}

TYPED_TEST(DeviceBufferTest, AMovedFromBufferIsEmpty)
{
  device_buffer from{this->size, this->stream, this->mr};
  device_buffer const to{std::move(from)};
  EXPECT_EQ(from.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(from.size(), 0);
  EXPECT_EQ(from.capacity(), 0);
  EXPECT_TRUE(from.is_empty());
  EXPECT_EQ(from.stream(), rmm::cuda_stream_default);
  EXPECT_LT(from.device().value(), 0);
  EXPECT_EQ(from.memory_resource(), rmm::device_async_resource_ref{this->mr});
}

TYPED_TEST(DeviceBufferTest, MoveAssignmentTakesEverythingOver)
{
  auto const source = numbers(this->size);
  device_buffer from{source.data(), source.size(), this->stream, this->mr};
  void const* const data = from.data();
  device_buffer to;
  to = std::move(from);
  EXPECT_EQ(to.data(), data);
  EXPECT_EQ(to.size(), this->size);
  EXPECT_EQ(to.stream(), this->stream.view());
  EXPECT_EQ(to.memory_resource(), rmm::device_async_resource_ref{this->mr});
  EXPECT_EQ(content(to), source);
  EXPECT_EQ(to.capacity(), this->size);
  EXPECT_EQ(to.device(), rmm::get_current_cuda_device());
  EXPECT_EQ(from.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(from.size(), 0);
  EXPECT_EQ(from.capacity(), 0);
  EXPECT_EQ(from.stream(), rmm::cuda_stream_default);
  EXPECT_LT(from.device().value(), 0);
}

TYPED_TEST(DeviceBufferTest, SelfMoveKeepsTheContent)
{
  auto const source = numbers(this->size);
  device_buffer buffer{source.data(), source.size(), this->stream, this->mr};
  auto& same = buffer;
  buffer     = std::move(same);
  EXPECT_EQ(buffer.size(), this->size);
  EXPECT_EQ(buffer.stream(), this->stream.view());
  EXPECT_EQ(content(buffer), source);
}

TYPED_TEST(DeviceBufferTest, AMovedFromBufferCanBeUsedAgain)
{
  device_buffer from{this->size, this->stream, this->mr};
  device_buffer const to{std::move(from)};
  from.resize(10, this->stream);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(from.size(), 10);
  EXPECT_EQ(cudaMemsetAsync(from.data(), 7, 10, this->stream.value()), cudaSuccess);
  EXPECT_EQ(content(from), std::vector<std::uint8_t>(10, 7));
}

// Calls that reach the resource.

struct DeviceBufferUpstreamTest : ::testing::Test {
  // Returns the size that reaches a resource for a buffer of `bytes` bytes.
  static constexpr std::size_t reached(std::size_t bytes)
  {
#ifdef RMM_UNROUNDED_SIZES
    return bytes;
#else
    return rmm::align_up(bytes, 16);
#endif
  }

  [[nodiscard]] device_call allocation(std::size_t bytes, rmm::cuda_stream_view on) const
  {
    return {kind::allocate, reached(bytes), on.value(), rmm::get_current_cuda_device().value()};
  }
  [[nodiscard]] device_call deallocation(std::size_t bytes, rmm::cuda_stream_view on) const
  {
    return {kind::deallocate, reached(bytes), on.value(), rmm::get_current_cuda_device().value()};
  }

  watched_upstream upstream;
  rmm::cuda_stream stream;
  rmm::cuda_stream other_stream;
};

TEST_F(DeviceBufferUpstreamTest, OneAllocationAndOneDeallocationOnItsStream)
{
  {
    device_buffer const buffer{10, stream, upstream};
  }
  EXPECT_EQ(upstream.calls, (std::vector<device_call>{allocation(10, stream), deallocation(10, stream)}));
}

TEST_F(DeviceBufferUpstreamTest, ItIsGivenBackOnTheStreamThatWasSetLast)
{
  {
    device_buffer buffer{10, stream, upstream};
    buffer.set_stream(other_stream);
    EXPECT_EQ(buffer.stream(), other_stream.view());
  }
  EXPECT_EQ(upstream.calls.back(), deallocation(10, other_stream));
}

TEST_F(DeviceBufferUpstreamTest, SizeZeroAllocatesNothing)
{
  {
    device_buffer empty{0, stream, upstream};
    device_buffer const copied{nullptr, 0, stream, upstream};
    device_buffer const again{empty, stream, upstream};
    EXPECT_EQ(empty.data(), nullptr);
    EXPECT_EQ(copied.data(), nullptr);
    EXPECT_EQ(again.data(), nullptr);
    EXPECT_EQ(empty.capacity(), 0);
    EXPECT_TRUE(empty.is_empty());
    empty.reserve(0, stream);
    empty.resize(0, stream);
    empty.shrink_to_fit(stream);
    EXPECT_EQ(empty.data(), nullptr);
  }
  EXPECT_TRUE(upstream.calls.empty());
}

/// Mocks of test suites return null unless they are told otherwise.
TEST_F(DeviceBufferUpstreamTest, FreesTheSizeForWhichTheResourceReturnedNull)
{
  std::vector<std::size_t> given_back;
  rmm::mr::callback_memory_resource null{[](std::size_t, rmm::cuda_stream_view, void*) -> void* { return nullptr; },
                                         [&](void* ptr, std::size_t bytes, rmm::cuda_stream_view, void*) {
                                           EXPECT_EQ(ptr, nullptr);
                                           given_back.push_back(bytes);
                                         }};
  device_buffer{16, stream, null};
  EXPECT_EQ(given_back, std::vector<std::size_t>{16});
  device_buffer moved{32, stream, null};
  device_buffer const to{std::move(moved)};
  EXPECT_EQ(to.capacity(), 32U);
  EXPECT_EQ(given_back.size(), 1U);
}

TEST_F(DeviceBufferUpstreamTest, GrowingAllocatesBeforeItGivesBack)
{
  device_buffer buffer{10, stream, upstream};
  upstream.calls.clear();
  buffer.resize(100, other_stream);
  EXPECT_EQ(upstream.calls, (std::vector<device_call>{allocation(100, other_stream), deallocation(10, other_stream)}));
  upstream.calls.clear();
  buffer.reserve(200, stream);
  EXPECT_EQ(upstream.calls, (std::vector<device_call>{allocation(200, stream), deallocation(100, stream)}));
}

TEST_F(DeviceBufferUpstreamTest, ShrinkingToNothingOnlyGivesBack)
{
  device_buffer buffer{10, stream, upstream};
  buffer.resize(0, stream);
  upstream.calls.clear();
  buffer.shrink_to_fit(other_stream);
  EXPECT_EQ(upstream.calls, std::vector<device_call>{deallocation(10, other_stream)});
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.capacity(), 0);
  EXPECT_EQ(buffer.memory_resource(), rmm::device_async_resource_ref{upstream});
}

TEST_F(DeviceBufferUpstreamTest, ShrinkingWhatHasNoSlackDoesNothing)
{
  device_buffer buffer{10, stream, upstream};
  upstream.calls.clear();
  buffer.shrink_to_fit(other_stream);
  EXPECT_TRUE(upstream.calls.empty());
  EXPECT_EQ(buffer.stream(), other_stream.view());
}

TEST_F(DeviceBufferUpstreamTest, ChangingTheSizeTakesTheStreamOverEvenWithoutAllocation)
{
  device_buffer buffer{10, stream, upstream};
  buffer.resize(5, other_stream);
  EXPECT_EQ(buffer.stream(), other_stream.view());
  buffer.reserve(5, stream);
  EXPECT_EQ(buffer.stream(), stream.view());
}

TEST_F(DeviceBufferUpstreamTest, MovingCallsNothing)
{
  device_buffer from{10, stream, upstream};
  upstream.calls.clear();
  device_buffer to{std::move(from)};
  EXPECT_TRUE(upstream.calls.empty());
}

TEST_F(DeviceBufferUpstreamTest, MoveAssignmentGivesTheOldMemoryBackOnItsOldStream)
{
  device_buffer from{10, stream, upstream};
  device_buffer to{100, other_stream, upstream};
  upstream.calls.clear();
  to = std::move(from);
  EXPECT_EQ(upstream.calls, std::vector<device_call>{deallocation(100, other_stream)});
  EXPECT_EQ(to.size(), 10);
}

TEST_F(DeviceBufferUpstreamTest, CopyingFromNullIsRefusedAndAllocatesNothing)
{
  EXPECT_THROW((device_buffer{nullptr, 10, stream, upstream}), rmm::logic_error);
  EXPECT_THROW((device_buffer{nullptr, 10, stream}), rmm::logic_error);
  EXPECT_TRUE(upstream.calls.empty());
}

TEST_F(DeviceBufferUpstreamTest, AFailedResizeChangesOnlyTheStream)
{
  auto const source = numbers(100);
  device_buffer buffer{source.data(), source.size(), stream, upstream};
  void const* const data             = buffer.data();
  upstream.allocations_until_failure = 0;
  EXPECT_THROW(buffer.resize(200, other_stream), rmm::out_of_memory);
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(buffer.size(), 100);
  EXPECT_EQ(buffer.capacity(), 100);
  EXPECT_EQ(buffer.stream(), other_stream.view());
  stream.synchronize();
  EXPECT_EQ(content(buffer), source);
}

TEST_F(DeviceBufferUpstreamTest, AFailedReserveChangesOnlyTheStream)
{
  device_buffer buffer{100, stream, upstream};
  upstream.allocations_until_failure = 0;
  EXPECT_THROW(buffer.reserve(200, other_stream), rmm::out_of_memory);
  EXPECT_EQ(buffer.size(), 100);
  EXPECT_EQ(buffer.capacity(), 100);
  EXPECT_EQ(buffer.stream(), other_stream.view());
}

TEST_F(DeviceBufferUpstreamTest, AFailedShrinkChangesOnlyTheStream)
{
  device_buffer buffer{100, stream, upstream};
  buffer.resize(50, stream);
  upstream.allocations_until_failure = 0;
  EXPECT_THROW(buffer.shrink_to_fit(other_stream), rmm::out_of_memory);
  EXPECT_EQ(buffer.size(), 50);
  EXPECT_EQ(buffer.capacity(), 100);
  EXPECT_EQ(buffer.stream(), other_stream.view());
}

TEST_F(DeviceBufferUpstreamTest, AFailedConstructionThrowsWhatTheResourceThrows)
{
  upstream.allocations_until_failure = 0;
  EXPECT_THROW((device_buffer{100, stream, upstream}), rmm::out_of_memory);
}

TEST_F(DeviceBufferUpstreamTest, SizesThatNoMachineHasAreOutOfMemory)
{
  auto const huge = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW((device_buffer{huge, stream, upstream}), rmm::out_of_memory);
  EXPECT_THROW((device_buffer{huge - 15, stream, upstream}), rmm::out_of_memory);
  EXPECT_THROW((device_buffer{std::size_t{1} << 50U, stream}), rmm::out_of_memory);
  device_buffer buffer{100, stream, upstream};
  EXPECT_THROW(buffer.resize(huge, stream), rmm::out_of_memory);
  EXPECT_THROW(buffer.reserve(huge, stream), rmm::out_of_memory);
  EXPECT_EQ(buffer.size(), 100);
  EXPECT_EQ(buffer.capacity(), 100);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// An alignment of the caller's choice.

TEST_F(DeviceBufferUpstreamTest, HasTheGuaranteedAlignmentUnlessOneIsRequested)
{
  device_buffer const buffer{10, stream, upstream};
  EXPECT_EQ(buffer.alignment(), rmm::CUDA_ALLOCATION_ALIGNMENT);
}

TEST_F(DeviceBufferUpstreamTest, AnAlignmentUpTo256CostsNothing)
{
  for (std::size_t const alignment : {1U, 16U, 256U}) {
    upstream.calls.clear();
    device_buffer const buffer{10, alignment, stream, upstream};
    EXPECT_EQ(buffer.alignment(), alignment);
    EXPECT_EQ(upstream.calls, std::vector<device_call>{allocation(10, stream)});
  }
}

TEST_F(DeviceBufferUpstreamTest, AnAlignmentMayFollowASizeOfZero)
{
  constexpr std::size_t nothing = 0;
  EXPECT_EQ(device_buffer(std::size_t{0}, 512, stream).alignment(), 512U);
  EXPECT_EQ(device_buffer(std::size_t{0}, 512, stream, upstream).alignment(), 512U);
  EXPECT_EQ(device_buffer(std::size_t{}, std::size_t{512}, stream, upstream).alignment(), 512U);
  EXPECT_EQ(device_buffer(nothing, 512, stream, upstream).alignment(), 512U);
  EXPECT_EQ(device_buffer(std::uint32_t{0}, 512, stream, upstream).alignment(), 512U);
  EXPECT_EQ(device_buffer(0ULL, 512, stream).alignment(), 512U);
  EXPECT_THROW(device_buffer(std::size_t{0}, 384, stream, upstream), rmm::bad_alloc);
  EXPECT_TRUE(upstream.calls.empty());
  EXPECT_TRUE(device_buffer(0, 0, stream).is_empty());  // a null pointer, as in RMM 24.08
}

TEST_F(DeviceBufferUpstreamTest, ALargerAlignmentIsKeptThroughChangesOfTheCapacity)
{
  constexpr std::size_t alignment = 1 << 16;
  auto const source               = numbers(1000);
  auto const is_aligned           = [](device_buffer const& buffer) {
    return buffer.alignment() == alignment && reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment == 0;
  };
  device_buffer buffer{source.data(), source.size(), alignment, stream, upstream};
  EXPECT_TRUE(is_aligned(buffer));
  EXPECT_EQ(buffer.size(), 1000);
  EXPECT_EQ(buffer.capacity(), 1000);
  EXPECT_EQ(upstream.calls, std::vector<device_call>{allocation(1000 + alignment - alignof(std::max_align_t), stream)});
  buffer.resize(5000, stream);
  EXPECT_TRUE(is_aligned(buffer));
  buffer.resize(1000, stream);
  buffer.shrink_to_fit(stream);
  EXPECT_TRUE(is_aligned(buffer));
  device_buffer const copy{buffer, stream, upstream};
  EXPECT_TRUE(is_aligned(copy));
  device_buffer const moved{std::move(buffer)};
  EXPECT_TRUE(is_aligned(moved));
  EXPECT_EQ(content(copy), source);
  EXPECT_EQ(content(moved), source);
}

TEST(DeviceBufferAlignment, LiesInItsBlockWhereverTheBlockBegins)
{
  // A resource of host memory that guarantees the alignment of a reference's calls, and no more.
  struct barely_aligned final : rmm::mr::device_memory_resource {
    explicit barely_aligned(void* memory) : next{static_cast<char*>(memory)} {}
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
    {
      end = next + bytes;
      return next;
    }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    char* next;
    char* end{};
  };
  constexpr std::size_t alignment = 4096;
  alignas(alignment) std::array<char, 4 * alignment> memory;
  for (auto const begin :
       {std::size_t{0}, alignof(std::max_align_t), alignment / 2, alignment - alignof(std::max_align_t)}) {
    barely_aligned resource{memory.data() + begin};
    device_buffer const buffer{100, alignment, rmm::cuda_stream_view{}, resource};
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment, 0);
    EXPECT_LE(static_cast<char const*>(buffer.data()) + 100, resource.end) << begin;
  }
}

TEST_F(DeviceBufferUpstreamTest, AMoveAssignmentTakesTheAlignmentOver)
{
  device_buffer from{10, 4096, stream, upstream};
  device_buffer to{10, stream, upstream};
  to = std::move(from);
  EXPECT_EQ(to.alignment(), 4096);
}

TEST_F(DeviceBufferUpstreamTest, RefusesAnAlignmentOtherThanAPowerOfTwo)
{
  EXPECT_THROW((device_buffer{10, 0, stream, upstream}), rmm::bad_alloc);
  EXPECT_THROW((device_buffer{10, 48, stream, upstream}), rmm::bad_alloc);
  EXPECT_TRUE(upstream.calls.empty());
}

TEST_F(DeviceBufferUpstreamTest, AnAlignmentForWhichNoSizeIsLeftIsOutOfMemory)
{
  EXPECT_THROW((device_buffer{std::numeric_limits<std::size_t>::max() - 100, 4096, stream, upstream}),
               rmm::out_of_memory);
  EXPECT_TRUE(upstream.calls.empty());
}

// Default arguments: the default stream and the current resource.

struct DeviceBufferDefaultTest : DeviceBufferUpstreamTest {
  void SetUp() override { rmm::mr::set_current_device_resource(&upstream); }
  void TearDown() override
  {
    rmm::mr::reset_current_device_resource();
    DeviceBufferUpstreamTest::TearDown();
  }

  rmm::device_async_resource_ref const current{static_cast<rmm::mr::device_memory_resource*>(&upstream)};
};

TEST_F(DeviceBufferDefaultTest, ADefaultConstructedOneIsEmpty)
{
  device_buffer const buffer;
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0);
  EXPECT_EQ(buffer.ssize(), 0);
  EXPECT_EQ(buffer.capacity(), 0);
  EXPECT_TRUE(buffer.is_empty());
  EXPECT_EQ(buffer.stream(), rmm::cuda_stream_default);
  EXPECT_EQ(buffer.memory_resource(), current);
  EXPECT_TRUE(upstream.calls.empty());
}

TEST_F(DeviceBufferDefaultTest, ADefaultConstructedOneGrows)
{
  device_buffer buffer;
  buffer.resize(100, stream);
  EXPECT_EQ(buffer.size(), 100);
  EXPECT_EQ(upstream.calls, std::vector<device_call>{allocation(100, stream)});
}

TEST_F(DeviceBufferDefaultTest, EachConstructorUsesTheCurrentResource)
{
  auto const source = numbers(10);
  device_buffer const sized{10, stream};
  device_buffer const copied{source.data(), source.size(), stream};
  device_buffer const again{copied, stream};
  EXPECT_EQ(sized.memory_resource(), current);
  EXPECT_EQ(copied.memory_resource(), current);
  EXPECT_EQ(again.memory_resource(), current);
  EXPECT_EQ(upstream.live(), 3);
  EXPECT_EQ(content(again), source);
}

TEST_F(DeviceBufferDefaultTest, ACopyDoesNotTakeTheResourceOver)
{
  rmm::mr::cuda_memory_resource another;
  device_buffer const original{10, stream, another};
  device_buffer const copy{original, stream};
  EXPECT_EQ(copy.memory_resource(), current);
}

TEST_F(DeviceBufferDefaultTest, ChangingTheCurrentResourceDoesNotChangeTheOneItHas)
{
  device_buffer buffer{10, stream};
  rmm::mr::reset_current_device_resource();
  buffer.resize(100, stream);
  EXPECT_EQ(upstream.live(), 1);
  EXPECT_EQ(buffer.memory_resource(), current);
}

TEST_F(DeviceBufferDefaultTest, AReferenceThatIsRegisteredIsUsed)
{
  watched_upstream registered;
  rmm::mr::set_current_device_resource_ref(registered);
  {
    device_buffer const buffer{10, stream};
    EXPECT_EQ(registered.live(), 1);
    EXPECT_EQ(buffer.memory_resource(), rmm::device_async_resource_ref{registered});
  }
  EXPECT_EQ(registered.live(), 0);
  EXPECT_TRUE(upstream.calls.empty());
}

TEST_F(DeviceBufferDefaultTest, TheArgumentsOfProgramsChooseTheRightConstructor)
{
  int const bytes = 16;
  EXPECT_EQ((device_buffer(bytes, stream).size()), 16);
  EXPECT_EQ((device_buffer(0, stream).size()), 0);
  EXPECT_EQ((device_buffer(nullptr, 0, stream).size()), 0);
  EXPECT_EQ((device_buffer(32, stream.value(), &upstream).size()), 32);
  EXPECT_EQ((device_buffer(32, rmm::cuda_stream_default, rmm::mr::get_current_device_resource()).size()), 32);
  EXPECT_EQ((device_buffer{32, stream, rmm::mr::get_current_device_resource_ref()}.size()), 32);
  EXPECT_EQ((device_buffer(0, 0, stream).size()), 0);     // a null pointer and a size
  EXPECT_EQ((device_buffer(NULL, 0, stream).size()), 0);  // a null pointer and a size, too
  EXPECT_EQ((device_buffer(128, 512, stream).alignment()), 512);
  auto const made = std::make_unique<device_buffer>(48, stream.view());
  EXPECT_EQ(made->size(), 48);
}

TEST_F(DeviceBufferDefaultTest, ItLivesInAVector)
{
  std::vector<device_buffer> buffers;
  for (std::size_t size = 1; size <= 10; ++size) { buffers.emplace_back(size, stream); }
  buffers.erase(buffers.begin());
  EXPECT_EQ(upstream.live(), 9);
  EXPECT_EQ(buffers.front().size(), 2);
}

}  // namespace
