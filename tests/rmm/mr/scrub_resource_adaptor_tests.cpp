// SPDX-License-Identifier: Apache-2.0
#include "../../support/graph.hpp"
#include "../../support/mock_resource.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/scrub_resource_adaptor.hpp>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

namespace {

using rmm::mr::cuda_memory_resource;
using rmm::mr::pool_memory_resource;
using rmm::mr::scrub_resource_adaptor;

struct Scrub : ::testing::Test {
  cuda_memory_resource cuda;
  pool_memory_resource<cuda_memory_resource> pool{&cuda, 1 << 20, 1 << 20};
  scrub_resource_adaptor<pool_memory_resource<cuda_memory_resource>> scrub{&pool};
  rmm::cuda_stream stream;

  [[nodiscard]] void* allocate_secret(rmm::mr::device_memory_resource& mr, std::size_t bytes)
  {
    void* const ptr = mr.allocate(bytes, stream);
    EXPECT_EQ(cudaMemsetAsync(ptr, 0x5A, bytes, stream.value()), cudaSuccess);
    return ptr;
  }

  /// Returns how many bytes are not zero.
  [[nodiscard]] std::size_t left(void const* ptr, std::size_t bytes)
  {
    std::vector<char> host(bytes, 1);
    EXPECT_EQ(cudaMemcpyAsync(host.data(), ptr, bytes, cudaMemcpyDeviceToHost, stream.value()), cudaSuccess);
    stream.synchronize();
    return bytes - static_cast<std::size_t>(std::count(host.begin(), host.end(), '\0'));
  }
};

TEST_F(Scrub, LeavesZerosToTheNextOwner)
{
  std::array<std::size_t, 4> const sizes{1, 100, 4096, 1U << 20U};
  for (auto const bytes : sizes) {
    void* const secret = allocate_secret(scrub, bytes);
    scrub.deallocate(secret, bytes, stream);
    void* const next = pool.allocate(bytes, stream);
    ASSERT_EQ(next, secret);
    EXPECT_EQ(left(next, bytes), 0) << bytes;
    pool.deallocate(next, bytes, stream);
  }
}

TEST_F(Scrub, KeepsFreedDataFromTheNextOwner)
{
  void* const secret = allocate_secret(pool, 4096);
  pool.deallocate(secret, 4096, stream);
  void* const next = pool.allocate(4096, stream);
  ASSERT_EQ(next, secret);
  EXPECT_EQ(left(next, 4096), 4096);
  pool.deallocate(next, 4096, stream);
}

TEST_F(Scrub, LeavesTheNeighboursAlone)
{
  void* const freed = allocate_secret(scrub, 256);
  void* const kept  = allocate_secret(scrub, 256);
  scrub.deallocate(freed, 256, stream);
  EXPECT_EQ(left(kept, 256), 256);
  scrub.deallocate(kept, 256, stream);
}

TEST_F(Scrub, KeepsMemoryUntilACaptureThatBlocksItsStreamIsOver)
{
  rmm::cuda_stream const blocking;
  void* const secret = allocate_secret(scrub, 4096);
  stream.synchronize();
  auto const empty = rmm::test::capture(blocking, [&] {  // fails if the capture is broken
    scrub.deallocate(secret, 4096, rmm::cuda_stream_legacy);
    void* const other = scrub.allocate(4096, stream);
    EXPECT_NE(other, secret);
    scrub.deallocate(other, 4096, stream);
  });
  EXPECT_EQ(empty.nodes(), 0U);
  EXPECT_EQ(pool.figures().live_bytes, 4096U);
  scrub.deallocate(scrub.allocate(100, stream), 100, stream);
  EXPECT_EQ(pool.figures().live_bytes, 0U);
  rmm::cuda_stream_legacy.synchronize();
  EXPECT_EQ(left(secret, 4096), 0U);
}

int messages = 0;

TEST(ScrubFailure, DoesNotFreeUnscrubbedMemory)
{
  using ::testing::_;
  ::testing::StrictMock<rmm::test::mock_resource> upstream;
  scrub_resource_adaptor<rmm::mr::device_memory_resource> scrub{&upstream};
  EXPECT_CALL(upstream, do_deallocate(_, _, _)).Times(0);
  messages          = 0;
  auto const before = rmm::detail::log_hook.exchange([](rmm::detail::log_level, char const* message) noexcept {
    messages += std::strstr(message, "could not be zeroed") != nullptr ? 1 : 0;
  });
  scrub.deallocate(rmm::test::address(0x1000), 100);  // an address without memory
  rmm::detail::log_hook.store(before);
  EXPECT_EQ(messages, 1);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(ScrubFailure, DoesNotTouchAllocationsOfNoBytes)
{
  ::testing::StrictMock<rmm::test::mock_resource> upstream;
  scrub_resource_adaptor<rmm::mr::device_memory_resource> scrub{&upstream};
  EXPECT_CALL(upstream, do_deallocate(nullptr, 0, ::testing::_));
  scrub.deallocate(nullptr, 0);
}

}  // namespace
