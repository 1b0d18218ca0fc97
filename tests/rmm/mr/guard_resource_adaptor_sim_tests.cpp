// SPDX-License-Identifier: Apache-2.0
#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>

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

}  // namespace
