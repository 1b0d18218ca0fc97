// SPDX-License-Identifier: Apache-2.0
#include "../../support/device_resource_suite.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <gtest/gtest.h>

#include <cstddef>

/// Add other resources to the list below. system_memory_resource_sim_tests.cpp tests system_memory_resource, which needs a device
/// that can use it.

namespace rmm::test {
namespace {

constexpr std::size_t gibibyte = std::size_t{1} << 30;

struct pool_of_half_the_device {
  mr::cuda_memory_resource cuda;
  mr::pool_memory_resource<mr::cuda_memory_resource> mr{&cuda, percent_of_free_device_memory(50)};
};

struct pool_of_pinned_memory {
  mr::pinned_host_memory_resource pinned;
  mr::pool_memory_resource<mr::pinned_host_memory_resource> mr{&pinned, 2 * gibibyte, 8 * gibibyte};
};

struct pool_of_older_pinned_memory {
  mr::pinned_memory_resource pinned;
  mr::pool_memory_resource<mr::pinned_memory_resource> mr{&pinned, 2 * gibibyte, 8 * gibibyte};
};

struct arena_of_half_the_device {
  mr::cuda_memory_resource cuda;
  mr::arena_memory_resource<mr::cuda_memory_resource> mr{&cuda};
};

struct bins_over_a_pool {
  mr::cuda_memory_resource cuda;
  mr::pool_memory_resource<mr::cuda_memory_resource> pool{&cuda, percent_of_free_device_memory(50)};
  mr::binning_memory_resource<mr::pool_memory_resource<mr::cuda_memory_resource>> mr{&pool, 18, 22};
};

using resources = ::testing::Types<by_default<mr::cuda_memory_resource>,
                                   by_default<mr::cuda_async_memory_resource>,
                                   by_default<mr::managed_memory_resource>,
                                   by_default<mr::pinned_host_memory_resource>,
                                   pool_of_half_the_device,
                                   pool_of_pinned_memory,
                                   pool_of_older_pinned_memory,
                                   arena_of_half_the_device,
                                   bins_over_a_pool>;
}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(Resources, DeviceMrRefTest, resources);

}  // namespace rmm::test
