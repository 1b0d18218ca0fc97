// SPDX-License-Identifier: Apache-2.0
#include "../support/device_questions.hpp"
#include "../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using rmm::device_buffer;

// --- the number of queries for the current device, with one device and with several

struct DeviceBufferCalls : DeviceQuestions {};

TEST_F(DeviceBufferCalls, TheCurrentResourceTakesAtMostOneQuery)
{
  EXPECT_EQ(questions([] { static_cast<void>(rmm::mr::get_current_device_resource()); }), if_several(1));
  EXPECT_EQ(questions([] { static_cast<void>(rmm::mr::get_current_device_resource_ref()); }), if_several(1));
  EXPECT_EQ(questions([] { static_cast<void>(rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{0})); }), 0);
}

TEST_F(DeviceBufferCalls, ABufferTakesTwoQueriesInItsLife)
{
  rmm::cuda_stream const stream;
  rmm::mr::cuda_memory_resource mr;
  char const source[100]{};
  EXPECT_EQ(questions([&] { device_buffer const buffer(100, stream); }), if_several(2));
  EXPECT_EQ(questions([&] { device_buffer const buffer(100, stream, mr); }), if_several(2));
  EXPECT_EQ(questions([&] { device_buffer const buffer(source, 100, stream); }), if_several(2));
}

TEST_F(DeviceBufferCalls, AThreadWithoutAContextAsksTheRuntime)
{
  auto const before = cudasim::calls("cudaGetDevice");
  std::thread{[] { static_cast<void>(rmm::mr::get_current_device_resource()); }}.join();
  EXPECT_EQ(cudasim::calls("cudaGetDevice") - before, if_several(1));
}

TEST_F(DeviceBufferCalls, TheCurrentResourceIsThatOfTheCurrentContext)
{
  if (rmm::get_num_cuda_devices() == 1) { GTEST_SKIP() << "needs two devices"; }
  rmm::mr::cuda_memory_resource mr;
  rmm::mr::set_per_device_resource(rmm::cuda_device_id{1}, &mr);
  EXPECT_NE(rmm::mr::get_current_device_resource(), &mr);
  auto const& driver = rmm::detail::driver();
  CUcontext context{};
  ASSERT_EQ(driver.retain_primary_context(&context, 1), CUDA_SUCCESS);
  ASSERT_EQ(driver.push_context(context), CUDA_SUCCESS);
  EXPECT_EQ(rmm::mr::get_current_device_resource(), &mr);
  ASSERT_EQ(driver.pop_context(&context), CUDA_SUCCESS);
  EXPECT_NE(rmm::mr::get_current_device_resource(), &mr);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(rmm::mr::get_current_device_resource(), &mr);
  rmm::mr::set_per_device_resource(rmm::cuda_device_id{1}, nullptr);
}

TEST_F(DeviceBufferCalls, AnEmptyBufferTakesAtMostOneQuery)
{
  EXPECT_EQ(questions([] { device_buffer const buffer; }), if_several(1));
}

TEST_F(DeviceBufferCalls, NothingIsSetIfTheDeviceIsCurrent)
{
  auto const before = cudasim::calls("cudaSetDevice");
  {
    device_buffer buffer(100, rmm::cuda_stream_default);
    buffer.resize(1000, rmm::cuda_stream_default);
  }
  EXPECT_EQ(cudasim::calls("cudaSetDevice"), before);
}

// --- failures: each call fails once; nothing leaks, and the object stays usable

struct DeviceBufferFaults : Simulated {
  std::vector<std::uint8_t> const source = std::vector<std::uint8_t>(1000, 7);

  static void expect_content(device_buffer const& buffer, std::vector<std::uint8_t> const& expected)
  {
    std::vector<std::uint8_t> values(buffer.size());
    EXPECT_EQ(cudaMemcpy(values.data(), buffer.data(), values.size(), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(values, expected);
  }
};

TEST_F(DeviceBufferFaults, AConstructorThatFailsLeavesNothingBehind)
{
  for (char const* const function : {"cudaMalloc", "cudaMemcpyAsync"}) {
    auto const failures = cudasim::for_each_fault(
      [&] {
        try {
          device_buffer const buffer{source.data(), source.size(), rmm::cuda_stream_default};
        } catch (std::exception const&) {}
      },
      [](auto) { EXPECT_EQ(cudasim::leak_report(), ""); },
      cudaErrorMemoryAllocation,
      function);
    EXPECT_EQ(failures, 1) << function;
  }
}

TEST_F(DeviceBufferFaults, AFailedCopyIsACudaError)
{
  cudasim::inject({"cudaMemcpyAsync", 1, cudaErrorInvalidValue, 1});
  EXPECT_THROW((device_buffer{source.data(), source.size(), rmm::cuda_stream_default}), rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(DeviceBufferFaults, AResizeThatFailsAtAnyCallChangesNothing)
{
  for (char const* const function : {"cudaMalloc", "cudaMemcpyAsync"}) {
    device_buffer buffer{source.data(), source.size(), rmm::cuda_stream_default};
    cudasim::for_each_fault(
      [&] {
        try {
          buffer.resize(2000, rmm::cuda_stream_default);
        } catch (std::exception const&) {}
      },
      [&](auto) {
        EXPECT_EQ(buffer.size(), 1000);
        EXPECT_EQ(buffer.capacity(), 1000);
        EXPECT_EQ(cudasim::ledger().size(), 1);
        expect_content(buffer, source);
      },
      cudaErrorMemoryAllocation,
      function);
    EXPECT_EQ(buffer.size(), 2000) << function;
  }
}

TEST_F(DeviceBufferFaults, AShrinkThatFailsAtAnyCallChangesNothing)
{
  for (char const* const function : {"cudaMalloc", "cudaMemcpyAsync"}) {
    device_buffer buffer{source.data(), source.size(), rmm::cuda_stream_default};
    buffer.resize(500, rmm::cuda_stream_default);
    cudasim::for_each_fault(
      [&] {
        try {
          buffer.shrink_to_fit(rmm::cuda_stream_default);
        } catch (std::exception const&) {}
      },
      [&](auto) {
        EXPECT_EQ(buffer.capacity(), 1000);
        EXPECT_EQ(cudasim::ledger().size(), 1);
        expect_content(buffer, std::vector<std::uint8_t>(500, 7));
      },
      cudaErrorMemoryAllocation,
      function);
    EXPECT_EQ(buffer.capacity(), 500) << function;
  }
}

// --- order: work that has not run yet keeps its memory

TEST_F(DeviceBufferFaults, AResizeCopiesInTheOrderOfItsStream)
{
  rmm::cuda_stream const stream;
  device_buffer buffer{1000, stream};
  cudasim::hold(stream.value());
  ASSERT_EQ(cudaMemsetAsync(buffer.data(), 7, 1000, stream.value()), cudaSuccess);
  cudasim::let_go(stream.value());
  buffer.resize(1000 * 2, stream);
  buffer.resize(1000, stream);
  stream.synchronize();
  expect_content(buffer, source);
}

// --- memory without waiting, as Python takes it

using DeviceBufferNonblocking = Simulated;

TEST_F(DeviceBufferNonblocking, TakesAndFreesEverySize)
{
  rmm::mr::cuda_memory_resource upstream;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&upstream, std::size_t{1} << 20U};
  rmm::cuda_stream const stream;
  static_cast<void>(device_buffer{1000, stream, pool});  // the thread has a cache for the stream now
  device_buffer buffer{0, stream, pool};
  EXPECT_TRUE(buffer.try_deallocate_nonblocking(pool, pool));  // there is nothing to free
  for (std::size_t const size : {1U, 2U, 255U, 1000U}) {
    ASSERT_TRUE(buffer.try_allocate_nonblocking(size, stream, pool)) << size;
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.capacity(), size);
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_NE(pool.figures().live_bytes, 0U) << size;
    ASSERT_TRUE(buffer.try_deallocate_nonblocking(pool, pool)) << size;
    EXPECT_EQ(buffer.size(), 0U);
    EXPECT_EQ(buffer.capacity(), 0U);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(pool.figures().live_bytes, 0U) << size;
  }
  EXPECT_FALSE(buffer.try_allocate_nonblocking(0, stream, pool));
}

/// With four devices, of which device 2 is current.
struct DeviceBufferNonblockingOnDevices : DeviceBufferNonblocking {
  void SetUp() override
  {
    cudasim::options machine;
    machine.devices = 4;
    start(machine);
    ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
    pool.emplace(&upstream, std::size_t{1} << 20U);
    use({});
  }

  void TearDown() override
  {
    stream_.reset();
    pool.reset();
    DeviceBufferNonblocking::TearDown();
    start({});
  }

  rmm::cuda_stream& stream() { return stream_ ? *stream_ : stream_.emplace(); }

  /// Makes the thread find a cache for the stream, until it uses one whose handle has the same hash.
  void use(rmm::cuda_stream_view each) { static_cast<void>(device_buffer{1000, each, *pool}); }

  /// How often the driver is asked for the current device by the empty buffer that Python makes, its allocation and its free.
  std::uint64_t questions_about(rmm::cuda_stream_view each)
  {
    use(each);
    auto const before = cudasim::calls("cuCtxGetDevice");
    auto const calls  = cudasim::calls("cudaGetDevice");
    device_buffer buffer{rmm::cuda_device_id{2}, each, *pool};
    EXPECT_EQ(buffer.size(), 0U);
    EXPECT_EQ(buffer.device().value(), 2);
    EXPECT_TRUE(buffer.try_allocate_nonblocking(1000, {each, 0, 2}, *pool));
    EXPECT_TRUE(buffer.try_deallocate_nonblocking(*pool, *pool));
    EXPECT_EQ(cudasim::calls("cudaGetDevice"), calls);
    return cudasim::calls("cuCtxGetDevice") - before;
  }

  rmm::mr::cuda_memory_resource upstream;
  std::optional<rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>> pool;

 private:
  std::optional<rmm::cuda_stream> stream_;
};

TEST_F(DeviceBufferNonblockingOnDevices, AsksOnceForTheDeviceThatADefaultStreamBelongsTo)
{
  EXPECT_EQ(questions_about({}), 1U);  // with the free
  EXPECT_EQ(questions_about(stream()), 0U);
}

TEST_F(DeviceBufferNonblockingOnDevices, AsksForADeviceThatTheCallerDoesNotKnow)
{
  device_buffer buffer{0, {}, *pool};
  auto const before = cudasim::calls("cuCtxGetDevice");
  ASSERT_TRUE(buffer.try_allocate_nonblocking(1000, rmm::cuda_stream_view{}, *pool));
  EXPECT_GT(cudasim::calls("cuCtxGetDevice"), before);
  EXPECT_TRUE(buffer.try_deallocate_nonblocking(*pool, *pool));
}

TEST_F(DeviceBufferNonblockingOnDevices, TakesNothingForAnotherDevice)
{
  device_buffer buffer{rmm::cuda_device_id{2}, {}, *pool};
  EXPECT_FALSE(buffer.try_allocate_nonblocking(1000, {rmm::cuda_stream_view{}, 0, 1}, *pool));
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_FALSE(buffer.try_allocate_nonblocking(1000, rmm::cuda_stream_view{}, *pool));
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  ASSERT_TRUE(buffer.try_allocate_nonblocking(1000, rmm::cuda_stream_view{}, *pool));
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_FALSE(buffer.try_deallocate_nonblocking(*pool, *pool));  // the handle names the stream of device 1
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  EXPECT_TRUE(buffer.try_deallocate_nonblocking(*pool, *pool));
}

// --- resources

struct CudaMemoryResourceFaults : Simulated {};

TEST_F(CudaMemoryResourceFaults, LackOfMemoryIsOutOfMemory)
{
  cudasim::inject({"cudaMalloc", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW(rmm::mr::cuda_memory_resource{}.allocate(100), rmm::out_of_memory);
  cudasim::inject({"cudaMallocManaged", 1, cudaErrorMemoryAllocation, 1});
  EXPECT_THROW(rmm::mr::managed_memory_resource{}.allocate(100), rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// Only on the simulator: on a real device, too much managed memory can hang it.
TEST_F(CudaMemoryResourceFaults, TooMuchManagedMemoryIsOutOfMemory)
{
  rmm::mr::managed_memory_resource mr;
  EXPECT_THROW(mr.allocate(std::size_t{1} << 50), rmm::out_of_memory);
  EXPECT_THROW(mr.allocate_async(std::size_t{1} << 50, 256, rmm::cuda_stream_default), rmm::out_of_memory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaMemoryResourceFaults, OtherFailuresAreBadAllocButNotOutOfMemory)
{
  cudasim::inject({"cudaMalloc", 1, cudaErrorInvalidValue, 1});
  try {
    static_cast<void>(rmm::mr::cuda_memory_resource{}.allocate(100));
    FAIL() << "nothing was thrown";
  } catch (rmm::out_of_memory const&) {
    FAIL() << "memory is not what is missing";
  } catch (rmm::bad_alloc const& error) {
    EXPECT_NE(std::string{error.what()}.find("CUDA error"), std::string::npos);
  }
}

TEST_F(CudaMemoryResourceFaults, ZeroManagedBytesMakeNoCall)
{
  rmm::mr::managed_memory_resource mr;
  auto const before = cudasim::calls();
  mr.deallocate(mr.allocate(0), 0);
  EXPECT_EQ(cudasim::calls(), before);
}

TEST_F(CudaMemoryResourceFaults, ARuntimeThatIsGoneIsTolerated)
{
  rmm::mr::cuda_memory_resource mr;
  void* const ptr = mr.allocate(100);
  cudasim::begin_unloading();
  EXPECT_NO_THROW(mr.deallocate(ptr, 100));
  cudasim::reset();
}

}  // namespace
