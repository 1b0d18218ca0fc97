// SPDX-License-Identifier: Apache-2.0

// Streams and devices that were destroyed or never existed. The simulated runtime detects their use.

#include "../../support/every_resource.hpp"
#include "../../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace {

using rmm::test::named_resource;

/// Returns the handle of a destroyed stream.
cudaStream_t destroyed_stream() { return rmm::cuda_stream{}.value(); }

/// Expects that the runtime has reported misuse, and clears its reports.
void expect_misuse()
{
  EXPECT_FALSE(cudasim::violations().empty());
  cudasim::clear_violations();
}

struct FreedStream : Simulated, ::testing::WithParamInterface<named_resource> {};

TEST_P(FreedStream, AContainerThatGrowsOnItStaysAsItIs)
{
  auto const resource = GetParam().make();
  rmm::cuda_stream const stream;
  std::vector<std::uint8_t> const content(1000, 7);
  {
    rmm::device_buffer buffer{content.data(), content.size(), stream, resource.get()};
    stream.synchronize();
    EXPECT_THROW(buffer.resize(2000, destroyed_stream()), std::exception);
    expect_misuse();
    buffer.set_stream(stream);
    EXPECT_EQ(buffer.size(), 1000U);
    EXPECT_EQ(buffer.capacity(), 1000U);
    buffer.resize(2000, stream);
    std::vector<std::uint8_t> copy(1000);
    EXPECT_EQ(cudaMemcpyAsync(copy.data(), buffer.data(), 1000, cudaMemcpyDefault, stream.value()), cudaSuccess);
    stream.synchronize();
    EXPECT_EQ(copy, content);
  }
  stream.synchronize();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(Resources,
                         FreedStream,
                         ::testing::ValuesIn(rmm::test::every_resource()),
                         [](auto const& test) { return std::string{test.param.name}; });

struct BadHandles : Simulated {};

TEST_F(BadHandles, WaitingForAFreedStreamIsACudaError)
{
  rmm::cuda_stream_view const view{destroyed_stream()};
  EXPECT_THROW(view.synchronize(), rmm::cuda_error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  expect_misuse();
}

TEST_F(BadHandles, ThePoolsOfTheDriverRefuseAFreedStream)
{
  rmm::mr::cuda_async_memory_resource resource;
  EXPECT_THROW(static_cast<void>(resource.allocate(100, destroyed_stream())), rmm::bad_alloc);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  expect_misuse();
}

TEST_F(BadHandles, ReadingAnElementOnAFreedStreamIsACudaError)
{
  rmm::device_uvector<int> vector(10, rmm::cuda_stream_default);
  vector.set_element(3, 7, rmm::cuda_stream_default);
  EXPECT_THROW(static_cast<void>(vector.element(3, destroyed_stream())), rmm::cuda_error);
  expect_misuse();
  EXPECT_EQ(vector.element(3, rmm::cuda_stream_default), 7);
}

using BadHandlesDeathTest = BadHandles;

TEST_F(BadHandlesDeathTest, AMissingDeviceCannotBeMadeCurrent)
{
#if RMM_ASSERTIONS_ENABLED
  EXPECT_DEATH((rmm::cuda_set_device_raii{rmm::cuda_device_id{99}}), "cudaErrorInvalidDevice");
#else
  {
    rmm::cuda_set_device_raii const nowhere{rmm::cuda_device_id{99}};
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
  }
  EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
  expect_misuse();
#endif
}

}  // namespace
