// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/mock_resource.hpp"

#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::mr::failure_callback_resource_adaptor;
using rmm::mr::failure_callback_t;
using ::testing::Return;
using ::testing::Throw;

static_assert(std::is_same_v<failure_callback_resource_adaptor<mock_resource>::exception_type, rmm::out_of_memory>);
static_assert(
  std::is_same_v<failure_callback_resource_adaptor<mock_resource, std::bad_alloc>::exception_type, std::bad_alloc>);
static_assert(std::is_same_v<failure_callback_resource_adaptor<>::exception_type, rmm::out_of_memory>);

bool say_yes_once(std::size_t, void* arg) { return ++*static_cast<int*>(arg) == 1; }

struct FailureCallback : ::testing::Test {
  ::testing::StrictMock<mock_resource> mock;
  int calls{0};
};

TEST_F(FailureCallback, IsNotCalledWithoutAFailure)
{
  failure_callback_resource_adaptor mr{&mock, say_yes_once, &calls};
  EXPECT_CALL(mock, do_allocate).WillOnce(Return(address(0x1000)));
  EXPECT_EQ(mr.allocate(10), address(0x1000));
  EXPECT_EQ(calls, 0);
}

TEST_F(FailureCallback, DecidesWhetherToTryAgain)
{
  failure_callback_resource_adaptor mr{&mock, say_yes_once, &calls};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::out_of_memory{"full"})).WillOnce(Return(address(0x1000)));
  EXPECT_EQ(mr.allocate(10), address(0x1000));
  EXPECT_EQ(calls, 1);
}

TEST_F(FailureCallback, MayTryAnyNumberOfTimes)
{
  failure_callback_resource_adaptor mr{
    &mock, [](std::size_t, void* arg) { return ++*static_cast<int*>(arg) < 50; }, &calls};
  EXPECT_CALL(mock, do_allocate).Times(50).WillRepeatedly(Throw(rmm::out_of_memory{"full"}));
  EXPECT_THROW(mr.allocate(10), rmm::out_of_memory);
  EXPECT_EQ(calls, 50);
}

TEST_F(FailureCallback, ReceivesTheSizeAndItsArgument)
{
  std::vector<std::pair<std::size_t, void*>> got;
  failure_callback_resource_adaptor mr{&mock,
                                       [&](std::size_t bytes, void* arg) {
                                         got.emplace_back(bytes, arg);
                                         return false;
                                       },
                                       &calls};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::out_of_memory{"full"}));
  EXPECT_THROW(mr.allocate(12345), rmm::out_of_memory);
  EXPECT_EQ(got, (std::vector<std::pair<std::size_t, void*>>{{12345, &calls}}));
}

TEST_F(FailureCallback, LetsTheOriginalExceptionThroughInTheEnd)
{
  struct special : rmm::out_of_memory {
    special() : rmm::out_of_memory{"special"} {}
  };
  failure_callback_resource_adaptor mr{&mock, [](std::size_t, void*) { return false; }, nullptr};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(special{}));
  EXPECT_THROW(mr.allocate(10), special);
}

TEST_F(FailureCallback, IsNotCalledForOtherExceptions)
{
  failure_callback_resource_adaptor mr{&mock, say_yes_once, &calls};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::bad_alloc{"not memory"}));
  EXPECT_THROW(mr.allocate(10), rmm::bad_alloc);
  EXPECT_EQ(calls, 0);
}

TEST_F(FailureCallback, IsCalledForTheExceptionsItIsMadeFor)
{
  failure_callback_resource_adaptor<mock_resource, rmm::bad_alloc> mr{&mock, say_yes_once, &calls};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::bad_alloc{"not memory"})).WillOnce(Return(address(0x1000)));
  EXPECT_EQ(mr.allocate(10), address(0x1000));
  EXPECT_EQ(calls, 1);
}

TEST_F(FailureCallback, TakesAnExceptionAsItsOnlyTemplateArgument)
{
  failure_callback_resource_adaptor<rmm::bad_alloc> mr{&mock, say_yes_once, &calls};
  static_assert(std::is_same_v<decltype(mr)::exception_type, rmm::bad_alloc>);
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::bad_alloc{"not memory"})).WillOnce(Return(address(0x1000)));
  EXPECT_EQ(mr.allocate(10), address(0x1000));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(mr.get_upstream(), &mock);
}

TEST_F(FailureCallback, TakesAReferenceWhereAnExceptionIsItsOnlyTemplateArgument)
{
  failure_callback_resource_adaptor<std::bad_alloc> mr{
    rmm::device_async_resource_ref{mock}, failure_callback_t{say_yes_once}, &calls};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(std::bad_alloc{})).WillOnce(Return(address(0x1000)));
  EXPECT_EQ(mr.allocate(10), address(0x1000));
}

TEST_F(FailureCallback, MayThrowItself)
{
  failure_callback_resource_adaptor mr{
    &mock, [](std::size_t, void*) -> bool { throw std::runtime_error{"mine"}; }, nullptr};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::out_of_memory{"full"}));
  EXPECT_THROW(mr.allocate(10), std::runtime_error);
}

TEST_F(FailureCallback, DeclinesIfItIsEmpty)
{
  failure_callback_resource_adaptor mr{&mock, failure_callback_t{}, nullptr};
  EXPECT_CALL(mock, do_allocate).WillOnce(Throw(rmm::out_of_memory{"full"}));
  EXPECT_THROW(mr.allocate(10), rmm::out_of_memory);
}

TEST_F(FailureCallback, SurvivesAMove)
{
  failure_callback_resource_adaptor<mock_resource> first{&mock, say_yes_once, &calls};
  auto second = std::move(first);
  EXPECT_CALL(mock, do_allocate).Times(2).WillRepeatedly(Throw(rmm::out_of_memory{"full"}));
  EXPECT_THROW(second.allocate(10), rmm::out_of_memory);
  EXPECT_EQ(calls, 2);
}

TEST(FailureCallbackOnDevice, IsAskedTwiceForMemoryThatNoDeviceHas)
{
  int calls{0};
  rmm::mr::cuda_memory_resource cuda;
  failure_callback_resource_adaptor mr{&cuda, say_yes_once, &calls};
  EXPECT_THROW(mr.allocate(std::size_t{512} << 30), std::bad_alloc);
  EXPECT_EQ(calls, 2);
}

}  // namespace
