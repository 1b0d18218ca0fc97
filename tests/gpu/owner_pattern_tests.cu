// SPDX-License-Identifier: Apache-2.0
//
// On a real device: kernels fill each block with a pattern of its owner and look for it again before the block is freed, on
// streams of several threads that share the suballocators. A block that reaches a stream too early holds foreign bytes. Takes
// RMM_PATTERN_SECONDS seconds for each test, 5 if that is not set.

#include "owner_pattern.cuh"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

std::chrono::duration<double> time_for_a_test()
{
  auto const* const given = std::getenv("RMM_PATTERN_SECONDS");
  return std::chrono::duration<double>{given != nullptr ? std::strtod(given, nullptr) : 5.0};
}

struct OwnerPattern : ::testing::Test {
  static constexpr std::size_t MiB = std::size_t{1} << 20;

  /// The calling thread calls `beside` over and over meanwhile.
  static void run(rmm::mr::device_memory_resource& mr, std::size_t largest, std::function<void()> const& beside = {})
  {
    auto const seen = rmm::test::owner_threads{mr, largest}.run(4, time_for_a_test(), beside);
    EXPECT_EQ(seen.foreign, 0U);
    EXPECT_GT(seen.steps, 100U);  // an elastic pool that is trimmed all the time maps memory in most of them
    RecordProperty("steps", std::to_string(seen.steps));
  }

  rmm::mr::cuda_memory_resource cuda_;
};

TEST_F(OwnerPattern, HoldsOnATightPool)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 32 * MiB, 32 * MiB};
  run(mr, 2 * MiB);
  auto const now = mr.figures();
  EXPECT_EQ(now.live_bytes, 0U);
  EXPECT_GT(now.from_other_streams + now.from_other_caches + now.put_together, 0U);
}

TEST_F(OwnerPattern, HoldsOnAPoolThatGrows)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 0};
  run(mr, 4 * MiB);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnAVeryTightPoolOfSmallBlocks)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, MiB / 2, MiB / 2};
  run(mr, 8 * 1024);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnAPoolWhoseCachesKeepLargeBlocks)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 1024 * MiB, 1024 * MiB};
  rmm::test::owner_threads threads{mr, MiB};
  threads.set_frequent_size(3 * MiB / 2);
  rmm::cuda_stream const stream;
  int served{};
  auto const seen = threads.run(4, time_for_a_test(), [&] {  // the largest run has memory of several caches
    served += threads.use_block(mr.figures().largest_free_bytes, stream) ? 1 : 0;
  });
  EXPECT_EQ(seen.foreign, 0U);
  EXPECT_GT(seen.steps, 100U);
  EXPECT_GT(served, 0);
  RecordProperty("steps", std::to_string(seen.steps));
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_GT(mr.figures().put_together, 0U);
}

TEST_F(OwnerPattern, HoldsWhereAnotherStreamTakesAKeptBlock)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 1024 * MiB, 1024 * MiB};
  rmm::device_scalar<unsigned long long> foreign{0, rmm::cuda_stream_default, &cuda_};
  rmm::cuda_stream const other;
  mr.deallocate(mr.allocate(256, other), 256, other);  // the only cache would keep all blocks
  cudaStream_t raw{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
  rmm::test::owned_block kept{nullptr, 3 * MiB / 2, rmm::cuda_stream_view{raw}, 1};
  for (int i = 0; i < 100; ++i) {  // a frequent size
    kept.ptr = mr.allocate(kept.bytes, kept.stream);
    mr.deallocate(kept.ptr, kept.bytes, kept.stream);
  }
  kept.ptr = mr.allocate(kept.bytes, kept.stream);
  kept.fill();
  kept.verify(foreign.data());  // loads the kernels
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  rmm::test::delay_kernel<<<1, 1, 0, raw>>>(100'000'000);
  kept.verify(foreign.data());
  mr.deallocate(kept.ptr, kept.bytes, kept.stream);

  rmm::test::owned_block all{mr.allocate(1024 * MiB, other), 1024 * MiB, other, 2};
  all.fill();
  all.verify(foreign.data());
  EXPECT_EQ(cudaStreamQuery(raw), cudaErrorNotReady);  // nothing waited on the host
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(foreign.value(rmm::cuda_stream_default), 0U);
  EXPECT_EQ(cudaStreamDestroy(raw), cudaSuccess);
  mr.deallocate(all.ptr, all.bytes, other);
}

TEST_F(OwnerPattern, HoldsOnAPoolWhoseCachesGatherLargeBlocks)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 1024 * MiB, 1024 * MiB};
  void* const most = mr.allocate(900 * MiB);
  run(mr, MiB);
  mr.deallocate(most, 900 * MiB);
  auto const now = mr.figures();
  EXPECT_EQ(now.live_bytes, 0U);
  EXPECT_GT(now.from_other_streams + now.from_other_caches + now.put_together, 0U);
}

/// Frees so many blocks of one stream that its cache gathers, while its work is delayed. Another stream takes their memory.
struct GatheredBlocks : OwnerPattern, ::testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutEvent, GatheredBlocks, ::testing::Values(9, 8));

TEST_P(GatheredBlocks, ReachAnotherStreamInOrder)
{
  constexpr std::size_t bytes = 100 * 1024;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 1024 * MiB, 1024 * MiB};
  rmm::device_scalar<unsigned long long> foreign{0, rmm::cuda_stream_default, &cuda_};
  rmm::cuda_stream const stream;
  rmm::cuda_stream const other;
  void* const most = mr.allocate(900 * MiB, other);
  mr.deallocate(mr.allocate(bytes, stream), bytes, stream);
  mr.deallocate(mr.allocate(MiB, other), MiB, other);  // finds that memory is scarce
  std::vector<rmm::test::owned_block> blocks(GetParam(), {nullptr, bytes, stream, 1});
  for (auto& each : blocks) {
    each.ptr = mr.allocate(bytes, stream);
    each.fill();
  }
  blocks.front().verify(foreign.data());  // loads the kernels
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  rmm::test::delay_kernel<<<1, 1, 0, stream.value()>>>(100'000'000);
  for (auto& each : blocks) { each.verify(foreign.data()); }
  for (auto& each : blocks) { mr.deallocate(each.ptr, bytes, stream); }

  rmm::test::owned_block rest{nullptr, 124 * MiB, other, 2};
  rest.ptr = mr.allocate(rest.bytes, other);
  rest.fill();
  rest.verify(foreign.data());
  EXPECT_EQ(cudaStreamQuery(stream.value()), cudaErrorNotReady);  // nothing waited on the host
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(foreign.value(rmm::cuda_stream_default), 0U);
  mr.deallocate(rest.ptr, rest.bytes, other);
  mr.deallocate(most, 900 * MiB, other);
}

TEST_F(OwnerPattern, HoldsOnAnArena)
{
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 32 * MiB};
  run(mr, 2 * MiB);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnATightElasticPool)
{
  rmm::mr::elastic_pool_memory_resource mr{0, 32 * MiB};
  run(mr, 2 * MiB);
  auto const now = mr.figures();
  EXPECT_EQ(now.live_bytes, 0U);
  EXPECT_GT(now.from_other_streams + now.from_other_caches + now.put_together, 0U);
}

TEST_F(OwnerPattern, HoldsOnAnElasticPoolThatIsTrimmedMeanwhile)
{
  rmm::mr::elastic_pool_memory_resource mr;
  std::size_t released{};
  run(mr, 8 * MiB, [&] { released += mr.trim_to(mr.pool_size() / 2); });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
  EXPECT_GT(released, 0U);
}

TEST_F(OwnerPattern, HoldsOnACacheOfTheDriversPoolThatIsTrimmedMeanwhile)
{
  rmm::mr::cuda_async_memory_resource async;
  rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> mr{&async};
  run(mr, 4 * MiB, [&] { mr.trim_to(mr.pool_size() / 2); });
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

TEST_F(OwnerPattern, HoldsOnAFixedSizeResource)
{
  rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda_, 64 * 1024, 64};
  run(mr, 64 * 1024);
  EXPECT_EQ(mr.figures().live_bytes, 0U);
}

}  // namespace
