// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_memcpy.hpp>
#include <rmm/device_buffer.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace {

using rmm::detail::memcpy_async;

TEST(MemcpyAsync, CopiesInEachDirection)
{
  rmm::cuda_stream const stream;
  std::vector<unsigned char> sent(1000);
  std::iota(sent.begin(), sent.end(), static_cast<unsigned char>(0));
  std::vector<unsigned char> received(sent.size());
  rmm::device_buffer first{sent.size(), stream};
  rmm::device_buffer second{sent.size(), stream};
  EXPECT_EQ(memcpy_async(first.data(), sent.data(), sent.size(), stream), cudaSuccess);
  EXPECT_EQ(memcpy_async(second.data(), first.data(), sent.size(), stream.view()), cudaSuccess);
  EXPECT_EQ(memcpy_async(received.data(), second.data(), sent.size(), stream.value()), cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(received, sent);
}

TEST(MemcpyAsync, ReturnsTheErrorOfCuda)
{
  rmm::cuda_stream const stream;
  rmm::device_buffer buffer{100, stream};
  EXPECT_EQ(memcpy_async(buffer.data(), nullptr, 100, stream), cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

}  // namespace
