// SPDX-License-Identifier: Apache-2.0
#include "../../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/make_recommended_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using rmm::cuda_device_id;
using rmm::mr::configured_resource;
using rmm::mr::get_per_device_resource;
using rmm::mr::resource_configuration;

constexpr auto virtual_memory  = static_cast<cudaDeviceAttr>(102);  // the attribute has no name in the runtime
constexpr std::size_t mebibyte = std::size_t{1} << 20U;

struct ConfiguredResourceSim : Simulated {
  void SetUp() override
  {
    auto machine    = cudasim::environment_options();
    machine.devices = 3;
    start(machine);
  }
};

TEST_F(ConfiguredResourceSim, FreesEverythingInTheEnd)
{
  std::vector<char const*> texts{"binning,smallest=256,largest=1KiB,upstream=(pool,initial=1MiB)",
                                 "cuda_async,initial=1MiB",
                                 "pool,initial=1MiB",
                                 "pinned_pool,initial=4MiB",
                                 "pool,initial=1MiB,upstream=(managed,statistics),statistics,prefetch",
                                 "system",
                                 "sam_headroom,headroom=1GiB"};
  if (CUDART_VERSION >= 13000) { texts.push_back("cuda_async_managed,threshold=0"); }
  for (auto const* const text : texts) {
    cudasim::set_device_attribute(0, cudaDevAttrPageableMemoryAccess, 1);
    {
      configured_resource const resource{text};
      void* const ptr = resource->allocate(1000);
      resource->deallocate(ptr, 1000);
    }
    EXPECT_EQ(cudasim::leak_report(), "") << text;
  }
}

TEST_F(ConfiguredResourceSim, ACallThatFailsLeavesNothingBehind)
{
  std::uint64_t failures = 0;
  for (auto const* const call : {"cudaMalloc",
                                 "cudaMemGetInfo",
                                 "cudaMemPoolCreate",
                                 "cudaMemPoolSetAttribute",
                                 "cudaMallocFromPoolAsync",
                                 "cudaHostAlloc",
                                 "cudaHostRegister"}) {
    for (auto const* const text : {"pool,initial=1MiB,upstream=cuda_async,statistics",
                                   "pool,initial=50%free,limit=1%",
                                   "pinned_pool,initial=4MiB",
                                   "recommended"}) {
      failures += cudasim::for_each_fault(
        [&] {
          try {
            configured_resource const resource{text};
          } catch (std::exception const&) {}
        },
        [&](auto) {
          EXPECT_EQ(cudasim::leak_report(), "") << text << ", " << call;
          EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << text << ", " << call;
        },
        cudaErrorMemoryAllocation,
        call);
    }
  }
  EXPECT_GE(failures, 7U);
}

TEST_F(ConfiguredResourceSim, IsDestroyedWithItsDeviceCurrent)
{
  {
    ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
    configured_resource const resource{"cuda_async,initial=1MiB"};
    EXPECT_EQ(resource.device(), cuda_device_id{2});
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  EXPECT_EQ(rmm::get_current_cuda_device(), cuda_device_id{0});
  EXPECT_EQ(cudasim::usage(2).reserved_by_pools, 0);
}

TEST_F(ConfiguredResourceSim, ThePoolsOfTheDriverHaveTheirThresholds)
{
  auto const threshold_of = [](cudaMemPool_t pool) {
    std::uint64_t bytes{};
    EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes), cudaSuccess);
    return bytes;
  };
  auto const all = rmm::available_device_memory().second;
  std::vector<std::pair<std::string, std::uint64_t>> const options{
    {"", all}, {",threshold=3MiB", 3 * mebibyte}, {",threshold=0", 0}, {",threshold=25%", all / 4}};
  for (auto const& [option, expected] : options) {
    configured_resource const resource{"cuda_async" + option};
    EXPECT_EQ(threshold_of(resource.find<rmm::mr::cuda_async_memory_resource>()->pool_handle()), expected) << option;
    if (CUDART_VERSION < 13000) { continue; }
    configured_resource const shared{"cuda_async_managed" + option};
    EXPECT_EQ(threshold_of(shared.find<rmm::mr::cuda_async_managed_memory_resource>()->pool_handle()), expected)
      << option;
  }
}

TEST_F(ConfiguredResourceSim, ThePoolOfTheDriverIsTheOneThatOthersUse)
{
  configured_resource const resource{"cuda_async_view"};
  rmm::cuda_stream const stream;
  void* const ours = resource->allocate(mebibyte, stream);
  resource->deallocate(ours, mebibyte, stream);
  void* theirs{};
  ASSERT_EQ(cudaMallocAsync(&theirs, mebibyte, stream.value()), cudaSuccess);
  EXPECT_EQ(theirs, ours);
  ASSERT_EQ(cudaFreeAsync(theirs, stream.value()), cudaSuccess);
}

TEST_F(ConfiguredResourceSim, ATrimReachesThroughToTheDriversPool)
{
  configured_resource const resource{"cached"};
  resource->deallocate(resource->allocate(mebibyte), mebibyte);
  EXPECT_GT(cudasim::usage(0).reserved_by_pools, 0U);
  resource.find<rmm::mr::trimmable_resource>()->release_unused();
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
}

TEST_F(ConfiguredResourceSim, TheElasticPoolHasItsOptions)
{
  configured_resource const resource{"elastic,initial=3MiB,max=64MiB,chunk=4MiB,peer_access,share=fd"};
  auto* const pool = resource.find<rmm::mr::elastic_pool_memory_resource>();
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->chunk_bytes(), 4 * mebibyte);
  EXPECT_EQ(pool->mapped_bytes(), 4 * mebibyte);
  EXPECT_THROW(resource->allocate(65 * mebibyte), rmm::out_of_memory);
}

TEST_F(ConfiguredResourceSim, ThePoolIsSharedInTheConfiguredWays)
{
  constexpr int descriptor = 1;
  constexpr int fabric     = 8;
  auto const needs         = [](char const* text, int ways) {
    for (int const supported : {0, descriptor, fabric, descriptor + fabric}) {
      cudasim::set_device_attribute(0, cudaDevAttrMemoryPoolSupportedHandleTypes, supported);
      if ((supported & ways) == ways) {
        EXPECT_NO_THROW(configured_resource{text}) << text << " with " << supported;
      } else {
        EXPECT_THROW(configured_resource{text}, rmm::logic_error) << text << " with " << supported;
      }
    }
  };
  needs("cuda_async", 0);
  needs("cuda_async,share=none", 0);
  needs("cuda_async,share=fd", descriptor);
  needs("cuda_async,share=fabric", fabric);
  needs("cuda_async,share=fd+fabric", descriptor + fabric);
}

TEST_F(ConfiguredResourceSim, TheRecommendedResourceFitsTheDevice)
{
  using memory       = rmm::mr::device_memory_resource;
  auto const elastic = rmm::mr::make_recommended_resource();
  EXPECT_NE(elastic.find<rmm::mr::elastic_pool_memory_resource>(), nullptr);

  cudasim::set_device_attribute(0, virtual_memory, 0);
  auto const cached = rmm::mr::make_recommended_resource();
  EXPECT_NE(cached.find<rmm::mr::cached_memory_resource<memory>>(), nullptr);
  EXPECT_NE(cached.find<rmm::mr::cuda_async_memory_resource>(), nullptr);

  cudasim::set_device_attribute(0, cudaDevAttrMemoryPoolsSupported, 0);
  auto const plain = rmm::mr::make_recommended_resource();
  EXPECT_NE(plain.find<rmm::mr::pool_memory_resource<memory>>(), nullptr);
  EXPECT_NE(plain.find<rmm::mr::cuda_memory_resource>(), nullptr);
}

/// Registered resources stay alive, so each test ends the machine together with them.
struct UseConfiguredResourceSim : ConfiguredResourceSim {
  void TearDown() override
  {
    for (int device = 0; device < 3; ++device) { rmm::mr::reset_per_device_resource(cuda_device_id{device}); }
    cudasim::reset();
    ConfiguredResourceSim::TearDown();
  }
};

TEST_F(UseConfiguredResourceSim, EveryDeviceHasItsOwn)
{
  rmm::mr::use_configured_resource(resource_configuration::parse("cuda_async,initial=1MiB"));
  for (int device = 0; device < 3; ++device) {
    EXPECT_GE(cudasim::usage(device).reserved_by_pools, mebibyte) << device;
    EXPECT_NE(dynamic_cast<rmm::mr::cuda_async_memory_resource*>(get_per_device_resource(cuda_device_id{device})),
              nullptr);
  }
  EXPECT_EQ(rmm::get_current_cuda_device(), cuda_device_id{0});
}

TEST_F(ConfiguredResourceSim, ZeroesMemoryThatIsFreedOnADestroyedStream)
{
  configured_resource const resource{"pool,initial=4KiB,max=4KiB,scrub"};
  auto gone = std::make_optional<rmm::cuda_stream>();
  rmm::cuda_stream const other;  // created now, so that it does not get the destroyed stream's handle
  auto const handle  = gone->view();
  void* const secret = resource->allocate(4096, handle);
  ASSERT_EQ(cudaMemsetAsync(secret, 0x5A, 4096, handle.value()), cudaSuccess);
  gone.reset();
  resource->deallocate(secret, 4096, handle);
  EXPECT_FALSE(cudasim::violations().empty()) << "the stream still takes work";
  cudasim::clear_violations();
  std::vector<char> next(4096, 1);
  void* const reused = resource->allocate(4096, other);
  ASSERT_EQ(reused, secret);
  ASSERT_EQ(cudaMemcpy(next.data(), reused, 4096, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(next, std::vector<char>(4096, 0));
  resource->deallocate(reused, 4096, other);
}

TEST_F(UseConfiguredResourceSim, ChangesNothingIfADeviceIsTooSmall)
{
  auto* const before = get_per_device_resource(cuda_device_id{0});
  cudasim::set_device_attribute(2, cudaDevAttrMemoryPoolsSupported, 0);
  EXPECT_THROW(rmm::mr::use_configured_resource(resource_configuration::parse("cuda_async,initial=1MiB")),
               rmm::logic_error);
  EXPECT_EQ(get_per_device_resource(cuda_device_id{0}), before);
  EXPECT_EQ(cudasim::leak_report(), "");
}

TEST_F(UseConfiguredResourceSim, RefusesDevicesThatDoNotExist)
{
  auto const pool    = resource_configuration::parse("pool,initial=1MiB");
  auto* const before = get_per_device_resource(cuda_device_id{0});
  for (int const device : {-1, 3}) {
    EXPECT_THROW(rmm::mr::use_configured_resource(pool, {cuda_device_id{1}, cuda_device_id{device}}), rmm::logic_error);
    EXPECT_EQ(get_per_device_resource(cuda_device_id{0}), before);
    EXPECT_EQ(get_per_device_resource(cuda_device_id{1}), before);
  }
  EXPECT_EQ(cudasim::usage(1).allocated, 0);
}

TEST_F(UseConfiguredResourceSim, OnlyTheDevicesNamedAreTouched)
{
  auto* const before = get_per_device_resource(cuda_device_id{0});
  rmm::mr::use_configured_resource(resource_configuration::parse("pool,initial=1MiB"), {cuda_device_id{1}});
  EXPECT_EQ(get_per_device_resource(cuda_device_id{0}), before);
  EXPECT_NE(get_per_device_resource(cuda_device_id{1}), before);
  EXPECT_EQ(cudasim::usage(2).allocated, 0);
}

}  // namespace
