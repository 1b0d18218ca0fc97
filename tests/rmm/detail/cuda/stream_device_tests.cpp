// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/cuda/stream_device.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace {

using rmm::detail::ask_context_of_stream;
using rmm::detail::device_of_running_stream;
using rmm::detail::device_of_stream;

struct StreamDevice : ::testing::Test {
  /// Makes a stream on each device.
  void SetUp() override
  {
    for (int device = 0; device < rmm::get_num_cuda_devices(); ++device) {
      rmm::cuda_set_device_raii const current{rmm::cuda_device_id{device}};
      streams.push_back(std::make_unique<rmm::cuda_stream>(rmm::cuda_stream::flags::non_blocking));
    }
  }

  void TearDown() override
  {
    for (std::size_t device = 0; device < streams.size(); ++device) {
      rmm::cuda_set_device_raii const current{rmm::cuda_device_id{static_cast<int>(device)}};
      streams[device].reset();
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  std::vector<std::unique_ptr<rmm::cuda_stream>> streams;
};

TEST_F(StreamDevice, DoesNotDependOnTheCurrentDevice)
{
  for (int current = 0; current < rmm::get_num_cuda_devices(); ++current) {
    rmm::cuda_set_device_raii const set{rmm::cuda_device_id{current}};
    for (std::size_t device = 0; device < streams.size(); ++device) {
      EXPECT_EQ(device_of_stream(streams[device]->value()), static_cast<int>(device));
      EXPECT_EQ(device_of_running_stream(streams[device]->value()), static_cast<int>(device));
      EXPECT_EQ(rmm::get_current_cuda_device().value(), current);
    }
  }
}

TEST_F(StreamDevice, OfADefaultStreamIsTheCurrentOne)
{
  for (int current = 0; current < rmm::get_num_cuda_devices(); ++current) {
    rmm::cuda_set_device_raii const set{rmm::cuda_device_id{current}};
    for (cudaStream_t const stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
      EXPECT_EQ(device_of_stream(stream), current);
    }
  }
}

TEST_F(StreamDevice, IsKnownToAThreadThatHasNotUsedCuda)
{
  for (std::size_t device = 0; device < streams.size(); ++device) {
    std::thread{[&] { EXPECT_EQ(device_of_stream(streams[device]->value()), static_cast<int>(device)); }}.join();
    std::thread{[&] { EXPECT_EQ(device_of_stream(cudaStreamPerThread), 0); }}.join();
  }
}

TEST_F(StreamDevice, IsAlsoFoundThroughItsContext)
{
  for (std::size_t device = 0; device < streams.size(); ++device) {
    int found{-1};
    EXPECT_EQ(ask_context_of_stream(streams[device]->value(), &found), cudaSuccess);
    EXPECT_EQ(found, static_cast<int>(device));
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
    std::thread{[&] {
      int in_thread{-1};
      EXPECT_EQ(ask_context_of_stream(streams[device]->value(), &in_thread), cudaSuccess);
      EXPECT_EQ(in_thread, static_cast<int>(device));
      EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
    }}.join();
  }
}

TEST_F(StreamDevice, BreaksNoCapture)
{
  for (std::size_t device = 0; device < streams.size(); ++device) {
    for (auto const mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
      rmm::cuda_set_device_raii const set{rmm::cuda_device_id{static_cast<int>(device)}};
      auto const stream = streams[device]->value();
      cudaGraph_t graph{};
      ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
      EXPECT_EQ(device_of_stream(stream), streams.size() == 1 ? 0 : -1);  // with one device, no query is needed
      for (auto const& other : streams) {
        if (other->value() != stream) { EXPECT_NE(device_of_stream(other->value()), -1); }
      }
      EXPECT_EQ(device_of_stream(cudaStreamLegacy), static_cast<int>(device));
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      EXPECT_EQ(device_of_stream(stream), static_cast<int>(device));
    }
  }
}

}  // namespace
