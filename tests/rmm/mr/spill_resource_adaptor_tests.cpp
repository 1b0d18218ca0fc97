// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/recycling_upstream.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::mr::limiting_resource_adaptor;
using rmm::mr::spill_hook_t;
using rmm::mr::spill_options;
using rmm::mr::spill_resource_adaptor;
using rmm::mr::watermark;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kib{1 << 10};

spill_options options_of(std::size_t maximum, double spill_above = 1, std::vector<watermark> watermarks = {})
{
  spill_options options;
  options.maximum_bytes = maximum;
  options.spill_above   = spill_above;
  options.watermarks    = std::move(watermarks);
  return options;
}

/// An upstream of 64 KiB, and blocks of an adaptor over it that the spill function can free.
struct Spill : ::testing::Test {
  using adaptor = spill_resource_adaptor<limiting_resource_adaptor<counting_upstream>>;

  counting_upstream memory;
  limiting_resource_adaptor<counting_upstream> upstream{&memory, 64 * kib};
  std::optional<adaptor> mr;
  std::vector<void*> cached;  // of 8 KiB each
  std::vector<std::size_t> asked;
  std::vector<std::size_t> told;

  static constexpr std::size_t block_bytes = 8 * kib;

  void cache(int blocks)
  {
    for (int i = 0; i < blocks; ++i) { cached.push_back(mr->allocate(block_bytes)); }
  }

  std::size_t spill(std::size_t bytes)
  {
    asked.push_back(bytes);
    std::size_t freed{};
    for (; freed < bytes && !cached.empty(); freed += block_bytes) {
      mr->deallocate(cached.back(), block_bytes);
      cached.pop_back();
    }
    return freed;
  }

  spill_hook_t hook()
  {
    return [this](std::size_t bytes) { return spill(bytes); };
  }

  watermark note_above(double above, double below)
  {
    return {above, below, [this](std::size_t bytes) { told.push_back(bytes); }};
  }

  void TearDown() override
  {
    for (auto* const ptr : cached) { mr->deallocate(ptr, block_bytes); }
    if (mr) { EXPECT_EQ(mr->get_allocated_bytes(), 0U); }
    EXPECT_EQ(memory.live_count(), 0U);
  }
};

TEST_F(Spill, IsNotAskedWhileThereIsMemory)
{
  mr.emplace(&upstream, hook(), options_of(64 * kib));
  cache(8);
  EXPECT_THAT(asked, IsEmpty());
  EXPECT_EQ(mr->get_allocated_bytes(), 64 * kib);
  EXPECT_EQ(mr->get_maximum(), 64 * kib);
}

TEST_F(Spill, IsAskedForTheRequestBeforeUpstreamFails)
{
  mr.emplace(&upstream, hook(), options_of(1024 * kib));
  cache(8);
  void* const ptr = mr->allocate(12 * kib + 1);
  EXPECT_THAT(asked, ElementsAre(12 * kib + 256));
  EXPECT_EQ(cached.size(), 6U);
  mr->deallocate(ptr, 12 * kib + 1);

  auto const figures = mr->figures();
  EXPECT_EQ(figures.calls, 1U);
  EXPECT_EQ(figures.asked_bytes, 12 * kib + 256);
  EXPECT_EQ(figures.freed_bytes, 16 * kib);
}

TEST_F(Spill, IsAskedAgainUntilThereIsMemory)
{
  auto const one_at_a_time = [this](std::size_t bytes) { return spill(std::min(bytes, std::size_t{1})); };
  mr.emplace(&upstream, one_at_a_time, options_of(1024 * kib));
  cache(8);
  void* const ptr = mr->allocate(20 * kib);
  EXPECT_EQ(mr->figures().calls, 3U);
  mr->deallocate(ptr, 20 * kib);
}

TEST_F(Spill, ThatFreesNothingPassesUpstreamsExceptionOn)
{
  mr.emplace(
    &upstream, [](std::size_t) { return std::size_t{0}; }, options_of(1024 * kib));
  try {
    mr->allocate(65 * kib);
    ADD_FAILURE();
  } catch (rmm::out_of_memory const& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Exceeded memory limit"));
  }
  EXPECT_EQ(mr->figures().calls, 1U);
  EXPECT_EQ(mr->get_allocated_bytes(), 0U);
}

TEST_F(Spill, ThatOnlyClaimsToFreeMemoryEndsAtTheMaximum)
{
  mr.emplace(
    &upstream, [](std::size_t) { return 100 * kib; }, options_of(250 * kib));
  EXPECT_THROW(mr->allocate(65 * kib), rmm::out_of_memory);
  EXPECT_EQ(mr->figures().calls, 3U);

  mr.emplace(
    &upstream, [](std::size_t) { return std::numeric_limits<std::size_t>::max(); }, options_of(250 * kib));
  EXPECT_THROW(mr->allocate(65 * kib), rmm::out_of_memory);
  EXPECT_EQ(mr->figures().calls, 1U);
}

TEST_F(Spill, IsNotAskedForSizesThatOverflowRounding)
{
  mr.emplace(&upstream, hook(), options_of(1024 * kib));
  cache(1);
  EXPECT_THROW(mr->allocate(std::numeric_limits<std::size_t>::max()), rmm::out_of_memory);
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(Spill, IsNotAskedForMoreThanTheMaximum)
{
  mr.emplace(&upstream, hook(), options_of(32 * kib));
  cache(3);
  for (auto const bytes : {65 * kib, std::numeric_limits<std::size_t>::max() / 2}) {
    EXPECT_THROW(mr->allocate(bytes), rmm::out_of_memory);
  }
  void* const large = mr->allocate(32 * kib + 1);  // upstream has more than the maximum
  EXPECT_EQ(mr->get_allocated_bytes(), 56 * kib + 256);
  EXPECT_THROW(mr->allocate(std::numeric_limits<std::size_t>::max()), rmm::out_of_memory);
  EXPECT_THAT(asked, IsEmpty());

  mr->deallocate(mr->allocate(256), 256);
  EXPECT_THAT(asked, ElementsAre(24 * kib + 512));
  mr->deallocate(large, 32 * kib + 1);

  void* const most = mr->allocate(32 * kib);
  EXPECT_EQ(asked.size(), 1U);
  void* const second = mr->allocate(32 * kib);
  EXPECT_THAT(asked, ElementsAre(24 * kib + 512, 32 * kib));
  mr->deallocate(most, 32 * kib);
  mr->deallocate(second, 32 * kib);
}

TEST_F(Spill, IsNotCalledByOtherThreadsWhileARequestAboveTheMaximumFails)
{
  spill_resource_adaptor<rmm::mr::callback_memory_resource>* over{};
  rmm::mr::callback_memory_resource refusing{
    [&](std::size_t bytes, rmm::cuda_stream_view stream, void*) {
      if (bytes > 64 * kib) {
        std::thread{[&] { over->deallocate(over->allocate(256), 256); }}.join();
      }
      return upstream.allocate(bytes, stream);
    },
    [&](void* ptr, std::size_t bytes, rmm::cuda_stream_view stream, void*) {
      upstream.deallocate(ptr, bytes, stream);
    }};
  spill_resource_adaptor over_refusing{&refusing, hook(), options_of(64 * kib)};
  over = &over_refusing;
  EXPECT_THROW(over_refusing.allocate(65 * kib), rmm::out_of_memory);
  EXPECT_THAT(memory.asked(), ElementsAre(256));
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(Spill, IsAskedForMoreThanTheMaximumIfAsMuchIsInUse)
{
  bool frees = false;
  mr.emplace(
    &upstream, [&](std::size_t bytes) { return frees ? spill(bytes) : 0; }, options_of(16 * kib));
  cache(7);
  frees           = true;
  void* const ptr = mr->allocate(40 * kib);
  EXPECT_THAT(asked, ElementsAre(40 * kib));
  EXPECT_EQ(mr->get_allocated_bytes(), 56 * kib);
  mr->deallocate(ptr, 40 * kib);
}

TEST_F(Spill, IsAskedForMoreThanTheMaximumIfThePoolHasAsMuch)
{
  rmm::mr::pool_memory_resource pool{&upstream, 64 * kib, 64 * kib};
  spill_resource_adaptor over_pool{&pool, hook(), options_of(32 * kib)};
  void* held = over_pool.allocate(24 * kib);
  spill_resource_adaptor freeing{&pool,
                                 [&](std::size_t bytes) {
                                   asked.push_back(bytes);
                                   if (held == nullptr) { return std::size_t{0}; }
                                   over_pool.deallocate(std::exchange(held, nullptr), 24 * kib);
                                   return 24 * kib;
                                 },
                                 options_of(32 * kib)};
  void* const large = freeing.allocate(48 * kib);
  EXPECT_THAT(asked, ElementsAre(48 * kib));
  freeing.deallocate(large, 48 * kib);

  EXPECT_THROW(freeing.allocate(64 * kib + 1), rmm::out_of_memory);
  EXPECT_EQ(asked.size(), 1U);
}

TEST_F(Spill, IsAskedForMoreThanTheMaximumIfThePoolCanStillGrowAsMuch)
{
  std::size_t free{};
  std::size_t total{};
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  for (auto const limit : {std::optional<std::size_t>{}, std::optional{16 * kib}}) {
    rmm::mr::pool_memory_resource pool{&upstream, 8 * kib, limit};
    spill_resource_adaptor over_pool{&pool,
                                     [&](std::size_t bytes) {
                                       asked.push_back(bytes);
                                       return std::size_t{0};
                                     },
                                     options_of(4 * kib)};
    asked.clear();
    EXPECT_THROW(over_pool.allocate(total + 9 * kib), rmm::out_of_memory);
    EXPECT_THAT(asked, IsEmpty());
    EXPECT_THROW(over_pool.allocate(65 * kib), rmm::out_of_memory);
    EXPECT_EQ(asked.size(), limit ? 0U : 1U);
  }
}

TEST_F(Spill, IsAskedForAllOfAMaximumThatIsNoMultipleOfTheAlignment)
{
  mr.emplace(&upstream, hook(), options_of(64 * kib - 100));
  cache(1);
  auto const ptr = mr->allocate(64 * kib - 100);
  EXPECT_THAT(asked, ElementsAre(8 * kib + 100));
  mr->deallocate(ptr, 64 * kib - 100);
}

TEST_F(Spill, IsAskedOnlyForTheRestWhileAnotherThreadsCallFrees)
{
  void* other = nullptr;
  mr.emplace(
    &upstream,
    [&](std::size_t bytes) {
      asked.push_back(bytes);
      auto const free_one = [&] {
        mr->deallocate(cached.back(), block_bytes);
        cached.pop_back();
      };
      free_one();
      if (asked.size() == 1) {
        std::thread{[&] { other = mr->allocate(block_bytes); }}.join();
        free_one();
      }
      return bytes;
    },
    options_of(64 * kib, 0.5));
  cache(4);
  void* const ptr = mr->allocate(16 * kib);
  EXPECT_THAT(asked, ElementsAre(16 * kib, 8 * kib));
  EXPECT_EQ(mr->get_allocated_bytes(), 32 * kib);
  mr->deallocate(ptr, 16 * kib);
  mr->deallocate(other, block_bytes);
}

TEST_F(Spill, IsAskedOnlyForTheRestWhileACallAfterAFailureFrees)
{
  void* other = nullptr;
  mr.emplace(
    &upstream,
    [&](std::size_t bytes) {
      if (asked.size() != 1) {
        asked.push_back(bytes);
        return std::size_t{0};
      }
      auto const freed = spill(bytes - block_bytes);
      std::thread{[&] { other = mr->allocate(kib); }}.join();
      return freed + spill(block_bytes);
    },
    options_of(56 * kib));
  cache(7);
  void* const ptr = mr->allocate(16 * kib);
  // 9 KiB above the maximum; the other call still has to free 8 KiB of it
  EXPECT_THAT(asked, ElementsAre(16 * kib, 8 * kib, kib, 8 * kib));
  mr->deallocate(ptr, 16 * kib);
  mr->deallocate(other, kib);
}

TEST_F(Spill, IsNotAskedAfterAFailureIfACallOfAnotherThreadHasFreedAsMuch)
{
  spill_resource_adaptor<rmm::mr::callback_memory_resource>* over{};
  bool is_first{true};
  rmm::mr::callback_memory_resource late{
    [&](std::size_t bytes, rmm::cuda_stream_view stream, void*) {
      if (bytes == 16 * kib && std::exchange(is_first, false)) {
        std::thread{[&] { over->deallocate(over->allocate(17 * kib), 17 * kib); }}.join();
        throw rmm::out_of_memory{"looked before the other thread has freed"};
      }
      return upstream.allocate(bytes, stream);
    },
    [&](void* ptr, std::size_t bytes, rmm::cuda_stream_view stream, void*) {
      upstream.deallocate(ptr, bytes, stream);
    }};
  std::vector<void*> blocks;
  spill_resource_adaptor over_late{&late,
                                   [&](std::size_t bytes) {
                                     asked.push_back(bytes);
                                     for (std::size_t freed{}; freed < bytes; freed += block_bytes) {
                                       over->deallocate(blocks.back(), block_bytes);
                                       blocks.pop_back();
                                     }
                                     return bytes;
                                   },
                                   options_of(1024 * kib)};
  over = &over_late;
  for (int i = 0; i < 7; ++i) { blocks.push_back(over->allocate(block_bytes)); }
  void* const ptr = over->allocate(16 * kib);
  EXPECT_THAT(asked, ElementsAre(17 * kib));
  over->deallocate(ptr, 16 * kib);
  for (auto* const each : blocks) { over->deallocate(each, block_bytes); }
}

TEST_F(Spill, ThatFreesNothingIsTriedAgainIfACallOfAnotherThreadHasFreedSomething)
{
  mr.emplace(
    &upstream,
    [&](std::size_t bytes) {
      if (bytes != 16 * kib) { return spill(bytes); }
      std::thread{[&] { mr->deallocate(mr->allocate(9 * kib), 9 * kib); }}.join();
      return std::size_t{0};
    },
    options_of(1024 * kib));
  cache(7);
  void* const ptr = mr->allocate(16 * kib);
  EXPECT_THAT(asked, ElementsAre(9 * kib));
  mr->deallocate(ptr, 16 * kib);
}

TEST_F(Spill, EndsIfACallUsesMemoryAndFreesNothing)
{
  mr.emplace(
    &upstream,
    [&](std::size_t bytes) {
      asked.push_back(bytes);
      mr->deallocate(mr->allocate(kib), kib);
      return std::size_t{0};
    },
    options_of(64 * kib));
  cache(7);
  EXPECT_THROW(mr->allocate(16 * kib), rmm::out_of_memory);
  EXPECT_EQ(asked.size(), 2U);  // once for the share, once after the failure
}

TEST_F(Spill, IsAskedForTheBytesAboveItsShareBeforeTheAllocation)
{
  mr.emplace(&upstream, hook(), options_of(64 * kib, 0.5));
  cache(4);
  EXPECT_THAT(asked, IsEmpty());
  void* const ptr = mr->allocate(kib);
  EXPECT_THAT(asked, ElementsAre(kib));
  EXPECT_EQ(mr->get_allocated_bytes(), 25 * kib);
  mr->deallocate(ptr, kib);
}

TEST_F(Spill, AllocatesAboveTheShareIfNothingCanBeFreed)
{
  mr.emplace(&upstream, hook(), options_of(64 * kib, 0.5));
  void* const first  = mr->allocate(32 * kib);
  void* const second = mr->allocate(4 * kib);
  EXPECT_THAT(asked, ElementsAre(4 * kib));
  void* const third = mr->allocate(4 * kib);  // called again, because it may free something now
  EXPECT_THAT(asked, ElementsAre(4 * kib, 8 * kib));
  for (auto const& [ptr, bytes] : {std::pair{first, 32 * kib}, {second, 4 * kib}, {third, 4 * kib}}) {
    mr->deallocate(ptr, bytes);
  }
}

TEST_F(Spill, MayThrowBeforeTheAllocationAndAfterAFailure)
{
  mr.emplace(
    &upstream, [](std::size_t) -> std::size_t { throw std::domain_error{"mine"}; }, options_of(64 * kib, 0.5));
  EXPECT_THROW(mr->allocate(33 * kib), std::domain_error);
  EXPECT_THAT(memory.asked(), IsEmpty());
  EXPECT_EQ(mr->get_allocated_bytes(), 0U);

  limiting_resource_adaptor small{&memory, kib};
  spill_resource_adaptor over_small{
    &small, [](std::size_t) -> std::size_t { throw std::domain_error{"mine"}; }, options_of(32 * kib)};
  EXPECT_THROW(over_small.allocate(2 * kib), std::domain_error);
  EXPECT_EQ(over_small.get_allocated_bytes(), 0U);
  void* const ptr = over_small.allocate(kib);
  over_small.deallocate(ptr, kib);
}

TEST_F(Spill, MayAllocateFromTheAdaptorWithoutBeingAskedAgain)
{
  bool fails       = false;
  auto const spill = [&](std::size_t bytes) {
    asked.push_back(bytes);
    try {
      mr->deallocate(mr->allocate(60 * kib), 60 * kib);
    } catch (rmm::out_of_memory const&) {
      fails = true;
    }
    return std::size_t{0};
  };
  mr.emplace(&upstream, spill, options_of(64 * kib, 0.5));
  cache(5);
  EXPECT_THAT(asked, ElementsAre(8 * kib));
  EXPECT_TRUE(fails);
}

TEST_F(Spill, MayUseAnotherAdaptorThatAsksItsOwnHook)
{
  std::vector<std::size_t> others;
  spill_resource_adaptor other{&memory,
                               [&](std::size_t bytes) {
                                 others.push_back(bytes);
                                 return std::size_t{0};
                               },
                               options_of(2 * kib, 0.5)};
  mr.emplace(
    &upstream,
    [&](std::size_t) {
      other.deallocate(other.allocate(2 * kib), 2 * kib);
      return std::size_t{0};
    },
    options_of(2 * kib, 0.5));
  mr->deallocate(mr->allocate(2 * kib), 2 * kib);
  EXPECT_THAT(others, ElementsAre(kib));
}

TEST_F(Spill, IsCalledOnceForTheNeedsOfSeveralThreads)
{
  constexpr int threads = 4;
  std::atomic<std::size_t> sum{0};
  std::atomic<int> settled{0};  // threads that have called the hook, or need not call it
  auto const wait_for_all = [&](std::size_t bytes) {
    sum += bytes;
    ++settled;
    auto const end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    while (settled < threads && std::chrono::steady_clock::now() < end) { std::this_thread::yield(); }
    return std::size_t{0};
  };
  spill_resource_adaptor<counting_upstream> over{&memory, wait_for_all, options_of(16 * kib)};
  std::vector<void*> blocks(threads);
  void* const held = over.allocate(16 * kib);
  run_on_threads(threads, [&](int i) {
    blocks[static_cast<std::size_t>(i)] = over.allocate(kib);
    ++settled;
  });
  EXPECT_EQ(sum, threads * kib);
  for (auto* const ptr : blocks) { over.deallocate(ptr, kib); }
  over.deallocate(held, 16 * kib);
}

TEST_F(Spill, IsAskedForTheRightBytesAfterManyThreadsHaveCalledIt)
{
  std::mutex mutex;
  std::vector<void*> idle;
  auto const take_idle = [&] {
    std::lock_guard<std::mutex> const lock{mutex};
    auto* const ptr = idle.empty() ? nullptr : idle.back();
    if (ptr != nullptr) { idle.pop_back(); }
    return ptr;
  };
  mr.emplace(
    &upstream,
    [&](std::size_t bytes) {
      std::size_t freed{};
      for (void* ptr{}; freed < bytes && (ptr = take_idle()) != nullptr; freed += kib) { mr->deallocate(ptr, kib); }
      return freed;
    },
    options_of(64 * kib, 0.5));
  std::atomic<int> failures{0};
  run_on_threads(8, [&](int) {
    for (int i = 0; i < 500; ++i) {
      try {
        auto* const ptr = mr->allocate(kib);
        std::lock_guard<std::mutex> const lock{mutex};
        idle.push_back(ptr);
      } catch (rmm::out_of_memory const&) {
        ++failures;
      }
    }
  });
  EXPECT_EQ(failures, 0);  // at most 8 requests and the share are live at a time
  EXPECT_GT(mr->figures().calls, 100U);
  while (auto* const ptr = take_idle()) { mr->deallocate(ptr, kib); }
  ASSERT_EQ(mr->get_allocated_bytes(), 0U);

  auto const asked_before = mr->figures().asked_bytes;
  void* const ptr         = mr->allocate(33 * kib);
  EXPECT_EQ(mr->figures().asked_bytes - asked_before, kib);
  mr->deallocate(ptr, 33 * kib);
}

TEST_F(Spill, NeedsNoHook)
{
  mr.emplace(&upstream, spill_hook_t{}, options_of(kib));
  mr->deallocate(mr->allocate(2 * kib), 2 * kib);
  EXPECT_THROW(mr->allocate(65 * kib), rmm::out_of_memory);
  EXPECT_EQ(mr->figures().calls, 0U);
}

TEST_F(Spill, TakesTheMemoryOfTheDeviceAsMaximum)
{
  mr.emplace(&upstream, hook());
  std::size_t free{};
  std::size_t total{};
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(mr->get_maximum(), total);
}

TEST_F(Spill, RefusesOptionsThatMeanNothing)
{
  auto const make = [&](spill_options const& options) { spill_resource_adaptor{&upstream, hook(), options}; };
  EXPECT_THROW(make(options_of(0)), rmm::logic_error);
  EXPECT_THROW(make(options_of(kib, 1.5)), rmm::logic_error);
  EXPECT_THROW(make(options_of(kib, -0.5)), rmm::logic_error);
  EXPECT_THROW(make(options_of(kib, std::numeric_limits<double>::quiet_NaN())), rmm::logic_error);
  EXPECT_THROW(make(options_of(kib, 1, {{0.5, 0.6, [](std::size_t) {}}})), rmm::logic_error);
  EXPECT_THROW(make(options_of(kib, 1, {{0.5, -0.1, [](std::size_t) {}}})), rmm::logic_error);
  EXPECT_THROW(make(options_of(kib, 1, {{1.5, 0.5, [](std::size_t) {}}})), rmm::logic_error);
  EXPECT_THROW(make(options_of(kib, 1, {{0.5, 0.5, {}}})), rmm::logic_error);
}

TEST_F(Spill, FreesBlocksOfAPool)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource pool{&cuda, 64 * kib, 64 * kib};
  std::vector<void*> blocks;
  spill_resource_adaptor<decltype(pool)> over{&pool,
                                              [&](std::size_t bytes) {
                                                std::size_t freed{};
                                                for (; freed < bytes && !blocks.empty(); freed += 16 * kib) {
                                                  over.deallocate(blocks.back(), 16 * kib);
                                                  blocks.pop_back();
                                                }
                                                return freed;
                                              },
                                              options_of(64 * kib)};
  for (int i = 0; i < 4; ++i) { blocks.push_back(over.allocate(16 * kib)); }
  void* const all = over.allocate(64 * kib);
  EXPECT_THAT(blocks, IsEmpty());
  EXPECT_EQ(pool.figures().recovery.failures, 0U);  // the function was called before any failure
  over.deallocate(all, 64 * kib);
}

TEST_F(Spill, CallsAWatermarkOnceUntilTheUseWasLow)
{
  mr.emplace(&upstream, hook(), options_of(64 * kib, 1, {note_above(0.5, 0.25)}));
  cache(4);
  EXPECT_THAT(told, IsEmpty());  // not above the share
  cache(1);
  EXPECT_THAT(told, ElementsAre(40 * kib));
  cache(1);
  spill(3 * block_bytes);  // down to 24 KiB
  cache(3);
  EXPECT_THAT(told, ElementsAre(40 * kib));
  spill(4 * block_bytes);  // down to 16 KiB
  cache(3);
  EXPECT_THAT(told, ElementsAre(40 * kib, 40 * kib));
}

TEST_F(Spill, CallsEachOfSeveralWatermarks)
{
  mr.emplace(
    &upstream, hook(), options_of(64 * kib, 1, {note_above(0.75, 0.5), note_above(0.25, 0.1), note_above(1, 0.5)}));
  cache(3);
  EXPECT_THAT(told, ElementsAre(24 * kib));
  cache(4);
  EXPECT_THAT(told, ElementsAre(24 * kib, 56 * kib));
  spill(7 * block_bytes);
  void* const ptr = mr->allocate(56 * kib);
  EXPECT_THAT(told, ElementsAre(24 * kib, 56 * kib, 56 * kib, 56 * kib));
  mr->deallocate(ptr, 56 * kib);
}

TEST_F(Spill, UndoesTheAllocationIfAWatermarkThrows)
{
  int calls          = 0;
  auto const refuses = [&](std::size_t) {
    if (++calls == 1) { throw std::domain_error{"mine"}; }
  };
  mr.emplace(&upstream, hook(), options_of(64 * kib, 1, {{0.5, 0.25, refuses}, note_above(0.5, 0.25)}));
  EXPECT_THROW(mr->allocate(40 * kib), std::domain_error);
  EXPECT_EQ(memory.live_count(), 0U);
  EXPECT_EQ(mr->get_allocated_bytes(), 0U);
  EXPECT_THAT(told, IsEmpty());

  void* const ptr = mr->allocate(40 * kib);
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(told, ElementsAre(40 * kib));
  mr->deallocate(ptr, 40 * kib);
}

TEST_F(Spill, CallsNoWatermarkForAnAllocationThatFails)
{
  mr.emplace(&upstream, spill_hook_t{}, options_of(128 * kib, 1, {note_above(0.25, 0.1)}));
  EXPECT_THROW(mr->allocate(65 * kib), rmm::out_of_memory);
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(Spill, CallsNoWatermarkForAnotherThreadsFailedRequest)
{
  std::size_t used{};
  auto const allocate_meanwhile = [&](std::size_t) {
    used = mr->get_allocated_bytes();
    std::thread{[&] { mr->deallocate(mr->allocate(256), 256); }}.join();
    return std::size_t{0};
  };
  mr.emplace(&upstream, allocate_meanwhile, options_of(128 * kib, 1, {note_above(0.25, 0.1)}));
  cache(2);
  EXPECT_THROW(mr->allocate(60 * kib), rmm::out_of_memory);
  EXPECT_EQ(used, 16 * kib);
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(Spill, LetsAWatermarkFreeAndAllocate)
{
  int calls       = 0;
  auto const free = [&](std::size_t) {
    ++calls;
    spill(5 * block_bytes);
    cache(5);
  };
  mr.emplace(&upstream, hook(), options_of(64 * kib, 1, {{0.5, 0.25, free}}));
  cache(4);
  void* const ptr = mr->allocate(block_bytes);
  EXPECT_EQ(calls, 1);
  mr->deallocate(ptr, block_bytes);
}

TEST_F(Spill, RefusesNonblockingCallsIfAFunctionIsDue)
{
  struct nothing_at_hand final : rmm::mr::detail::immediate_resource {
    int calls{};
    void* try_allocate_nonblocking(std::size_t, rmm::detail::identified_stream) noexcept override
    {
      ++calls;
      return nullptr;
    }
    bool try_deallocate_nonblocking(void*, std::size_t, rmm::detail::identified_stream) noexcept override
    {
      return false;
    }
  } empty;
  mr.emplace(&upstream, hook(), options_of(64 * kib, 0.5, {note_above(0.25, 0.1)}));
  EXPECT_EQ(mr->try_allocate_nonblocking(16 * kib, {}, empty), nullptr);
  EXPECT_EQ(empty.calls, 1);
  EXPECT_EQ(mr->try_allocate_nonblocking(17 * kib, {}, empty), nullptr);
  EXPECT_EQ(mr->try_allocate_nonblocking(33 * kib, {}, empty), nullptr);
  EXPECT_EQ(empty.calls, 1);
  EXPECT_EQ(mr->get_allocated_bytes(), 0U);
}

TEST_F(Spill, CallsAWatermarkLaterIfANonblockingCallPassesIt)
{
  struct interrupted final : rmm::mr::detail::immediate_resource {
    Spill* test{};
    bool takes_back{true};

    void* try_allocate_nonblocking(std::size_t bytes, rmm::detail::identified_stream stream) noexcept override
    {
      test->cache(3);  // as another thread would do
      return test->upstream.allocate(bytes, stream.view());
    }
    bool try_deallocate_nonblocking(void* ptr,
                                    std::size_t bytes,
                                    rmm::detail::identified_stream stream) noexcept override
    {
      if (takes_back) { test->upstream.deallocate(ptr, bytes, stream.view()); }
      return takes_back;
    }
  } memory_at_hand;
  memory_at_hand.test = this;
  mr.emplace(&upstream, hook(), options_of(64 * kib, 1, {note_above(0.5, 0.1)}));

  EXPECT_EQ(mr->try_allocate_nonblocking(16 * kib, {}, memory_at_hand), nullptr);
  EXPECT_EQ(mr->get_allocated_bytes(), 24 * kib);
  EXPECT_THAT(told, IsEmpty());
  mr->deallocate(mr->allocate(16 * kib), 16 * kib);
  EXPECT_THAT(told, ElementsAre(40 * kib));

  spill(24 * kib);
  memory_at_hand.takes_back = false;
  void* const ptr           = mr->try_allocate_nonblocking(16 * kib, {}, memory_at_hand);
  EXPECT_NE(ptr, nullptr);
  cache(1);  // calls it now
  EXPECT_THAT(told, ElementsAre(40 * kib, 48 * kib));
  mr->deallocate(ptr, 16 * kib);
}

TEST(SpillThreads, TellAWatermarkOnceForEachRise)
{
  recycling_upstream upstream;
  std::atomic<int> rises{0};
  std::atomic<int> at_a_time{0};
  auto const tell = [&](std::size_t) {
    ++rises;
    EXPECT_EQ(++at_a_time, 1);  // the use stays above the share while the caller has its block
    --at_a_time;
  };
  spill_resource_adaptor mr{&upstream, {}, options_of(1024, 1, {{0.5, 0, tell}})};
  for (int round = 1; round <= 200; ++round) {
    std::vector<void*> blocks(4);
    run_on_threads(4, [&](int i) { blocks[static_cast<std::size_t>(i)] = mr.allocate(256); });
    EXPECT_EQ(rises, round);
    run_on_threads(4, [&](int i) { mr.deallocate(blocks[static_cast<std::size_t>(i)], 256); });
  }
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
}

TEST(SpillThreads, KeepCountWhileHooksFreeMemory)
{
  recycling_upstream upstream;
  std::atomic<std::uint64_t> freed{0};
  auto const hook = [&](std::size_t) {
    ++freed;
    return std::size_t{256};
  };
  spill_resource_adaptor mr{&upstream, hook, options_of(4 * 256, 0.5, {{0.75, 0.25, [](std::size_t) {}}})};
  run_on_threads(8, [&](int) {
    for (int i = 0; i < 2000; ++i) { mr.deallocate(mr.allocate(256), 256); }
  });
  EXPECT_EQ(mr.get_allocated_bytes(), 0U);
  EXPECT_EQ(mr.figures().calls, freed);
  EXPECT_EQ(mr.figures().freed_bytes, 256 * freed);
}

}  // namespace
