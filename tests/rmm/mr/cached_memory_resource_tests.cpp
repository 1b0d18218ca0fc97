// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/device_resource_suite.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/recovery.hpp>
#include <rmm/resource_ref.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace {

using rmm::mr::cached_memory_resource;
using rmm::mr::device_memory_resource;
using rmm::test::counting_upstream;

using sizes = std::vector<std::size_t>;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

static_assert(rmm::detail::polyfill::async_resource_with<cached_memory_resource<rmm::mr::pinned_host_memory_resource>,
                                                         cuda::mr::host_accessible,
                                                         cuda::mr::device_accessible>);
static_assert(!rmm::detail::polyfill::async_resource_with<cached_memory_resource<rmm::mr::cuda_memory_resource>,
                                                          cuda::mr::host_accessible>);

struct CachedMemoryResource : ::testing::Test {
  counting_upstream upstream;
  std::optional<cached_memory_resource<counting_upstream>> cache{std::in_place, &upstream, 0, std::nullopt, mebibyte};
  rmm::cuda_stream stream;

  ~CachedMemoryResource() override
  {
    cache.reset();
    EXPECT_EQ(upstream.live_count(), 0U);
  }

  void make(std::optional<std::size_t> maximum) { cache.emplace(&upstream, 0, maximum, mebibyte); }

  void* allocate(std::size_t bytes) { return cache->allocate(bytes, stream); }
  void deallocate(void* ptr, std::size_t bytes) { cache->deallocate(ptr, bytes, stream); }
};

TEST_F(CachedMemoryResource, TakesNothingBeforeItsFirstAllocation)
{
  EXPECT_EQ(upstream.asked(), sizes{});
  EXPECT_EQ(cache->pool_size(), 0);
  EXPECT_EQ(cache->get_upstream(), &upstream);
}

TEST_F(CachedMemoryResource, TakesItsInitialSizeAtOnce)
{
  cache.emplace(&upstream, 3 * mebibyte - 1, std::nullopt, mebibyte);
  EXPECT_EQ(upstream.asked(), sizes{3 * mebibyte});
  deallocate(allocate(3 * mebibyte), 3 * mebibyte);
  EXPECT_EQ(upstream.asked(), sizes{3 * mebibyte});
}

TEST_F(CachedMemoryResource, TakesAnInitialSizeThatIsItsMaximum)
{
  cache.emplace(&upstream, 1000, 1000, mebibyte);
  EXPECT_EQ(upstream.asked(), sizes{768}) << "no more than the maximum";
  EXPECT_THROW((cached_memory_resource<counting_upstream>{&upstream, 1000, 999}), rmm::logic_error);
}

TEST_F(CachedMemoryResource, ReportsThatUpstreamRefusesItsInitialSize)
{
  upstream.refuse_above(mebibyte);
  EXPECT_THROW((cached_memory_resource<counting_upstream>{&upstream, 2 * mebibyte}), rmm::out_of_memory);
}

TEST_F(CachedMemoryResource, TakesABlockForManySmallRequests)
{
  std::vector<void*> live;
  for (int i = 0; i < 100; ++i) { live.push_back(allocate(4096)); }
  EXPECT_EQ(upstream.asked(), sizes{mebibyte});
  for (void* const ptr : live) { deallocate(ptr, 4096); }
}

TEST_F(CachedMemoryResource, TakesLargeRequestsAsBlocksOfTheirOwn)
{
  void* const ptr = allocate(5 * mebibyte + 1);
  EXPECT_EQ(upstream.asked(), sizes{5 * mebibyte + 256});
  deallocate(ptr, 5 * mebibyte + 1);
}

TEST_F(CachedMemoryResource, TakesLargerBlocksAsItGrows)
{
  void* const large = allocate(80 * mebibyte);
  void* const small = allocate(1);
  EXPECT_EQ(upstream.asked(), (sizes{80 * mebibyte, 10 * mebibyte}));
  deallocate(large, 80 * mebibyte);
  deallocate(small, 1);
}

TEST_F(CachedMemoryResource, ServesFromItsFreeMemory)
{
  for (int i = 0; i < 10; ++i) { deallocate(allocate(3 * mebibyte), 3 * mebibyte); }
  EXPECT_EQ(upstream.asked(), sizes{3 * mebibyte});
}

TEST_F(CachedMemoryResource, RequestsLessIfUpstreamRefusesABlock)
{
  upstream.refuse_above(mebibyte / 4);
  void* const ptr = allocate(1000);
  EXPECT_EQ(upstream.asked(), (sizes{mebibyte, mebibyte / 2, mebibyte / 4}));
  deallocate(ptr, 1000);
}

TEST_F(CachedMemoryResource, TakesNoMoreThanItsMaximum)
{
  make(5 * mebibyte / 2 + 100);
  void* const first  = allocate(2 * mebibyte);
  void* const second = allocate(mebibyte / 2);
  EXPECT_EQ(upstream.asked(), (sizes{2 * mebibyte, mebibyte / 2}));
  EXPECT_THROW(allocate(1), rmm::out_of_memory);
  deallocate(first, 2 * mebibyte);
  deallocate(second, mebibyte / 2);
}

TEST_F(CachedMemoryResource, ReportsItsMaximum)
{
  make(2 * mebibyte);
  try {
    allocate(3 * mebibyte);
    FAIL();
  } catch (rmm::out_of_memory const& error) {
    ASSERT_NE(error.report(), nullptr);
    EXPECT_EQ(error.report()->maximum_bytes, 2 * mebibyte);
  }
}

TEST_F(CachedMemoryResource, GivesUnusedBlocksBackToServeALargerRequest)
{
  make(5 * mebibyte);
  deallocate(allocate(3 * mebibyte), 3 * mebibyte);
  void* const ptr = allocate(4 * mebibyte);
  EXPECT_EQ(cache->pool_size(), 4 * mebibyte);
  deallocate(ptr, 4 * mebibyte);
}

TEST_F(CachedMemoryResource, GivesSmallBlocksBackOnlyIfUpstreamHasNoMore)
{
  deallocate(allocate(1000), 1000);
  void* const first = allocate(4 * mebibyte);
  EXPECT_EQ(cache->pool_size(), 5 * mebibyte);
  EXPECT_EQ(cache->figures().recovery[rmm::recovery_rung::trim].tried, 0U);
  deallocate(first, 4 * mebibyte);

  make(5 * mebibyte);
  deallocate(allocate(1000), 1000);
  void* const second = allocate(9 * mebibyte / 2);
  EXPECT_EQ(cache->pool_size(), 9 * mebibyte / 2);
  EXPECT_EQ(cache->figures().recovery[rmm::recovery_rung::trim].served, 1U);
  deallocate(second, 9 * mebibyte / 2);
}

TEST_F(CachedMemoryResource, TrimGivesEmptyBlocksBack)
{
  void* const kept = allocate(1000);
  deallocate(allocate(3 * mebibyte), 3 * mebibyte);
  EXPECT_EQ(cache->trim_to(0), 3 * mebibyte);
  EXPECT_EQ(cache->pool_size(), mebibyte);
  deallocate(kept, 1000);
  EXPECT_EQ(cache->release_unused(), mebibyte);
  EXPECT_EQ(cache->pool_size(), 0);
  EXPECT_EQ(upstream.live_count(), 0U);
}

TEST_F(CachedMemoryResource, TrimKeepsTheRequestedBytes)
{
  sizes const live{2 * mebibyte, 3 * mebibyte, 4 * mebibyte};
  std::vector<void*> pointers;
  for (auto const bytes : live) { pointers.push_back(allocate(bytes)); }
  for (std::size_t i = 0; i < live.size(); ++i) { deallocate(pointers[i], live[i]); }
  EXPECT_EQ(cache->trim_to(9 * mebibyte), 0);
  EXPECT_EQ(cache->trim_to(5 * mebibyte), 4 * mebibyte);
  EXPECT_EQ(cache->trim_to(5 * mebibyte - 1), 3 * mebibyte);
  EXPECT_EQ(cache->pool_size(), 2 * mebibyte);
}

TEST_F(CachedMemoryResource, ServesAfterATrim)
{
  deallocate(allocate(1000), 1000);
  cache->release_unused();
  void* const ptr = allocate(1000);
  EXPECT_EQ(upstream.asked(), (sizes{mebibyte, mebibyte}));
  deallocate(ptr, 1000);
}

TEST_F(CachedMemoryResource, TrimAlsoTrimsUpstream)
{
  rmm::mr::cuda_async_memory_resource async;
  cached_memory_resource over_async{&async};
  over_async.deallocate(over_async.allocate(mebibyte, stream), mebibyte, stream);
  stream.synchronize();
  EXPECT_GE(over_async.trim_to(0), mebibyte);
  EXPECT_EQ(over_async.pool_size(), 0);
  EXPECT_EQ(async.trim_to(0), 0U) << "the driver's pool kept something";

  device_memory_resource* const base = &async;
  cached_memory_resource over_base{base};
  over_base.deallocate(over_base.allocate(mebibyte, stream), mebibyte, stream);
  over_base.release_unused();
  EXPECT_EQ(async.trim_to(0), 0U);
}

TEST_F(CachedMemoryResource, IsRecognisedAmongResources)
{
  device_memory_resource* const base = &*cache;
  EXPECT_EQ(dynamic_cast<rmm::mr::trimmable_resource*>(base), &*cache);
}

TEST_F(CachedMemoryResource, TakesAReferenceForAnUpstream)
{
  rmm::device_async_resource_ref const ref{upstream};
  cached_memory_resource over_ref{ref, 0, mebibyte};
  void* const ptr = over_ref.allocate(1000, stream);
  EXPECT_EQ(upstream.asked(), sizes{mebibyte});
  EXPECT_EQ(over_ref.get_upstream(), nullptr);
  over_ref.deallocate(ptr, 1000, stream);
  EXPECT_EQ(over_ref.trim_to(0), mebibyte);
}

TEST_F(CachedMemoryResource, RefusesInvalidArguments)
{
  EXPECT_THROW((cached_memory_resource<counting_upstream>{nullptr}), rmm::logic_error);
  EXPECT_THROW((cached_memory_resource<counting_upstream>{&upstream, 0, std::nullopt, 0}), rmm::logic_error);
  EXPECT_THROW((cached_memory_resource<counting_upstream>{&upstream, 2 * mebibyte, mebibyte}), rmm::logic_error);
  EXPECT_THROW(allocate(std::numeric_limits<std::size_t>::max()), rmm::out_of_memory);
}

TEST_F(CachedMemoryResource, TakesAnyBlockSize)
{
  cached_memory_resource<counting_upstream> tiny{&upstream, 0, std::nullopt, 1};
  tiny.deallocate(tiny.allocate(1, stream), 1, stream);
  EXPECT_EQ(tiny.pool_size(), 256);
  cached_memory_resource<counting_upstream> huge{&upstream, 0, mebibyte, std::numeric_limits<std::size_t>::max()};
  huge.deallocate(huge.allocate(1, stream), 1, stream);
  EXPECT_EQ(huge.pool_size(), mebibyte);
}

}  // namespace

namespace rmm::test {

struct cache_over_the_drivers_pool {
  mr::cuda_async_memory_resource async;
  mr::cached_memory_resource<mr::cuda_async_memory_resource> mr{&async};
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cached, DeviceMrRefTest, ::testing::Types<cache_over_the_drivers_pool>);

}  // namespace rmm::test
