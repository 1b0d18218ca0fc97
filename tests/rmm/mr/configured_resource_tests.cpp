// SPDX-License-Identifier: Apache-2.0
#include "../../support/temporary_folder.hpp"

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/base/host_memory.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/make_recommended_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

using rmm::mr::configured_resource;
using rmm::mr::device_memory_resource;
using rmm::mr::detail::file_name_for;

using memory  = device_memory_resource;
using pool_mr = rmm::mr::pool_memory_resource<memory>;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

/// Allocates and frees.
void use(device_memory_resource& resource, std::size_t bytes = 1000)
{
  rmm::cuda_stream const stream;
  void* const ptr = resource.allocate(bytes, stream);
  EXPECT_NE(ptr, nullptr);
  resource.deallocate(ptr, bytes, stream);
  stream.synchronize();
}

struct EveryConfiguration : ::testing::TestWithParam<char const*> {};

TEST_P(EveryConfiguration, MakesAResourceThatServes)
{
  configured_resource const resource{GetParam()};
  use(*resource);
  EXPECT_EQ(resource.device(), rmm::get_current_cuda_device());
}

INSTANTIATE_TEST_SUITE_P(
  Resources,
  EveryConfiguration,
  ::testing::Values("arena,size=1MiB",
                    "binning,smallest=256,largest=1KiB",
                    "binning,upstream=cuda",
                    "cached",
                    "cached,initial=1MiB,max=4MiB,block=2MiB,upstream=cuda",
                    "cuda",
                    "cuda_async",
                    "cuda_async,initial=1MiB,threshold=0,share=none",
                    "cuda_async_view",
                    "elastic,initial=1MiB,max=1GiB,decay_ms=1000",
                    "elastic,tags",
                    "fixed_size,block=4KiB,preallocate=4",
                    "managed",
                    "pinned_host",
                    "pinned_pool,initial=1MiB,max=2MiB,near_device,threads=1",
                    "pool",
                    "pool,initial=1MiB,max=2MiB,upstream=cuda_async",
                    "pool,upstream=(registered_host,node=0)",
                    "recommended",
                    "recommended,initial=1MiB,max=1GiB",
                    "cuda,scrub,guard,alignment=4KiB,alignment_threshold=2,limit=1MiB,statistics,thread_safe",
                    "managed,prefetch"));

TEST(ConfiguredResource, HasTheSizesOfItsConfiguration)
{
  configured_resource const resource{"pool,initial=2MiB,max=3MiB"};
  auto* const pool = resource.find<pool_mr>();
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->pool_size(), 2 * mebibyte);
  EXPECT_THROW(resource->allocate(4 * mebibyte), rmm::out_of_memory);
}

TEST(ConfiguredResource, PoolsTrackTagsIfConfigured)
{
  for (std::string const name : {"cached", "elastic", "pool"}) {
    for (bool const asked : {false, true}) {
      configured_resource const resource{name + (asked ? ",tags" : "")};
      rmm::tag_scope const scope{"of a configuration"};
      void* const ptr    = resource->allocate(1000);
      auto const holders = resource.find<rmm::mr::detail::growing_pool>()->live_by_tag_name();
      ASSERT_EQ(holders.size(), asked ? 1U : 0U) << name;
      if (asked) { EXPECT_EQ(holders[0].tag, "of a configuration") << name; }
      resource->deallocate(ptr, 1000);
    }
  }
}

TEST(ConfiguredResource, RoundsSizesOfPoolsDown)
{
  EXPECT_EQ(configured_resource{"pool,initial=1000"}.find<pool_mr>()->pool_size(), 768);
  configured_resource const resource{"pool,max=1200"};
  use(*resource, 1024);
  EXPECT_THROW(resource->allocate(1100), rmm::out_of_memory);
}

TEST(ConfiguredResource, SharesReferToTheUsableMemory)
{
  auto const total      = rmm::available_device_memory().second;
  auto const host_total = rmm::detail::host_memory_info().second;
  using limiting        = rmm::mr::limiting_resource_adaptor<memory>;
  EXPECT_EQ(configured_resource{"cuda,limit=80%"}.find<limiting>()->get_allocation_limit(),
            total / 5 * 4 + total % 5 * 4 / 5);
  std::size_t before{};
  std::size_t limit{};
  std::size_t after{};
  int tries = 1000;
  do {  // other programs may allocate and free meanwhile
    before = rmm::available_device_memory().first;
    limit  = configured_resource{"cuda,limit=10%free"}.find<limiting>()->get_allocation_limit();
    after  = rmm::available_device_memory().first;
  } while (before != after && --tries != 0);
  ASSERT_EQ(before, after);
  EXPECT_LE(limit, before / 10);
  EXPECT_GE(limit, before / 10 - 256);
  auto const of_host =
    configured_resource{"pool,upstream=pinned_host,limit=50%"}.find<limiting>()->get_allocation_limit();
  EXPECT_EQ(of_host, host_total / 2);
}

TEST(ConfiguredResource, RefusesSharesThatContradictSizes)
{
  EXPECT_THROW(configured_resource{"pool,initial=1%,max=256"}, std::invalid_argument);
}

TEST(ConfiguredResource, ReportsErrorsInTheTextBeforeItMakesAnything)
{
  EXPECT_THROW(configured_resource{"pool,maximum=1GiB"}, std::invalid_argument);
}

TEST(ConfiguredResource, AddsAdaptorsInAFixedOrder)
{
  rmm::test::temporary_folder const folder;
  configured_resource const resource{"cuda,statistics,alignment=1MiB,limit=16MiB,log=\"" + (folder / "log.csv") + "\""};
  void* const ptr = resource->allocate(100);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, mebibyte));
  EXPECT_EQ(resource.find<rmm::mr::statistics_resource_adaptor<memory>>()->get_bytes_counter().value, 100);
  EXPECT_EQ(resource.find<rmm::mr::limiting_resource_adaptor<memory>>()->get_allocated_bytes(), 256);
  EXPECT_EQ(resource.get(), static_cast<memory*>(resource.find<rmm::mr::detail::csv_log_adaptor>()));
  EXPECT_EQ(resource.find<rmm::mr::thread_safe_resource_adaptor<memory>>(), nullptr);
  resource->deallocate(ptr, 100);
}

TEST(ConfiguredResource, GuardsTheProgramsAllocations)
{
  configured_resource const resource{"cuda,statistics,guard"};
  EXPECT_NE(resource.find<rmm::mr::guard_resource_adaptor<memory>>(), nullptr);
  void* const ptr = resource->allocate(100);
  EXPECT_EQ(resource.find<rmm::mr::statistics_resource_adaptor<memory>>()->get_bytes_counter().value, 100);
  resource->deallocate(ptr, 100);
}

TEST(ConfiguredResource, ScrubsDirectlyAboveTheResource)
{
  configured_resource const resource{"cuda,guard,scrub"};
  auto* const scrub = resource.find<rmm::mr::scrub_resource_adaptor<memory>>();
  ASSERT_NE(scrub, nullptr);
  EXPECT_NE(dynamic_cast<rmm::mr::cuda_memory_resource*>(scrub->get_upstream()), nullptr);
}

TEST(ConfiguredResource, WritesALogForItsDevice)
{
  rmm::test::temporary_folder const folder;
  {
    configured_resource const resource{"cuda,log=\"" + (folder / "log.csv") + "\""};
    use(*resource, 12345);
  }
  auto const device = std::to_string(rmm::get_current_cuda_device().value());
  auto const log    = rmm::test::contents_of(folder / ("log.dev" + device + ".csv"));
  EXPECT_EQ(log.rfind("Thread,Time,Action,Pointer,Size,Stream\n", 0), 0);
  EXPECT_NE(log.find(",allocate,"), std::string::npos);
  EXPECT_NE(log.find(",12345,"), std::string::npos);
  EXPECT_NE(log.find(",free,"), std::string::npos);
}

TEST(ConfiguredResource, WritesABinaryTraceForItsDevice)
{
  rmm::test::temporary_folder const folder;
  configured_resource const resource{"cuda,log=\"" + (folder / "%%p.bin") + "\""};
  use(*resource);
  auto const* const trace = resource.find<rmm::mr::trace_resource_adaptor<memory>>();
  ASSERT_NE(trace, nullptr);
  auto const device = std::to_string(rmm::get_current_cuda_device().value());
  EXPECT_EQ(trace->get_file_name(), folder / ("%p.dev" + device + ".bin"));
}

TEST(ConfiguredResource, FailsIfALogCannotBeWritten)
{
  EXPECT_THROW(configured_resource{"cuda,log=/proc/none/log.bin"}, std::runtime_error);
  EXPECT_THROW(configured_resource{"cuda,log=/proc/none/log.csv"}, std::runtime_error);
}

TEST(ConfiguredResource, NamesFilesForDeviceAndProcess)
{
  auto const process = std::to_string(::getpid());
  EXPECT_EQ(file_name_for("log.csv", 3), "log.dev3.csv");
  EXPECT_EQ(file_name_for("a.b/log.x.csv", 10), "a.b/log.x.dev10.csv");
  EXPECT_EQ(file_name_for("log-%d.csv", 3), "log-3.csv");
  EXPECT_EQ(file_name_for("log", 3), "log.dev3");
  EXPECT_EQ(file_name_for("a.b/log", 3), "a.b/log.dev3");
  EXPECT_EQ(file_name_for("log-%p.csv", 3), "log-" + process + ".dev3.csv");
  EXPECT_EQ(file_name_for("%p-%d-%d.csv", 3), process + "-3-3.csv");
  EXPECT_EQ(file_name_for("100%%d%x%.csv", 3), "100%d%x%.dev3.csv");
}

TEST(ConfiguredResource, LivesAsLongAsItIsShared)
{
  std::shared_ptr<device_memory_resource> shared;
  {
    configured_resource resource{"pool,initial=1MiB,statistics"};
    configured_resource const moved{std::move(resource)};
    shared = moved.share();
  }
  use(*shared);
}

TEST(ConfiguredResource, KeepsItsConfiguration)
{
  EXPECT_EQ(configured_resource{"pool,max=1024KiB"}.configuration().text(), "pool,max=1MiB");
  EXPECT_EQ(configured_resource{"pool,max=1024KiB"}.explanation(), "");
}

TEST(RecommendedResource, IsMadeWithAnExplanation)
{
  auto const resource = rmm::mr::make_recommended_resource({{}, rmm::memory_amount::parse("50%")});
  use(*resource);
  EXPECT_EQ(resource.configuration().text(), "recommended,max=50%");
  EXPECT_NE(resource.explanation().find("The device has "), std::string::npos);
}

TEST(RecommendedResource, HoldsNoMoreThanItsMaximum)
{
  auto const resource = rmm::mr::make_recommended_resource({{}, rmm::memory_amount{8 * mebibyte}});
  use(*resource, 4 * mebibyte);
  EXPECT_THROW(resource->allocate(16 * mebibyte), rmm::out_of_memory);
}

/// Restores the current resource.
struct UseConfiguredResource : ::testing::Test {
  ~UseConfiguredResource() override { rmm::mr::set_current_device_resource(before); }

  device_memory_resource* before{rmm::mr::get_current_device_resource()};
};

TEST_F(UseConfiguredResource, RegistersForTheGivenDevices)
{
  rmm::mr::use_configured_resource(rmm::mr::resource_configuration::parse("pool,statistics"),
                                   {rmm::get_current_cuda_device()});
  auto* const current = rmm::mr::get_current_device_resource();
  ASSERT_NE(current, before);
  auto* const statistics = dynamic_cast<rmm::mr::statistics_resource_adaptor<memory>*>(current);
  ASSERT_NE(statistics, nullptr);
  rmm::device_buffer const buffer{1000, rmm::cuda_stream_default};
  EXPECT_GE(statistics->get_bytes_counter().value, 1000);
}

TEST_F(UseConfiguredResource, UsesTheConfigurationOfTheEnvironment)
{
  rmm::test::environment_variable const variable{"RMM_RESOURCE"};
  variable.unset();
  EXPECT_FALSE(rmm::mr::use_resource_from_environment());
  EXPECT_EQ(rmm::mr::get_current_device_resource(), before);
  variable.set("cuda,limit=1MiB");
  EXPECT_TRUE(rmm::mr::use_resource_from_environment());
  EXPECT_THROW(rmm::mr::get_current_device_resource()->allocate(2 * mebibyte), rmm::out_of_memory);
}

TEST_F(UseConfiguredResource, ChangesNothingIfTheEnvironmentVariableIsWrong)
{
  rmm::test::environment_variable const variable{"RMM_RESOURCE"};
  variable.set("cuda,limit");
  EXPECT_THROW(static_cast<void>(rmm::mr::use_resource_from_environment()), std::invalid_argument);
  EXPECT_EQ(rmm::mr::get_current_device_resource(), before);
}

}  // namespace
