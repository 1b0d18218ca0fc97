// SPDX-License-Identifier: Apache-2.0
#include <rmm/error.hpp>
#include <rmm/memory_amount.hpp>
#include <rmm/mr/recommended_configuration.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace {

using rmm::memory_amount;
using rmm::mr::recommend_configuration;

constexpr std::size_t gibibyte = std::size_t{1} << 30U;

/// A device with all capabilities.
rmm::detail::device_traits large_device() { return {140 * gibibyte, 139 * gibibyte, true, true, true, true, false}; }

std::string choice(rmm::detail::device_traits const& device, rmm::mr::recommendation_options const& wanted = {})
{
  return recommend_configuration(wanted, device).configuration.text();
}

TEST(RecommendedConfiguration, WithVirtualMemoryIsTheElasticPool)
{
  EXPECT_EQ(choice(large_device()), "elastic");
  EXPECT_EQ(choice(large_device(), {memory_amount{gibibyte}, memory_amount::parse("80%")}),
            "elastic,initial=1GiB,max=80%");
}

TEST(RecommendedConfiguration, WithoutVirtualMemoryIsACacheBeforeTheDriversPool)
{
  auto device               = large_device();
  device.has_virtual_memory = false;
  EXPECT_EQ(choice(device), "cached");
}

TEST(RecommendedConfiguration, WithNeitherIsAPoolThatLeavesSomeToOthers)
{
  auto device               = large_device();
  device.has_virtual_memory = false;
  device.has_async_pools    = false;
  EXPECT_EQ(choice(device), "pool,max=90%free");
  EXPECT_EQ(choice(device, {{}, memory_amount{gibibyte}}), "pool,max=1GiB");
}

TEST(RecommendedConfiguration, LeavesPartOfSharedMemoryToTheHost)
{
  auto device                    = large_device();
  device.has_virtual_memory      = false;
  device.shares_memory_with_host = true;
  EXPECT_EQ(choice(device), "cached,max=75%");
  EXPECT_EQ(choice(device, {{}, memory_amount{gibibyte}}), "cached,max=1GiB");
}

TEST(RecommendedConfiguration, OversubscribesWithWhatTheDeviceHas)
{
  auto device = large_device();
  EXPECT_EQ(choice(device, {{}, {}, true}), "pool,upstream=(sam_headroom,headroom=5%)");
  device.can_use_system_memory = false;
  EXPECT_EQ(choice(device, {{}, {}, true}), "pool,upstream=managed,prefetch");
  device.has_managed_memory = false;
  EXPECT_THROW(static_cast<void>(choice(device, {{}, {}, true})), rmm::logic_error);
}

TEST(RecommendedConfiguration, HasTheRequestedSizes)
{
  auto device               = large_device();
  device.has_virtual_memory = false;
  EXPECT_EQ(choice(device, {memory_amount{gibibyte}, memory_amount::parse("80%")}), "cached,initial=1GiB,max=80%");
  EXPECT_EQ(choice(device, {memory_amount{gibibyte}, memory_amount::parse("80%"), true}),
            "pool,initial=1GiB,max=80%,upstream=(sam_headroom,headroom=5%)");
}

TEST(RecommendedConfiguration, ExplainsTheChoice)
{
  auto device                    = large_device();
  device.has_async_pools         = false;
  device.has_virtual_memory      = false;
  device.shares_memory_with_host = true;
  EXPECT_EQ(recommend_configuration({}, device).explanation,
            "The device has 140.000000 GiB, of which 139.000000 GiB are free.\n"
            "The device has neither virtual memory nor the driver's pools: a pool uses cudaMalloc.\n"
            "Such a pool gives no memory back, so a tenth of the free memory is left to others.\n");
}

}  // namespace
