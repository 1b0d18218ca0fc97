// SPDX-License-Identifier: Apache-2.0
#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <thread>

namespace {

using GuardAdaptorOrdering = Simulated;

/// An upstream whose freed memory is used by another stream immediately.
struct impatient_upstream final : rmm::mr::device_memory_resource {
  rmm::mr::cuda_memory_resource cuda;
  rmm::cuda_stream other{rmm::cuda_stream::flags::non_blocking};

  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override { return cuda.allocate(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    EXPECT_EQ(cudaMemsetAsync(ptr, 1, bytes, other.value()), cudaSuccess);
    other.synchronize();
    cuda.deallocate(ptr, bytes, stream);
  }
};

TEST_F(GuardAdaptorOrdering, UpstreamGetsIdleMemory)
{
  cudasim::check_ordering(true);
  impatient_upstream upstream;
  rmm::mr::guard_options options;
  options.quarantine_bytes = 0;
  rmm::mr::guard_resource_adaptor guarded{&upstream, options};
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  void* const ptr = guarded.allocate(100, stream);
  ASSERT_EQ(cudaMemsetAsync(ptr, 1, 100, stream.value()), cudaSuccess);
  guarded.deallocate(ptr, 100, stream);
}

TEST_F(GuardAdaptorOrdering, CallsTheHandlerInTheCaptureModeOfTheThread)
{
  rmm::mr::cuda_memory_resource cuda;
  int calls = 0;
  rmm::mr::guard_options options;
  options.quarantine_bytes = 0;
  options.handler          = [&](rmm::mr::guard_violation const&) {
    auto mode = cudaStreamCaptureModeGlobal;
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
    ++calls;
  };
  rmm::mr::guard_resource_adaptor guarded{&cuda, options};
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  auto* const ptr = static_cast<char*>(guarded.allocate(100, stream));
  ASSERT_EQ(cudaMemsetAsync(ptr + 100, 1, 1, stream.value()), cudaSuccess);  // behind its end
  guarded.deallocate(ptr, 100, stream);
  EXPECT_EQ(calls, 1);
}

TEST_F(GuardAdaptorOrdering, ChecksMemoryWhileAnotherThreadCaptures)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, std::size_t{1} << 20U};
  rmm::mr::guard_options options;
  options.quarantine_bytes = 8192;
  rmm::mr::guard_resource_adaptor guarded{&pool, options};
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  ASSERT_EQ(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread{[&] {
    rmm::cuda_stream const own{rmm::cuda_stream::flags::non_blocking};
    for (int i = 0; i < 20; ++i) {
      guarded.deallocate(guarded.allocate(1000, own), 1000, own);
    }  // leaves the quarantine, too
  }}.join();
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream.value(), &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
