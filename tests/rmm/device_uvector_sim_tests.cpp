// SPDX-License-Identifier: Apache-2.0
#include "../support/device_questions.hpp"
#include "../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/thrust_allocator_adaptor.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <new>

namespace {

using rmm::device_scalar;
using rmm::device_uvector;

// --- the number of queries for the current device

struct ContainerCalls : DeviceQuestions {};

TEST_F(ContainerCalls, AVectorTakesTwoQueriesInItsLife)
{
  rmm::cuda_stream const stream;
  rmm::mr::cuda_memory_resource mr;
  EXPECT_EQ(questions([&] { device_uvector<int> const vector(100, stream); }), if_several(2));
  EXPECT_EQ(questions([&] { device_uvector<int> const vector(100, stream, mr); }), if_several(2));
}

TEST_F(ContainerCalls, AScalarTakesTwoQueriesInItsLife)
{
  rmm::cuda_stream const stream;
  rmm::mr::cuda_memory_resource mr;
  EXPECT_EQ(questions([&] { device_scalar<int> const scalar(stream); }), if_several(2));
  EXPECT_EQ(questions([&] { device_scalar<int> const scalar(7, stream, mr); }), if_several(2));
}

TEST_F(ContainerCalls, AThrustAllocatorTakesOneQuery)
{
  EXPECT_EQ(questions([] { rmm::mr::thrust_allocator<int> const allocator; }), if_several(1));
}

TEST_F(ContainerCalls, ReadingAnElementIsOneCopyAndOneWait)
{
  rmm::cuda_stream const stream;
  device_uvector<int> vector(100, stream);
  vector.set_element(0, 1, stream);
  auto const before = cudasim::calls();
  EXPECT_EQ(vector.element(0, stream), 1);
  EXPECT_EQ(cudasim::calls() - before, 2U);
}

// --- order

struct ContainerOrder : Simulated {
  void SetUp() override
  {
    Simulated::SetUp();
    cudasim::check_ordering(true);
  }
};

TEST_F(ContainerOrder, SettingAnElementDoesNotWait)
{
  rmm::cuda_stream const stream;
  device_uvector<int> vector(1, stream);
  device_scalar<int> scalar{stream};
  stream.synchronize();
  cudasim::hold(stream.value());
  vector.set_element_to_zero_async(0, stream);
  scalar.set_value_to_zero_async(stream);
  EXPECT_EQ(cudasim::pending(stream.value()), 2U);
  cudasim::let_go(stream.value());
  stream.synchronize();
}

TEST_F(ContainerOrder, SettingAnElementWaitsForItsCopy)
{
  cudasim::options machine;
  machine.mode = cudasim::execution::stepped;  // work is only done by who waits for it
  start(machine);
  rmm::mr::pinned_host_memory_resource host;
  auto* const pinned = new (host.allocate(sizeof(int))) int{7};
  {
    rmm::cuda_stream const stream;
    device_uvector<int> vector(1, stream);
    vector.set_element_async(0, *pinned, stream);
    EXPECT_NE(cudasim::pending(stream.value()), 0U);
    vector.set_element(0, *pinned, stream);
    EXPECT_EQ(cudasim::pending(stream.value()), 0U);
  }
  host.deallocate(pinned, sizeof(int));
  start(cudasim::options{});
}

TEST_F(ContainerOrder, ReadingAnElementWaitsForItsStream)
{
  rmm::cuda_stream const stream;
  device_uvector<int> vector(1, stream);
  auto* const data = vector.data();
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {{data, sizeof(int)}}, [data] { *data = 7; }), cudaSuccess);
  EXPECT_EQ(vector.element(0, stream), 7);
}

// The handle of a default stream means a stream of the current device. Work on a vector must be ordered with the default stream of
// the vector's device.
struct DefaultStreamsOfAnotherDevice : ContainerOrder {
  void SetUp() override
  {
    ContainerOrder::SetUp();
    if (rmm::get_num_cuda_devices() < 3) {
      GTEST_SKIP() << "needs three devices; CONTAINER_SIM_TEST_4_DEVICES has them";
    }
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  }

  void TearDown() override
  {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    ContainerOrder::TearDown();
  }

  /// Calls `work(vector, stream)` for each default stream, with device 1 current and a vector of one element on device 2.
  template <class Work>
  static void for_each_default_stream(Work work)
  {
    for (auto const stream : {rmm::cuda_stream_default, rmm::cuda_stream_legacy, rmm::cuda_stream_per_thread}) {
      auto vector = on_device_2([&] { return device_uvector<int>(1, stream); });
      work(vector, stream);
      EXPECT_EQ(rmm::get_current_cuda_device().value(), 1);
      on_device_2([&] { stream.synchronize(); });
    }
  }

  template <class Work>
  static auto on_device_2(Work work)
  {
    rmm::cuda_set_device_raii const other{rmm::cuda_device_id{2}};
    return work();
  }
};

TEST_F(DefaultStreamsOfAnotherDevice, ReadingAnElementWaitsForItsStream)
{
  for_each_default_stream([](device_uvector<int>& vector, rmm::cuda_stream_view stream) {
    auto* const data = vector.data();
    on_device_2([&] {
      ASSERT_EQ(cudasim::launch(stream, {}, {{data, sizeof(int)}}, [data] { *data = 7; }), cudaSuccess);
    });
    EXPECT_EQ(vector.element(0, stream), 7);
  });
}

TEST_F(DefaultStreamsOfAnotherDevice, SettingAnElementIsInTheOrderOfItsStream)
{
  for_each_default_stream([](device_uvector<int>& vector, rmm::cuda_stream_view stream) {
    auto* const data = vector.data();
    int const value{7};
    vector.set_element_async(0, value, stream);
    on_device_2([&] {
      ASSERT_EQ(cudasim::launch(stream, {{data, sizeof(int)}}, {}, [data] { EXPECT_EQ(*data, 7); }), cudaSuccess);
    });
  });
}

TEST_F(DefaultStreamsOfAnotherDevice, SettingAnElementToZeroIsInTheOrderOfItsStream)
{
  for_each_default_stream([](device_uvector<int>& vector, rmm::cuda_stream_view stream) {
    auto* const data = vector.data();
    vector.set_element_to_zero_async(0, stream);
    on_device_2([&] {
      ASSERT_EQ(cudasim::launch(stream, {{data, sizeof(int)}}, {}, [data] { EXPECT_EQ(*data, 0); }), cudaSuccess);
    });
  });
}

TEST_F(DefaultStreamsOfAnotherDevice, SettingAnElementAndWaitingWaitsForItsStream)
{
  for_each_default_stream([](device_uvector<int>& vector, rmm::cuda_stream_view stream) {
    auto* const data = vector.data();
    on_device_2([&] { ASSERT_EQ(cudasim::launch(stream, {}, {{data, sizeof(int)}}), cudaSuccess); });
    vector.set_element(0, 7, stream);
    cudasim::touch(data, sizeof(int), false);
    EXPECT_EQ(*data, 7);
  });
}

TEST_F(ContainerOrder, GrowingKeepsWhatTheStreamHasYetToWrite)
{
  rmm::cuda_stream const stream;
  device_uvector<int> vector(4, stream);
  auto* const data = vector.data();
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {{data, 4 * sizeof(int)}}, [data] { data[3] = 7; }), cudaSuccess);
  vector.resize(100, stream);
  EXPECT_EQ(vector.element(3, stream), 7);
}

// --- failures: each call fails once

struct ContainerFaults : Simulated {};

TEST_F(ContainerFaults, AVectorThatCannotBeMadeLeavesNothingBehind)
{
  for (char const* const function : {"cudaMalloc", "cudaMemcpyAsync"}) {
    auto const failures = cudasim::for_each_fault(
      [] {
        try {
          device_uvector<int> vector(10, rmm::cuda_stream_default);
          int const value{7};
          vector.set_element_async(3, value, rmm::cuda_stream_default);
          device_uvector<int> const copy(vector, rmm::cuda_stream_default);
        } catch (std::exception const&) {}
      },
      [](auto) { EXPECT_EQ(cudasim::leak_report(), ""); },
      cudaErrorMemoryAllocation,
      function);
    EXPECT_EQ(failures, 2U) << function;
  }
}

TEST_F(ContainerFaults, AScalarThatCannotBeMadeLeavesNothingBehind)
{
  int const value{7};
  for (char const* const function : {"cudaMalloc", "cudaMemcpyAsync"}) {
    auto const failures = cudasim::for_each_fault(
      [&] {
        try {
          device_scalar<int> const scalar{value, rmm::cuda_stream_default};
        } catch (std::exception const&) {}
      },
      [](auto) { EXPECT_EQ(cudasim::leak_report(), ""); },
      cudaErrorMemoryAllocation,
      function);
    EXPECT_EQ(failures, 1U) << function;
  }
}

TEST_F(ContainerFaults, ReadingAnElementWaitsAfterItsCopyAndNotBefore)
{
  device_uvector<int> const vector(1, rmm::cuda_stream_default);
  auto const waits = cudasim::calls("cudaStreamSynchronize");
  cudasim::inject({"cudaMemcpyAsync", 1, cudaErrorInvalidValue, 1});
  EXPECT_THROW(static_cast<void>(vector.element(0, rmm::cuda_stream_default)), rmm::cuda_error);
  EXPECT_EQ(cudasim::calls("cudaStreamSynchronize"), waits);
  static_cast<void>(vector.element(0, rmm::cuda_stream_default));
  EXPECT_EQ(cudasim::calls("cudaStreamSynchronize"), waits + 1);
}

TEST_F(ContainerFaults, AFailedCopyOfAnElementIsACudaError)
{
  device_uvector<int> vector(1, rmm::cuda_stream_default);
  vector.set_element(0, 7, rmm::cuda_stream_default);
  cudasim::inject({"cudaMemcpyAsync", 1, cudaErrorInvalidValue, 1});
  EXPECT_THROW(vector.element(0, rmm::cuda_stream_default), rmm::cuda_error);
  cudasim::inject({"cudaMemcpyAsync", 1, cudaErrorInvalidValue, 1});
  EXPECT_THROW(vector.set_element(0, 8, rmm::cuda_stream_default), rmm::cuda_error);
  cudasim::inject({"cudaMemsetAsync", 1, cudaErrorInvalidValue, 1});
  EXPECT_THROW(vector.set_element_to_zero_async(0, rmm::cuda_stream_default), rmm::cuda_error);
  cudasim::inject({"cudaStreamSynchronize", 1, cudaErrorLaunchFailure, 1});
  EXPECT_THROW(vector.element(0, rmm::cuda_stream_default), rmm::cuda_error);
  EXPECT_EQ(vector.element(0, rmm::cuda_stream_default), 7);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
