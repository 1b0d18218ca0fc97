// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device/callback_memory_resource.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace {

using rmm::mr::callback_memory_resource;
using ::testing::Return;
using ::testing::StrictMock;
using ::testing::Throw;

static_assert(std::is_final_v<callback_memory_resource>);
static_assert(!std::is_copy_constructible_v<callback_memory_resource>);
static_assert(!std::is_copy_assignable_v<callback_memory_resource>);
static_assert(std::is_nothrow_move_constructible_v<callback_memory_resource>);
static_assert(std::is_move_assignable_v<callback_memory_resource>);
static_assert(std::is_nothrow_constructible_v<callback_memory_resource,
                                              rmm::mr::allocate_callback_t,
                                              rmm::mr::deallocate_callback_t,
                                              void*,
                                              void*>);
static_assert(rmm::detail::polyfill::async_resource_with<callback_memory_resource, cuda::mr::device_accessible>);

struct callbacks {
  MOCK_METHOD(void*, allocate, (std::size_t, rmm::cuda_stream_view, void*));
  MOCK_METHOD(void, deallocate, (void*, std::size_t, rmm::cuda_stream_view, void*));
};

struct CallbackMemoryResource : ::testing::Test {
  [[nodiscard]] callback_memory_resource make(void* allocate_argument = nullptr, void* deallocate_argument = nullptr)
  {
    return callback_memory_resource(
      [this](std::size_t bytes, rmm::cuda_stream_view on, void* argument) {
        return mock.allocate(bytes, on, argument);
      },
      [this](void* ptr, std::size_t bytes, rmm::cuda_stream_view on, void* argument) {
        mock.deallocate(ptr, bytes, on, argument);
      },
      allocate_argument,
      deallocate_argument);
  }

  StrictMock<callbacks> mock;
  int memory{};
  rmm::cuda_stream stream;
};

TEST_F(CallbackMemoryResource, PassesSizeStreamAndArgumentsOn)
{
  int allocate_argument{};
  int deallocate_argument{};
  auto resource           = make(&allocate_argument, &deallocate_argument);
  std::size_t const bytes = 10 << 20;
  EXPECT_CALL(mock, allocate(bytes, stream.view(), &allocate_argument)).WillOnce(Return(&memory));
  EXPECT_CALL(mock, deallocate(&memory, bytes, stream.view(), &deallocate_argument));
  EXPECT_EQ(resource.allocate(bytes, stream), &memory);
  resource.deallocate(&memory, bytes, stream);
}

TEST_F(CallbackMemoryResource, UsesTheDefaultStreamAndNoArgumentsByDefault)
{
  auto resource = make();
  EXPECT_CALL(mock, allocate(1, rmm::cuda_stream_view{}, nullptr)).WillOnce(Return(&memory));
  EXPECT_CALL(mock, deallocate(&memory, 1, rmm::cuda_stream_view{}, nullptr));
  resource.deallocate(resource.allocate(1), 1);
}

TEST_F(CallbackMemoryResource, PassesZeroBytesAndNullOn)
{
  auto resource = make();
  EXPECT_CALL(mock, allocate(0, stream.view(), nullptr)).WillOnce(Return(nullptr));
  EXPECT_CALL(mock, deallocate(nullptr, 0, stream.view(), nullptr));
  EXPECT_EQ(resource.allocate(0, stream), nullptr);
  resource.deallocate(nullptr, 0, stream);
}

TEST_F(CallbackMemoryResource, LetsExceptionsThrough)
{
  struct special : std::runtime_error {
    special() : std::runtime_error{"special"} {}
  };
  auto resource = make();
  EXPECT_CALL(mock, allocate).WillOnce(Throw(special{}));
  EXPECT_THROW(resource.allocate(8, stream), special);
}

TEST_F(CallbackMemoryResource, ServesContainers)
{
  auto resource = make();
  EXPECT_CALL(mock, allocate(64, stream.view(), nullptr)).WillOnce(Return(&memory));
  EXPECT_CALL(mock, deallocate(&memory, 64, stream.view(), nullptr));
  rmm::device_buffer const buffer(64, stream, resource);
  EXPECT_EQ(buffer.data(), &memory);
}

TEST_F(CallbackMemoryResource, MovesWithItsCallbacks)
{
  auto resource = make(&memory);
  auto target   = std::move(resource);
  EXPECT_CALL(mock, allocate(8, stream.view(), &memory)).WillOnce(Return(&memory));
  EXPECT_EQ(target.allocate(8, stream), &memory);
}

TEST_F(CallbackMemoryResource, IsEqualToItselfOnly)
{
  auto const resource = make();
  auto const other    = make();
  EXPECT_TRUE(resource == resource);
  EXPECT_FALSE(resource == other);
}

}  // namespace
