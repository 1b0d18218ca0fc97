// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stream/free_store.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using rmm::detail::free_store;
using rmm::detail::owned_event;

constexpr std::uintptr_t base = std::uintptr_t{1} << 30;

struct FreeStore : ::testing::Test {
  FreeStore() { spare.reserve(2); }

  /// Records a fence for the work of `stream` so far.
  void add_fence()
  {
    owned_event event;
    ASSERT_TRUE(event.try_record(stream.value()));
    ASSERT_TRUE(store.try_add_fence(event));
  }

  rmm::cuda_stream stream;
  free_store store{17};
  std::vector<owned_event> spare;
};

TEST_F(FreeStore, StartsEmptyWithAllEpochsReached)
{
  EXPECT_EQ(store.identity(), 17U);
  EXPECT_TRUE(store.is_empty());
  EXPECT_FALSE(store.has_fences());
  EXPECT_EQ(store.newest(), store.reached());
  EXPECT_FALSE(store.poll(spare));
}

TEST_F(FreeStore, IsNotEmptyWithUnfencedMemory)
{
  store.unfenced().push_back({base, 256});
  EXPECT_FALSE(store.is_empty());
}

TEST_F(FreeStore, NumbersEpochsInOrder)
{
  add_fence();
  auto const first = store.newest();
  add_fence();
  EXPECT_EQ(store.newest(), first + 1);
  EXPECT_TRUE(store.has_fences());
  EXPECT_EQ(store.reached(), first - 1);
}

TEST_F(FreeStore, DropsFencesThatAreReached)
{
  add_fence();
  add_fence();
  stream.synchronize();
  EXPECT_TRUE(store.poll(spare));
  EXPECT_EQ(store.reached(), store.newest() - 1);
  EXPECT_TRUE(store.poll(spare));
  EXPECT_FALSE(store.has_fences());
  EXPECT_EQ(store.reached(), store.newest());
  EXPECT_FALSE(store.poll(spare));
}

TEST_F(FreeStore, DropsAllFencesIfTheNewestIsReached)
{
  for (int i = 0; i < 20; ++i) { add_fence(); }
  EXPECT_TRUE(store.has_many_fences());
  stream.synchronize();
  EXPECT_TRUE(store.poll_newest(spare));
  EXPECT_FALSE(store.has_fences());
  EXPECT_FALSE(store.has_many_fences());
  EXPECT_EQ(store.reached(), store.newest());
}

TEST_F(FreeStore, KeepsSpareEventsUpToTheCapacity)
{
  for (int i = 0; i < 5; ++i) { add_fence(); }
  store.synchronize();
  store.all_reached(spare);
  EXPECT_FALSE(store.has_fences());
  EXPECT_EQ(store.reached(), store.newest());
  EXPECT_EQ(spare.size(), spare.capacity());
  EXPECT_TRUE(spare.back().try_record(stream.value()));  // must be usable again
}

TEST_F(FreeStore, TakesEventsRecordedWithoutTheLockFromOneCacheOnly)
{
  int cache{};
  int another{};
  EXPECT_TRUE(store.can_follow(&cache));  // there is no fence to follow
  for (int const* const from : {&cache, &another}) {
    owned_event event;
    ASSERT_TRUE(event.try_record(stream.value()));
    ASSERT_TRUE(store.try_add_fence(event, from));
  }
  EXPECT_TRUE(store.can_follow(&another));
  EXPECT_FALSE(store.can_follow(&cache));
  add_fence();
  EXPECT_FALSE(store.can_follow(&another));
  stream.synchronize();
  store.all_reached(spare);
  EXPECT_TRUE(store.can_follow(&cache));
}

TEST_F(FreeStore, MakesAStreamWaitForItsFence)
{
  add_fence();
  rmm::cuda_stream other;
  EXPECT_TRUE(store.try_make_wait(other.value(), store.newest()));
}

TEST_F(FreeStore, WaitsOnceForAllMemoryOfAnEpoch)
{
  add_fence();
  add_fence();
  rmm::cuda_stream other;
  EXPECT_TRUE(store.try_make_noted_wait(other.value(), false));  // no wait was noted
  store.note_wait(store.newest());
  store.note_wait(store.newest() - 1);
  EXPECT_FALSE(store.try_make_noted_wait(other.value(), false));
  store.note_wait(store.newest());
  EXPECT_TRUE(store.try_make_noted_wait(other.value(), true));
  EXPECT_TRUE(store.try_make_noted_wait(other.value(), false));  // the noted wait was made
}

TEST_F(FreeStore, KeepsTheOrderOfFencesWhileSomeAreDropped)
{
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) { add_fence(); }
    stream.synchronize();
    for (int i = 0; i < 2; ++i) {
      auto const reached = store.reached();
      spare.clear();
      ASSERT_TRUE(store.poll(spare));
      ASSERT_EQ(store.reached(), reached + 1);
      ASSERT_EQ(spare.size(), 1U);
    }
  }
  EXPECT_EQ(store.newest(), store.reached() + 50);
  for (auto epoch = store.reached() + 1; epoch <= store.newest(); ++epoch) {
    EXPECT_TRUE(store.try_make_wait(stream.value(), epoch));
  }
  store.all_reached(spare);
  EXPECT_FALSE(store.has_fences());
}

TEST_F(FreeStore, TakesAllRangesOfALargerSetWithTheNewestEpoch)
{
  add_fence();
  rmm::detail::range_set larger;
  ASSERT_TRUE(larger.try_reserve(3));
  for (std::uintptr_t i = 0; i != 3; ++i) { larger.insert({base + i * 1024, 256}, 0); }
  ASSERT_TRUE(store.try_make_room(1));
  store.ranges().insert({base + 256, 256}, store.newest());
  EXPECT_EQ(store.epoch_of(0), 0U);
  add_fence();
  ASSERT_TRUE(store.try_take_all_of(larger, nullptr));
  EXPECT_TRUE(larger.empty());
  EXPECT_EQ(store.ranges().count(), 3U);
  EXPECT_EQ(store.epoch_of(store.ranges().range_beginning_at(base + 1024).epoch), store.newest());
  EXPECT_TRUE(store.check_invariants());
  add_fence();
  EXPECT_EQ(store.epoch_of(0), store.newest() - 1);
  EXPECT_EQ(store.epoch_of(store.newest()), store.newest());
}

TEST_F(FreeStore, NeedsNoWaitForReachedEpochs)
{
  add_fence();
  stream.synchronize();
  ASSERT_TRUE(store.poll(spare));
  EXPECT_TRUE(store.try_make_wait(nullptr, store.newest()));
}

}  // namespace
