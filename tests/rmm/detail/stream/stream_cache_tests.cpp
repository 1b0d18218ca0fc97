// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stream/stream_cache.hpp>
#include <rmm/detail/stream/stream_cache_validation.hpp>

#include <rmm/cuda_stream.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::heap_granule;
using rmm::detail::heap_limits;
using rmm::detail::small_sizes;
using rmm::detail::stack_places;
using rmm::detail::stream_cache;

constexpr std::uintptr_t base = std::uintptr_t{1} << 30;  // an address that is never accessed
constexpr std::size_t KiB     = 1024;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
std::uintptr_t address(void const* ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }

static_assert(stack_places(1) == 64 && stack_places(small_sizes) == 8);

struct StreamCache : ::testing::Test {
  StreamCache()
  {
    limits.most_unfenced_bytes    = 1024 * KiB;
    limits.most_unfenced_of_young = 1024 * KiB;
  }

  /// Adds a free range to the cache.
  void give(std::uintptr_t begin, std::size_t bytes)
  {
    ASSERT_TRUE(cache.try_make_room(1));
    cache.add_range({begin, bytes});
  }

  /// Pushes a block of another cache. Makes the stack if it is missing.
  [[nodiscard]] bool push(std::uintptr_t block, std::size_t granules)
  {
    return cache.try_push(pointer(block), granules) ||
           (cache.try_add_stack(granules) && cache.try_push(pointer(block), granules));
  }

  /// Claims for the blocks that tests hand to the cache, as if other caches had cut them.
  void SetUp() override { ASSERT_TRUE(limits.reserve.try_claim(4096)); }

  void TearDown() override { EXPECT_TRUE(cache.check_invariants()); }

  /// Returns the claims without those of SetUp().
  [[nodiscard]] std::int64_t claims() const
  {
    return static_cast<std::int64_t>(limits.reserve.claimed()) - 4096 - static_cast<std::int64_t>(cache.spare_claims());
  }

  std::vector<std::uintptr_t> const seams{base + 128 * KiB};
  rmm::cuda_stream stream;
  heap_limits limits;
  stream_cache::stream_name const name{stream.value(), stream.value(), rmm::detail::stream_identity(stream.value()), 0};
  stream_cache::stream_name const another{name.handle, name.key, name.identity + 1, 0};
  stream_cache cache{name, nullptr, true, limits};
};

TEST_F(StreamCache, BeginsAtACacheLine)
{
  std::vector<std::unique_ptr<stream_cache>> caches;
  std::vector<std::unique_ptr<char[]>> others;  // so that the caches do not lie at equal distances
  for (std::size_t i = 0; i != 16; ++i) {
    others.push_back(std::make_unique<char[]>(16 * i + 1));
    caches.push_back(std::make_unique<stream_cache>(name, nullptr, true, limits));
    EXPECT_EQ(address(caches.back().get()) % 64, 0U);
  }
}

// --- stacks

TEST_F(StreamCache, PopsTheBlockThatWasPushedLast)
{
  EXPECT_EQ(cache.try_pop(2), nullptr);
  ASSERT_TRUE(push(base, 2));
  ASSERT_TRUE(push(base + 4096, 2));
  EXPECT_EQ(cache.try_pop(1), nullptr);  // another size
  EXPECT_EQ(cache.try_pop(2), pointer(base + 4096));
  EXPECT_EQ(cache.try_pop(2), pointer(base));
  EXPECT_EQ(cache.try_pop(2), nullptr);
}

TEST_F(StreamCache, RefusesABlockWhoseStackIsFull)
{
  for (std::size_t i = 0; i < stack_places(small_sizes); ++i) { ASSERT_TRUE(push(base + i * 64 * KiB, small_sizes)); }
  EXPECT_FALSE(push(2 * base, small_sizes));
  EXPECT_EQ(cache.unfenced_count(), stack_places(small_sizes));
}

TEST_F(StreamCache, HasOneStackForEachSize)
{
  for (std::size_t granules = 1; granules <= small_sizes; ++granules) { ASSERT_TRUE(push(base * granules, granules)); }
  for (std::size_t granules = 1; granules <= small_sizes; ++granules) {
    EXPECT_EQ(cache.try_pop(granules), pointer(base * granules));
  }
}

TEST_F(StreamCache, CountsAllocatedMinusFreedBytes)
{
  ASSERT_TRUE(push(base, 3));
  EXPECT_EQ(cache.live_bytes(), -768);
  static_cast<void>(cache.try_pop(3));
  EXPECT_EQ(cache.live_bytes(), 0);
  cache.add_live(1024);
  EXPECT_EQ(cache.live_bytes(), 1024);
}

// --- fences

TEST_F(StreamCache, FenceIsDueAfterManyFrees)
{
  for (std::size_t i = 0; i + 1 < stream_cache::most_unfenced_frees; ++i) {
    ASSERT_TRUE(push(base + i * 4096, 1 + i % 4));
    EXPECT_FALSE(cache.is_fence_due());
  }
  ASSERT_TRUE(push(2 * base, 5));
  EXPECT_TRUE(cache.is_fence_due());
}

TEST_F(StreamCache, FenceIsDueAfterManyBytes)
{
  limits.most_unfenced_bytes = 1024;
  ASSERT_TRUE(push(base, 4));
  EXPECT_FALSE(cache.is_fence_due());
  ASSERT_TRUE(push(base + 4096, 1));
  EXPECT_TRUE(cache.is_fence_due());
}

TEST_F(StreamCache, FreedBlocksAreUnfencedUntilTheEventIsRecorded)
{
  ASSERT_TRUE(push(base, 1));
  ASSERT_TRUE(cache.try_add_recent(pointer(2 * base), 128 * KiB));
  EXPECT_EQ(cache.unfenced_count(), 2U);
  EXPECT_EQ(cache.unfenced_bytes(), 256 + 128 * KiB);
  EXPECT_FALSE(cache.has_fenced(1));
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_FALSE(cache.has_unfenced());
  EXPECT_EQ(cache.unfenced_bytes(), 0U);
  EXPECT_TRUE(cache.has_fenced(1));
  EXPECT_TRUE(cache.has_fenced_blocks());
}

TEST_F(StreamCache, BlocksFreedAfterAFenceAreUnfenced)
{
  ASSERT_TRUE(push(base, 1));
  ASSERT_TRUE(cache.fence(stream.value()));
  void* const again = cache.try_pop(1);
  ASSERT_TRUE(cache.try_push(again, 1));
  EXPECT_EQ(cache.unfenced_count(), 1U);
  EXPECT_FALSE(cache.has_fenced(1));
}

TEST_F(StreamCache, FailedFenceChangesNothing)
{
  ASSERT_TRUE(push(base, 1));
  ASSERT_TRUE(cache.try_add_recent(pointer(2 * base), 128 * KiB));
  auto const taken = cache.take_event();
  EXPECT_FALSE(cache.fence(stream.value()));  // the cache has no event left
  EXPECT_EQ(cache.unfenced_count(), 2U);
  EXPECT_FALSE(cache.has_fenced(1));
  EXPECT_TRUE(cache.ranges().empty());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(StreamCache, FenceCoalescesRecentBlocksWithRanges)
{
  ASSERT_TRUE(cache.try_add_recent(pointer(base), 128 * KiB));
  ASSERT_TRUE(cache.try_add_recent(pointer(base + 128 * KiB), 128 * KiB));
  cache.all_fenced();
  EXPECT_EQ(cache.ranges().count(), 1U);
  EXPECT_EQ(cache.ranges().largest(), 256 * KiB);
}

TEST_F(StreamCache, CoalescesRecentBlocksAFewAtATimeAfterAFence)
{
  cache.add_live(64 * 1024 * KiB);  // the cache counts the freed blocks as its own
  for (std::size_t i = 0; i < 128; ++i) { ASSERT_TRUE(cache.try_add_recent(pointer(base + i * 128 * KiB), 128 * KiB)); }
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_TRUE(cache.has_fenced_blocks());
  auto before = cache.ranges().total_bytes();
  EXPECT_EQ(before, 24 * 128 * KiB);
  for (std::size_t i = 0; i < 31; ++i) {
    ASSERT_TRUE(cache.try_add_recent(pointer(16 * base + 2 * i * 128 * KiB), 128 * KiB));
    EXPECT_LE(cache.ranges().total_bytes(), before + 24 * 128 * KiB);
    before = cache.ranges().total_bytes();
  }
  EXPECT_FALSE(cache.has_fenced_blocks());
  EXPECT_EQ(cache.ranges().count(), 1U);
  EXPECT_EQ(cache.ranges().largest(), 128 * 128 * KiB);
  EXPECT_EQ(cache.unfenced_count(), 31U);
  EXPECT_TRUE(cache.check_invariants());
}

TEST_F(StreamCache, CoalescesAllFencedBlocksOnRequest)
{
  cache.add_live(64 * 1024 * KiB);  // the cache counts the freed blocks as its own
  EXPECT_FALSE(cache.coalesce_fenced());
  for (std::size_t i = 0; i < 64; ++i) { ASSERT_TRUE(cache.try_add_recent(pointer(base + i * 128 * KiB), 128 * KiB)); }
  EXPECT_FALSE(cache.coalesce_fenced());  // they have no fence yet
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_TRUE(cache.coalesce_fenced());
  EXPECT_EQ(cache.ranges().largest(), 64 * 128 * KiB);
  EXPECT_FALSE(cache.has_fenced_blocks());
}

TEST_F(StreamCache, MovesBlocksUnusedBetweenTwoFencesToRanges)
{
  for (std::size_t i = 0; i < 8; ++i) { ASSERT_TRUE(push(base + i * 512, 2)); }
  ASSERT_TRUE(push(2 * base, 5));
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_TRUE(cache.ranges().empty());
  for (std::size_t i = 0; i < 3; ++i) { ASSERT_NE(cache.try_pop(2), nullptr); }
  for (std::size_t i = 5; i < 8; ++i) { ASSERT_TRUE(push(base + i * 512, 2)); }
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_EQ(cache.ranges().count(), 2U);
  EXPECT_EQ(cache.ranges().largest(), 5 * 512U);
  EXPECT_EQ(cache.ranges().total_bytes(), 5 * 512U + 5 * 256U);
  EXPECT_TRUE(cache.check_invariants());
  EXPECT_EQ(cache.try_pop(2), pointer(base + 7 * 512));  // recently used blocks stay
  EXPECT_EQ(cache.try_pop(5), nullptr);
}

TEST_F(StreamCache, CoalescesAfterTheFenceIfMuchIsFree)
{
  limits.scarce_bytes = 128 * KiB;
  cache.add_live(1024 * KiB);  // the cache counts the freed blocks as its own
  ASSERT_TRUE(cache.try_make_room(1));
  cache.add_range({8 * base, 128 * KiB});
  ASSERT_TRUE(push(base, 2));
  ASSERT_TRUE(cache.try_add_recent(pointer(2 * base), 128 * KiB));
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(cache.fence(stream.value()));
    EXPECT_EQ(cache.ranges().total_bytes(), (i + 1) * 128 * KiB);  // the block that was recent at the first fence, too
  }
  EXPECT_EQ(cache.try_pop(2), pointer(base));
}

TEST_F(StreamCache, MovesUnusedBlocksAFewAtATime)
{
  constexpr std::size_t sizes = 20;
  for (std::size_t granules = 1; granules <= sizes; ++granules) {
    for (std::size_t i = 0; i < 8; ++i) { ASSERT_TRUE(push(base + (granules * 16 + i) * 64 * KiB, granules)); }
  }
  ASSERT_TRUE(cache.fence(stream.value()));
  for (std::size_t const left : {96U, 32U, 0U}) {
    ASSERT_TRUE(cache.fence(stream.value()));
    EXPECT_EQ(cache.ranges().count(), sizes * 8 - left);
    EXPECT_TRUE(cache.check_invariants());
  }
}

TEST_F(StreamCache, MovesUnusedBlocksAlsoAfterLargeFreesOnly)
{
  for (std::size_t turn = 1; turn <= 2; ++turn) {  // in the second turn, stacks that were emptied have entries again
    ASSERT_TRUE(push(base + turn * 1024 * KiB, 3));
    ASSERT_TRUE(cache.fence(stream.value()));
    EXPECT_TRUE(cache.has_fenced(3));
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(cache.try_add_recent(pointer((4 * turn + i + 1) * base), 128 * KiB));
      ASSERT_TRUE(cache.fence(stream.value()));
      EXPECT_FALSE(cache.has_fenced(3));
      EXPECT_TRUE(cache.check_invariants());
    }
    cache.all_fenced();
    EXPECT_EQ(cache.ranges().total_bytes(), turn * (3 * 256 + 3 * 128 * KiB));
  }
}

TEST_F(StreamCache, MovesTheRestOfAnUnusedRun)
{
  give(base, 1024 * KiB);
  ASSERT_NE(cache.take_run(1), nullptr);
  ASSERT_NE(cache.take_run(1), nullptr);  // one for the caller, the rest for the stack
  ASSERT_TRUE(cache.has_fenced(1));
  ASSERT_TRUE(cache.try_add_recent(pointer(2 * base), 128 * KiB));
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_FALSE(cache.has_fenced(1));
}

TEST_F(StreamCache, KeepsRecentBlocksApartFromCoalescingOnes)
{
  limits.scarce_bytes = 0;
  cache.add_live(1024 * 1024 * KiB);  // the cache counts the freed blocks as its own
  std::size_t freed = 0;
  auto const free   = [&] {
    ++freed;
    return cache.try_add_recent(pointer(freed * 2 * base), 128 * KiB);
  };
  for (std::size_t i = 0; i < 6; ++i) { ASSERT_TRUE(free()); }
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_EQ(cache.free_pieces().first, freed);
  EXPECT_EQ(cache.ranges().count(), 0U);
  for (std::size_t i = 0; i < 12; ++i) { ASSERT_TRUE(free()); }  // more than the list had capacity for at first
  EXPECT_EQ(cache.take(128 * KiB), pointer(freed * 2 * base));
  ASSERT_TRUE(cache.fence(stream.value()));
  cache.all_fenced();
  EXPECT_EQ(cache.ranges().count(), freed - 1);
}

TEST_F(StreamCache, MovesFencedRecentBlocksWithTheStacks)
{
  cache.add_live(1024 * KiB);  // the cache counts the freed blocks as its own
  ASSERT_TRUE(push(base, 1));
  ASSERT_TRUE(cache.try_add_recent(pointer(2 * base), 128 * KiB));
  ASSERT_TRUE(cache.fence(stream.value()));
  cache.empty_stacks();
  EXPECT_FALSE(cache.has_fenced_blocks());
  EXPECT_EQ(cache.ranges().total_bytes(), 256 + 128 * KiB);
}

TEST_F(StreamCache, ListsCoalescingBlocksAsFenced)
{
  cache.add_live(1024 * KiB);  // the cache counts the freed blocks as its own
  ASSERT_TRUE(cache.try_add_recent(pointer(base), 128 * KiB));
  ASSERT_TRUE(cache.fence(stream.value()));
  std::size_t seen = 0;
  cache.for_each_free([&](address_range range, bool fenced) { seen += fenced ? range.bytes : 0; });
  EXPECT_EQ(seen, 128 * KiB);
}

TEST_F(StreamCache, NeverCoalescesAcrossASeam)
{
  limits.seam_addresses = {seams.data(), seams.size()};
  ASSERT_TRUE(cache.try_add_recent(pointer(base), 128 * KiB));
  ASSERT_TRUE(cache.try_add_recent(pointer(base + 128 * KiB), 128 * KiB));
  cache.all_fenced();
  EXPECT_EQ(cache.ranges().count(), 2U);
}

TEST_F(StreamCache, ListsAllFreeMemory)
{
  give(4 * base, 1024);
  ASSERT_TRUE(push(base, 1));
  ASSERT_TRUE(cache.fence(stream.value()));
  ASSERT_TRUE(push(base + 4096, 2));
  ASSERT_TRUE(cache.try_add_recent(pointer(2 * base), 128 * KiB));
  std::vector<std::pair<std::uintptr_t, bool>> seen;
  cache.for_each_free([&](address_range range, bool fenced) { seen.emplace_back(range.begin, fenced); });
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen,
            (std::vector<std::pair<std::uintptr_t, bool>>{
              {base, true}, {base + 4096, false}, {2 * base, false}, {4 * base, true}}));
}

// --- recent blocks and ranges

TEST_F(StreamCache, TakesTheNewestRecentBlockOfTheSize)
{
  ASSERT_TRUE(cache.try_add_recent(pointer(base), 100 * KiB));
  ASSERT_TRUE(cache.try_add_recent(pointer(2 * base), 100 * KiB));
  ASSERT_TRUE(cache.try_add_recent(pointer(3 * base), 200 * KiB));
  EXPECT_EQ(cache.take(100 * KiB), pointer(2 * base));
  EXPECT_EQ(cache.take(100 * KiB), pointer(base));
  EXPECT_EQ(cache.take(100 * KiB), nullptr);  // a larger recent block is not cut
  EXPECT_EQ(cache.take(200 * KiB), pointer(3 * base));
  EXPECT_FALSE(cache.has_unfenced());
}

TEST_F(StreamCache, RefusesRecentBlocksAboveTheUnfencedLimit)
{
  for (std::size_t i = 0; i < stream_cache::most_unfenced_frees; ++i) {
    ASSERT_TRUE(cache.try_add_recent(pointer(base + 2 * i * 100 * KiB), 100 * KiB));
  }
  EXPECT_FALSE(cache.try_add_recent(pointer(4 * base), 100 * KiB));
  cache.all_fenced();
  EXPECT_TRUE(cache.try_add_recent(pointer(4 * base), 100 * KiB));
  EXPECT_EQ(cache.ranges().count(), stream_cache::most_unfenced_frees);
}

TEST_F(StreamCache, CoalescesBlocksOfOtherCachesAtOnce)
{
  ASSERT_TRUE(cache.try_add_recent(pointer(base), 100 * KiB));
  ASSERT_TRUE(cache.fence(stream.value()));
  EXPECT_EQ(cache.ranges().total_bytes(), 100 * KiB);
  EXPECT_FALSE(cache.has_fenced_blocks());
}

TEST_F(StreamCache, CutsTheRequestedBytesFromARange)
{
  give(base, 300 * KiB);
  EXPECT_EQ(cache.take(100 * KiB), pointer(base));
  EXPECT_EQ(cache.take_good(200 * KiB), pointer(base + 100 * KiB));
  EXPECT_EQ(cache.take(256), nullptr);
  EXPECT_EQ(cache.take_good(256), nullptr);
  EXPECT_EQ(claims(), 2);
  EXPECT_EQ(cache.live_bytes(), static_cast<std::int64_t>(300 * KiB));
}

TEST_F(StreamCache, FreedBlockReturnsItsClaim)
{
  give(base, 200 * KiB);
  void* const ptr = cache.take(200 * KiB);
  ASSERT_EQ(claims(), 1);
  ASSERT_TRUE(cache.try_add_recent(ptr, 200 * KiB));
  EXPECT_EQ(claims(), 1);
  cache.all_fenced();
  EXPECT_EQ(claims(), 0);
}

TEST_F(StreamCache, ReturnsClaimsOfBlocksThatOtherCachesCut)
{
  for (std::uintptr_t i = 1; i <= 1000; ++i) {
    ASSERT_TRUE(cache.try_add_recent(pointer(2 * i * base), 100 * KiB));
    cache.all_fenced();
  }
  EXPECT_EQ(claims(), -1000);
  EXPECT_LT(cache.spare_claims(), 100U);
}

TEST_F(StreamCache, TakesAClaimForEachBlockThatItCuts)
{
  give(base, 1000 * 256);
  for (std::size_t i = 0; i < 1000; ++i) { ASSERT_EQ(cache.take(256), pointer(base + i * 256)); }
  EXPECT_EQ(claims(), 1000);
  EXPECT_LT(cache.spare_claims(), 100U);
  cache.return_spare_claims();
  EXPECT_EQ(cache.spare_claims(), 0U);
  EXPECT_EQ(claims(), 1000);
}

TEST_F(StreamCache, ReturnsAnUnusedClaim)
{
  ASSERT_TRUE(cache.try_claim());
  EXPECT_EQ(claims(), 1);
  cache.return_claim();
  EXPECT_EQ(claims(), 0);
}

TEST_F(StreamCache, AllocatesHostMemoryAsNeeded)
{
  EXPECT_FALSE(cache.try_push(pointer(base), 1));
  EXPECT_TRUE(cache.try_add_stack(1));
  EXPECT_FALSE(cache.try_add_stack(1));
  EXPECT_TRUE(cache.try_push(pointer(base), 1));
  EXPECT_EQ(cache.ranges().metadata_bytes(), 0U);
}

TEST_F(StreamCache, DoublesTheFreesBetweenFencesForForeignStreams)
{
  stream_cache young{name, nullptr, false, limits};
  ASSERT_TRUE(young.try_add_stack(1));
  std::vector<std::size_t> counts;
  std::size_t frees = 0;
  for (std::uintptr_t i = 1; i <= 1000; ++i) {
    ++frees;
    ASSERT_TRUE(young.try_push(pointer(base + i * 4096), 1) || young.try_add_recent(pointer(base + i * 4096), 256));
    if (!young.is_fence_due()) { continue; }
    counts.push_back(std::exchange(frees, 0));
    ASSERT_TRUE(young.fence(stream.value()));
    young.empty_stacks();
  }
  ASSERT_GE(counts.size(), 8U);
  EXPECT_EQ(counts[0], 1U);
  EXPECT_EQ(counts[1], 2U);
  EXPECT_EQ(counts[2], 4U);
  EXPECT_TRUE(young.check_invariants());
}

TEST_F(StreamCache, FencesFewBytesOfForeignStreamsUntilThe64thEvent)
{
  limits.most_unfenced_of_young = 1024;
  for (bool const is_lasting : {false, true}) {
    stream_cache made{name, nullptr, is_lasting, limits};
    for (int i = 0; i != 64; ++i) {
      ASSERT_TRUE(made.try_add_recent(pointer(base), 2048));
      EXPECT_EQ(made.is_fence_due(), !is_lasting);
      ASSERT_TRUE(made.fence(stream.value()));
      made.empty_stacks();
      ASSERT_NE(made.take_good(2048), nullptr);
    }
    ASSERT_TRUE(made.try_add_recent(pointer(base), 2048));
    EXPECT_FALSE(made.is_fence_due());
    ASSERT_TRUE(made.fence(stream.value()));
  }
}

// --- runs

TEST_F(StreamCache, CutsLongerRunsForFrequentSizes)
{
  give(base, 1024 * 256);
  std::vector<std::size_t> runs;
  std::vector<std::uintptr_t> cut;
  for (int i = 0; i < 7; ++i) {
    auto const before = cut.size();
    for (void* ptr = cache.take_run(1); ptr != nullptr; ptr = cache.try_pop(1)) { cut.push_back(address(ptr)); }
    runs.push_back(cut.size() - before);
  }
  EXPECT_TRUE(std::is_sorted(runs.begin(), runs.end()));
  EXPECT_EQ(runs.front(), 1U);
  EXPECT_GT(runs.back(), 1U);
  EXPECT_LE(runs.back(), stack_places(1) / 2U);
  EXPECT_EQ(claims(), static_cast<std::int64_t>(cut.size()));
  std::sort(cut.begin(), cut.end());
  for (std::size_t i = 1; i < cut.size(); ++i) { EXPECT_EQ(cut[i], cut[i - 1] + 256); }  // the blocks are adjacent
  EXPECT_EQ(cache.ranges().total_bytes(), (1024 - cut.size()) * 256);
}

TEST_F(StreamCache, CutsShortRunsInASmallHeap)
{
  limits.most_run_bytes = 600;
  give(base, 1024 * 256);
  for (int i = 0; i < 7; ++i) {
    ASSERT_NE(cache.take_run(1), nullptr);
    static_cast<void>(cache.try_pop(1));
    EXPECT_EQ(cache.try_pop(1), nullptr) << "more than two blocks of 256 bytes";
    ASSERT_NE(cache.take_run(2), nullptr);
    EXPECT_EQ(cache.try_pop(2), nullptr) << "more than one block of 512 bytes";
  }
}

TEST_F(StreamCache, RunsFromRangesAreFenced)
{
  give(base, 3 * 256);
  static_cast<void>(cache.take_run(1));
  static_cast<void>(cache.take_run(1));
  EXPECT_TRUE(cache.has_fenced(1));
  EXPECT_FALSE(cache.has_unfenced());
}

TEST_F(StreamCache, RunsAreLimitedByTheRange)
{
  give(base, 64 * 256);
  while (cache.ranges().total_bytes() > 256) {
    if (cache.try_pop(1) == nullptr) { static_cast<void>(cache.take_run(1)); }
  }
  while (cache.try_pop(1) != nullptr) {}
  auto const last = cache.ranges().total_bytes() / 256;
  EXPECT_EQ(cache.take_run(1) != nullptr, last == 1);
  EXPECT_EQ(cache.take_run(1), nullptr);
  EXPECT_TRUE(cache.ranges().empty());
}

TEST_F(StreamCache, NoRangeNoRun) { EXPECT_EQ(cache.take_run(5), nullptr); }

// --- shortening

TEST_F(StreamCache, ShortensAStackFromItsOldestEnd)
{
  for (std::uintptr_t i = 0; i < 4; ++i) { ASSERT_TRUE(push(base + i * 4096, 1)); }
  ASSERT_TRUE(cache.fence(stream.value()));
  ASSERT_TRUE(push(base + 4 * 4096, 1));
  EXPECT_TRUE(cache.shorten_stack(1, 2));
  EXPECT_EQ(cache.ranges().count(), 2U);
  EXPECT_EQ(cache.ranges().take_exact({base, 256}).begin, base);
  EXPECT_EQ(cache.ranges().take_exact({base + 4096, 256}).begin, base + 4096);
  for (std::uintptr_t i = 4; i != 1; --i) { EXPECT_EQ(cache.try_pop(1), pointer(base + i * 4096)); }
  EXPECT_EQ(cache.try_pop(1), nullptr);
}

TEST_F(StreamCache, KeepsUnfencedBlocksOutOfRanges)
{
  ASSERT_TRUE(push(base, 1));
  EXPECT_TRUE(cache.shorten_stack(1, 16));  // a place was free, although nothing was moved
  cache.empty_stacks();
  EXPECT_TRUE(cache.ranges().empty());
  EXPECT_EQ(cache.try_pop(1), pointer(base));
}

TEST_F(StreamCache, RefusesToShortenAnUnfencedStack)
{
  for (std::size_t i = 0; i < stack_places(small_sizes); ++i) { ASSERT_TRUE(push(base + i * 128 * KiB, small_sizes)); }
  EXPECT_FALSE(cache.shorten_stack(small_sizes, 16));
}

TEST_F(StreamCache, EmptiesAllStacksIntoRanges)
{
  for (std::size_t granules = 1; granules <= small_sizes; ++granules) {
    ASSERT_TRUE(push(base * granules, granules));
    if (granules % 64 == 0) { ASSERT_TRUE(cache.fence(stream.value())); }
  }
  cache.empty_stacks();
  EXPECT_FALSE(cache.has_fenced_blocks());
  EXPECT_EQ(cache.ranges().count(), small_sizes);
  EXPECT_EQ(cache.ranges().total_bytes(), small_sizes * (small_sizes + 1) / 2 * heap_granule);
}

// --- whose handle it is

TEST_F(StreamCache, AsksTheRuntimeAboutForeignStreams)
{
  EXPECT_FALSE(cache.is_trusted());
  EXPECT_TRUE(cache.is_current());
  EXPECT_FALSE(cache.is_trusted());
  stream_cache other{another, nullptr, true, limits};
  EXPECT_FALSE(other.is_current());
}

TEST_F(StreamCache, TrustsAHandleUntilAStreamEnds)
{
  std::atomic<std::uint64_t> ends{7};
  stream_cache known{name, &ends, true, limits};
  EXPECT_TRUE(known.is_trusted());
  ++ends;  // another stream has ended: asks once more
  EXPECT_FALSE(known.is_trusted());
  EXPECT_TRUE(known.is_current());
  EXPECT_TRUE(known.is_trusted());
}

TEST_F(StreamCache, DoesNotTrustAHandleThatNamesAnotherStream)
{
  std::atomic<std::uint64_t> ends{0};
  stream_cache known{another, &ends, true, limits};
  ++ends;
  EXPECT_FALSE(known.is_current());
  EXPECT_FALSE(known.is_trusted());
}

TEST_F(StreamCache, RemembersThatItsStreamHasEnded)
{
  EXPECT_FALSE(cache.has_ended());
  cache.set_ended();
  EXPECT_TRUE(cache.has_ended());
}

TEST_F(StreamCache, DoesNotTrustAStreamAgainThatWasReportedAsEnded)
{
  std::atomic<std::uint64_t> ends{0};
  stream_cache known{name, &ends, true, limits};
  known.set_ended();
  ++ends;
  EXPECT_FALSE(known.is_current());
  EXPECT_FALSE(known.is_trusted());
}

}  // namespace
