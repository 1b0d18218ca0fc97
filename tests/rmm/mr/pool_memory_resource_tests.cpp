// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/pool_memory_resource.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include "../../support/counting_upstream.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::mr::cuda_memory_resource;
using rmm::mr::device_memory_resource;
using pool = rmm::mr::pool_memory_resource<device_memory_resource>;

std::uintptr_t address(void const* ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }

struct PoolMemoryResource : ::testing::Test {
  rmm::test::counting_upstream upstream;
  rmm::cuda_stream stream;

  void TearDown() override { EXPECT_EQ(upstream.live_count(), 0U) << "blocks that did not go back"; }
};

template <class Make>
std::string logic_error_of(Make&& make)
{
  try {
    make();
  } catch (rmm::logic_error const& e) {
    return e.what();
  }
  return "no logic_error";
}

TEST(PoolOverAnUpstreamWithAMistake, PassesItsLogicErrorOn)
{
  struct : device_memory_resource {
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
    {
      if (is_wrong) { throw rmm::logic_error{"a wrong environment variable"}; }
      return cuda.allocate(bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
    {
      cuda.deallocate(ptr, bytes, stream);
    }
    cuda_memory_resource cuda;
    bool is_wrong{true};
  } upstream;
  auto const wrong = std::string{"a wrong environment variable"};
  EXPECT_EQ(logic_error_of([&] { pool{&upstream, 1024}; }), wrong);

  pool mr{&upstream, 0};
  int calls = 0;
  mr.set_failure_callback([&calls](std::size_t, void*) { return ++calls < 3; });
  EXPECT_EQ(logic_error_of([&] { static_cast<void>(mr.allocate(1024)); }), wrong);
  EXPECT_EQ(calls, 0) << "no memory would help";
  upstream.is_wrong = false;
  mr.deallocate(mr.allocate(1024), 1024);
}

TEST_F(PoolMemoryResource, RefusesANullUpstream)
{
  auto const text = logic_error_of([] { pool{nullptr, 1024}; });
  EXPECT_NE(text.find("Unexpected null upstream pointer."), std::string::npos) << text;
}

TEST_F(PoolMemoryResource, RefusesSizesOtherThanMultiplesOf256)
{
  auto const initial = logic_error_of([&] { pool{&upstream, 1000}; });
  EXPECT_NE(initial.find("Initial pool size required to be a multiple of 256 bytes, but is 1000"), std::string::npos);
  auto const maximum = logic_error_of([&] { pool{&upstream, 1024, 2000}; });
  EXPECT_NE(maximum.find("Maximum pool size required to be a multiple of 256 bytes, but is 2000"), std::string::npos);
}

TEST(PoolMemoryResourceOverNothing, TakesANullPointerForAFailure)
{
  struct : device_memory_resource {
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
  } upstream;
  EXPECT_THROW((pool{&upstream, 1024}), rmm::out_of_memory);
  pool mr{&upstream, 0};
  EXPECT_THROW(static_cast<void>(mr.allocate(100)), rmm::out_of_memory);
  EXPECT_EQ(mr.pool_size(), 0U);
}

TEST_F(PoolMemoryResource, ChecksItsSizesBeforeItCallsUpstream)
{
  EXPECT_THROW((pool{&upstream, 1024, 256}), rmm::logic_error);
  EXPECT_THROW((pool{rmm::device_async_resource_ref{upstream}, 1024, 256}), rmm::logic_error);
  EXPECT_TRUE(upstream.asked().empty());
}

TEST_F(PoolMemoryResource, RefusesAnInitialSizeAboveTheMaximum)
{
  auto const text = logic_error_of([&] { pool{&upstream, 1024, 256}; });
  EXPECT_NE(text.find("Initial pool size exceeds the maximum pool size: 1024 bytes instead of at most 256"),
            std::string::npos);
}

TEST_F(PoolMemoryResource, TakesTheInitialSizeImmediatelyOrThrows)
{
  pool const mr{&upstream, 4096};
  EXPECT_EQ(upstream.asked(), std::vector<std::size_t>{4096});
  EXPECT_EQ(mr.pool_size(), 4096U);
  upstream.refuse_above(4096);
  EXPECT_THROW((pool{&upstream, 8192}), rmm::out_of_memory);
}

TEST_F(PoolMemoryResource, IsLazyWithAnInitialSizeOfZero)
{
  pool mr{&upstream, 0};
  EXPECT_TRUE(upstream.asked().empty());
  EXPECT_EQ(mr.pool_size(), 0U);
  void* const ptr = mr.allocate(1000, stream);
  EXPECT_EQ(upstream.asked(), std::vector<std::size_t>{1024});
  mr.deallocate(ptr, 1000, stream);
}

TEST_F(PoolMemoryResource, HoldsFourBlocksOf256BytesIn1KiB)
{
  pool mr{&upstream, 1024, 1024};
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(mr.allocate(256, stream));
    EXPECT_EQ(address(blocks.back()) % 256, 0U);
  }
  EXPECT_THROW(static_cast<void>(mr.allocate(1, stream)), rmm::out_of_memory);
  for (void* const block : blocks) { mr.deallocate(block, 256, stream); }
  void* const whole = mr.allocate(1024, stream);
  EXPECT_EQ(whole, *std::min_element(blocks.begin(), blocks.end()));
  mr.deallocate(whole, 1024, stream);
}

TEST_F(PoolMemoryResource, FillsASmallPoolWithBlocksOfManySizes)
{
  constexpr std::size_t all = std::size_t{2} << 20U;
  pool mr{&upstream, all, all};
  std::vector<std::pair<void*, std::size_t>> blocks;
  std::size_t live{};
  std::mt19937 random{1};
  try {
    for (;;) {
      auto const bytes = (1 + random() % 128) * 256;
      blocks.emplace_back(mr.allocate(bytes, stream), bytes);
      live += bytes;
    }
  } catch (rmm::out_of_memory const&) {}
  EXPECT_GE(live, all - 32 * 1024) << "the largest block does not fit, although more is free";
  for (auto const& [ptr, bytes] : blocks) { mr.deallocate(ptr, bytes, stream); }
}

TEST_F(PoolMemoryResource, ReturnsNullForZeroBytesAndTakesItBack)
{
  pool mr{&upstream, 0};
  void* const ptr = mr.allocate(0, stream);
  EXPECT_EQ(ptr, nullptr);
  EXPECT_NO_THROW(mr.deallocate(ptr, 0, stream));
  EXPECT_TRUE(upstream.asked().empty());
}

TEST_F(PoolMemoryResource, DoublesWithoutAMaximum)
{
  pool mr{&upstream, 1024};
  void* const a = mr.allocate(1024, stream);
  void* const b = mr.allocate(256, stream);
  void* const c = mr.allocate(8192, stream);
  EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{1024, 1024, 8192}));
  EXPECT_EQ(mr.pool_size(), 10240U);
  mr.deallocate(a, 1024, stream);
  mr.deallocate(b, 256, stream);
  mr.deallocate(c, 8192, stream);
}

TEST_F(PoolMemoryResource, GrowsByHalfOfWhatTheMaximumLeaves)
{
  pool mr{&upstream, 1024, 1024 + 4096};
  void* const a = mr.allocate(1024, stream);
  void* const b = mr.allocate(256, stream);
  void* const c = mr.allocate(2048, stream);
  EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{1024, 2048, 2048}));
  EXPECT_THROW(static_cast<void>(mr.allocate(2048, stream)), rmm::out_of_memory);
  EXPECT_EQ(upstream.asked().size(), 3U);  // the maximum is reached, so upstream was not asked
  mr.deallocate(a, 1024, stream);
  mr.deallocate(b, 256, stream);
  mr.deallocate(c, 2048, stream);
}

TEST_F(PoolMemoryResource, UsesTheWholeGranulesOfABlockOfAnOddSize)
{
  pool mr{&upstream, 256, 256 + 7 * 256};
  void* const a = mr.allocate(256, stream);
  upstream.refuse_above(512);
  void* const b = mr.allocate(256, stream);
  EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{256, 7 * 128, 7 * 64}));
  EXPECT_EQ(mr.figures().reserved_bytes, 256U + 7 * 64);
  EXPECT_EQ(mr.figures().free_bytes, 0U);
  mr.deallocate(a, 256, stream);
  mr.deallocate(b, 256, stream);
}

TEST_F(PoolMemoryResource, RequestsLessWhenUpstreamRefuses)
{
  pool mr{&upstream, 8192};
  void* const a = mr.allocate(8192, stream);
  upstream.refuse_above(2048);
  void* const b = mr.allocate(256, stream);
  EXPECT_EQ(upstream.asked(), (std::vector<std::size_t>{8192, 8192, 4096, 2048}));
  mr.deallocate(a, 8192, stream);
  mr.deallocate(b, 256, stream);
}

TEST_F(PoolMemoryResource, TrimsUnusedBlocksTheLargestFirst)
{
  pool mr{&upstream, 1024};
  void* const a = mr.allocate(1024, stream);
  void* const b = mr.allocate(4096, stream);
  void* const c = mr.allocate(16384, stream);
  ASSERT_EQ(upstream.asked(), (std::vector<std::size_t>{1024, 4096, 16384}));
  EXPECT_EQ(mr.trim_to(0), 0U) << "all blocks are in use";
  mr.deallocate(b, 4096, stream);
  mr.deallocate(c, 16384, stream);
  EXPECT_EQ(mr.trim_to(21504), 0U) << "it holds no more";
  EXPECT_EQ(mr.trim_to(21503), 16384U);
  EXPECT_EQ(mr.pool_size(), 5120U);
  EXPECT_EQ(mr.trim_to(0), 4096U);
  EXPECT_EQ(mr.pool_size(), 1024U);
  EXPECT_EQ(upstream.live_count(), 1U);
  mr.deallocate(a, 1024, stream);
  EXPECT_EQ(mr.trim_to(0), 1024U);
  EXPECT_EQ(mr.pool_size(), 0U);
  void* const d = mr.allocate(256, stream);  // grows again
  mr.deallocate(d, 256, stream);
}

TEST_F(PoolMemoryResource, ReportsTheRequestAndTheCause)
{
  pool mr{&upstream, 0};
  upstream.refuse_above(0);
  try {
    static_cast<void>(mr.allocate(1024 * 1024, stream));
    FAIL() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    std::string const text{e.what()};
    EXPECT_NE(text.find("out_of_memory"), std::string::npos) << text;
    EXPECT_NE(text.find("Maximum pool size exceeded (failed to allocate 1.000000 MiB): "), std::string::npos) << text;
    EXPECT_NE(text.find("upstream gives no more"), std::string::npos) << text;
  }
  pool bounded{&upstream, 0, 1024};
  try {
    static_cast<void>(bounded.allocate(2048, stream));
    FAIL() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_NE(std::string{e.what()}.find("of at most 1.000000 KiB"), std::string::npos) << e.what();
  }
}

TEST_F(PoolMemoryResource, RefusesSizesThatOverflowRounding)
{
  pool mr{&upstream, 0};
  EXPECT_THROW(static_cast<void>(mr.allocate(std::numeric_limits<std::size_t>::max(), stream)), std::bad_alloc);
  EXPECT_TRUE(upstream.asked().empty());
}

TEST_F(PoolMemoryResource, TakesTheBestFitAndSplitsIt)
{
  pool mr{&upstream, 8 * 256};
  std::vector<void*> block;
  for (auto const bytes : std::initializer_list<std::size_t>{256, 768, 256, 512, 256}) {
    block.push_back(mr.allocate(bytes, stream));
  }
  mr.deallocate(block[1], 768, stream);
  mr.deallocate(block[3], 512, stream);
  EXPECT_EQ(mr.allocate(300, stream), block[3]);
  void* const front = mr.allocate(256, stream);
  EXPECT_EQ(front, block[1]);
  void* const rest = mr.allocate(512, stream);
  EXPECT_EQ(address(rest), address(block[1]) + 256);
  mr.deallocate(block[3], 300, stream);
  mr.deallocate(front, 256, stream);
  mr.deallocate(rest, 512, stream);
  for (int const i : {0, 2, 4}) { mr.deallocate(block[static_cast<std::size_t>(i)], 256, stream); }
}

TEST_F(PoolMemoryResource, UsesWhatOtherStreamsFreedBeforeItGrows)
{
  rmm::cuda_stream other;
  pool mr{&upstream, 1024, 1024};
  void* const a = mr.allocate(512, stream);
  void* const b = mr.allocate(512, stream);
  mr.deallocate(a, 512, stream);
  void* const taken = mr.allocate(512, other);
  EXPECT_EQ(taken, a);
  mr.deallocate(taken, 512, other);
  mr.deallocate(b, 512, stream);
  void* const joined = mr.allocate(1024, stream);  // half of it was freed on each stream
  EXPECT_EQ(joined, std::min(a, b));
  mr.deallocate(joined, 1024, stream);
  EXPECT_EQ(upstream.asked().size(), 1U);
}

TEST_F(PoolMemoryResource, ServesAllItsMemoryWhicheverThreadFreedIt)
{
  constexpr std::size_t count = 64;
  constexpr std::size_t part  = 1000 * 256;
  pool mr{&upstream, count * part, count * part};
  std::vector<rmm::cuda_stream> streams(4);
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < count; ++i) { blocks.push_back(mr.allocate(part, streams[i % 4])); }
  EXPECT_THROW(static_cast<void>(mr.allocate(1, stream)), rmm::out_of_memory);
  for (std::size_t t = 0; t < 4; ++t) {
    std::thread{[&] {
      for (std::size_t i = t; i < count; i += 4) { mr.deallocate(blocks[i], part, streams[i / 4 % 4]); }
    }}.join();
  }
  void* const whole = mr.allocate(count * part, stream);
  EXPECT_NE(whole, nullptr);
  mr.deallocate(whole, count * part, stream);
}

TEST_F(PoolMemoryResource, DoesNotGrowBecauseOfDestroyedStreams)
{
  pool mr{&upstream, 384 * 1024};   // more blocks than a thread keeps caches
  for (int i = 0; i < 1300; ++i) {  // streams that the library does not know
    cudaStream_t passing{};
    ASSERT_EQ(cudaStreamCreate(&passing), cudaSuccess);
    void* const ptr = mr.allocate(1024, rmm::cuda_stream_view{passing});
    mr.deallocate(ptr, 1024, rmm::cuda_stream_view{passing});
    ASSERT_EQ(cudaStreamDestroy(passing), cudaSuccess);
  }
  EXPECT_EQ(upstream.asked().size(), 1U);
}

TEST_F(PoolMemoryResource, ReusesMemoryOfADestroyedStream)
{
  pool mr{&upstream, 1024, 1024};
  void* ptr{};
  {
    rmm::cuda_stream gone;
    ptr = mr.allocate(1024, gone);
    mr.deallocate(ptr, 1024, gone);
  }
  EXPECT_EQ(mr.allocate(1024, stream), ptr);
  mr.deallocate(ptr, 1024, stream);
}

TEST_F(PoolMemoryResource, ManyStreamsComeAndGo)
{
  pool mr{&upstream, 64 * 1024, 64 * 1024};
  for (int i = 0; i < 300; ++i) {
    rmm::cuda_stream passing;
    void* const ptr = mr.allocate(64 * 1024, passing);
    mr.deallocate(ptr, 64 * 1024, passing);
  }
  EXPECT_EQ(upstream.asked().size(), 1U);
}

TEST_F(PoolMemoryResource, ShowsWhatItHas)
{
  pool mr{&upstream, 4096};
  void* const ptr = mr.allocate(1000, stream);
  auto const now  = mr.figures();
  EXPECT_EQ(now.live_bytes, 1024U);
  EXPECT_EQ(now.free_bytes, 3072U);
  EXPECT_EQ(now.reserved_bytes, 4096U);
  EXPECT_EQ(now.largest_free_bytes, 3072U);
  EXPECT_EQ(now.upstream_blocks, 1U);
  mr.deallocate(ptr, 1000, stream);
  EXPECT_EQ(mr.figures().largest_free_bytes, 4096U);
}

TEST_F(PoolMemoryResource, TellsItsUpstream)
{
  pool mr{&upstream, 0};
  EXPECT_EQ(mr.get_upstream(), &upstream);
  EXPECT_EQ(mr.get_upstream_resource(),
            (rmm::device_async_resource_ref{static_cast<device_memory_resource*>(&upstream)}));
  pool over_ref{rmm::device_async_resource_ref{upstream}, 0};
  EXPECT_EQ(over_ref.get_upstream(), nullptr);
  void* const ptr = over_ref.allocate(100, stream);
  over_ref.deallocate(ptr, 100, stream);
}

TEST_F(PoolMemoryResource, IsEqualToItselfOnly)
{
  pool mr{&upstream, 0};
  pool other{&upstream, 0};
  EXPECT_TRUE(mr.is_equal(mr));
  EXPECT_FALSE(mr.is_equal(other));
}

TEST_F(PoolMemoryResource, DefaultStreamsWork)
{
  pool mr{&upstream, 1024, 1024};
  for (auto const s : {rmm::cuda_stream_view{}, rmm::cuda_stream_legacy, rmm::cuda_stream_per_thread}) {
    void* const ptr = mr.allocate(1024, s);
    mr.deallocate(ptr, 1024, s);
  }
}

TEST_F(PoolMemoryResource, RandomUseByThreadsKeepsBlocksApart)
{
  pool mr{&upstream, 1 << 20};
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> live;
  auto const work = [&](unsigned seed) {
    std::mt19937 random{seed};
    rmm::cuda_stream mine;
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (int i = 0; i < 2000; ++i) {
      if (random() % 2 == 0 || blocks.empty()) {
        std::size_t const bytes = 1 + random() % 20'000;
        void* const ptr         = mr.allocate(bytes, mine);
        blocks.emplace_back(ptr, bytes);
        std::lock_guard<std::mutex> const lock{mutex};
        auto const next = live.emplace(address(ptr), bytes).first;
        if (next != live.begin()) { ASSERT_LE(std::prev(next)->first + std::prev(next)->second, next->first); }
        if (std::next(next) != live.end()) { ASSERT_LE(next->first + bytes, std::next(next)->first); }
      } else {
        auto const which = random() % blocks.size();
        auto const block = blocks[which];
        blocks[which]    = blocks.back();
        blocks.pop_back();
        {
          std::lock_guard<std::mutex> const lock{mutex};
          live.erase(address(block.first));
        }
        mr.deallocate(block.first, block.second, mine);
      }
    }
    for (auto const& [ptr, bytes] : blocks) {
      {
        std::lock_guard<std::mutex> const lock{mutex};
        live.erase(address(ptr));
      }
      mr.deallocate(ptr, bytes, mine);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 4; ++t) { threads.emplace_back(work, t); }
  for (auto& t : threads) { t.join(); }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Compile-time guarantees.
static_assert(::cuda::has_property<pool, ::cuda::mr::device_accessible>);
static_assert(!::cuda::has_property<pool, ::cuda::mr::host_accessible>);
static_assert(!std::is_copy_constructible_v<pool> && !std::is_move_constructible_v<pool>);
static_assert(!std::is_default_constructible_v<pool>);

TEST_F(PoolMemoryResource, DeducesItsUpstream)
{
  cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource braces{&cuda, 1024, 2048};
  rmm::mr::pool_memory_resource<cuda_memory_resource> object{cuda, 256};
  static_assert(std::is_same_v<decltype(braces), rmm::mr::pool_memory_resource<cuda_memory_resource>>);
  EXPECT_EQ(braces.pool_size() + object.pool_size(), 1280U);
}

}  // namespace
