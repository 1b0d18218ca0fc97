// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/graph.hpp"
#include "../../support/simulated.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/prefetch_resource_adaptor.hpp>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

namespace {

using PrefetchAdaptorFaults = Simulated;

TEST_F(PrefetchAdaptorFaults, GiveTheMemoryBackWhenPrefetchingFails)
{
  rmm::mr::managed_memory_resource managed;
  rmm::mr::prefetch_resource_adaptor mr{&managed};
  cudasim::inject({"cudaMemPrefetchAsync", 1, cudaErrorLaunchFailure, 1});
  EXPECT_THROW(mr.allocate(4096), rmm::cuda_error);
  EXPECT_EQ(cudasim::leak_report(), "");
}

TEST_F(PrefetchAdaptorFaults, ServeCapturesWithoutAPrefetch)
{
  rmm::mr::managed_memory_resource managed;
  rmm::mr::pool_memory_resource pool{&managed, 1 << 20};
  rmm::mr::prefetch_resource_adaptor mr{&pool};
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  rmm::cuda_stream const blocking;
  auto const before = cudasim::calls("cudaMemPrefetchAsync");
  static_cast<void>(rmm::test::capture(stream, [&] {
    rmm::capture_scope const scope{stream};
    mr.deallocate(mr.allocate(4096, stream), 4096, stream);
  }));
  static_cast<void>(rmm::test::capture(
    blocking, [&] { mr.deallocate(mr.allocate(4096, rmm::cuda_stream_legacy), 4096, rmm::cuda_stream_legacy); }));
  EXPECT_EQ(cudasim::calls("cudaMemPrefetchAsync"), before);
  mr.deallocate(mr.allocate(4096, stream), 4096, stream);
  EXPECT_EQ(cudasim::calls("cudaMemPrefetchAsync"), before + 1);
}

}  // namespace
