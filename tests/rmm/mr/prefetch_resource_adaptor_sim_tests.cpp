// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/simulated.hpp"

#include <rmm/error.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
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

}  // namespace
