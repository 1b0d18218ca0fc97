// SPDX-License-Identifier: Apache-2.0
//
// Which stores of streams stay without memory. Other tests of the shared lists are those of the heap.

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/stream/cache_set.hpp>
#include <rmm/detail/stream/device_waits.hpp>
#include <rmm/detail/stream/shared_free_lists.hpp>
#include <rmm/detail/stream/slow_path.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

struct SharedFreeLists : testing::Test {
  rmm::detail::heap_limits limits;
  rmm::detail::shared_free_lists shared{limits};
};

TEST_F(SharedFreeLists, KeepTheEmptyStoreOfAStreamThatMayFreeAgain)
{
  auto* const first = shared.find_or_make(1, 0);
  ASSERT_TRUE(first != nullptr && first->try_make_room(10));
  ASSERT_NE(shared.find_or_make(2, 0), nullptr);
  EXPECT_EQ(shared.find(1), first);
}

TEST_F(SharedFreeLists, KeepFewEmptyStoresOfStreamsThatComeAndGo)
{
  std::size_t most{};
  for (std::uint64_t stream = 1; stream != 1000; ++stream) {
    ASSERT_NE(shared.find_or_make(stream, 0), nullptr);
    most = std::max(most, shared.stores().size());
  }
  EXPECT_LE(most, 16);
}

TEST_F(SharedFreeLists, KeepNoEmptyStoreWithMuchHostMemory)
{
  auto* const first = shared.find_or_make(1, 0);
  ASSERT_TRUE(first != nullptr && first->try_make_room(100'000));
  auto* const second = shared.find_or_make(2, 0);
  EXPECT_EQ(shared.find(1), nullptr);
  ASSERT_NE(second, nullptr);
  second->unfenced().reserve(100'000);
  ASSERT_NE(shared.find_or_make(3, 0), nullptr);
  EXPECT_EQ(shared.find(2), nullptr);
}

TEST_F(SharedFreeLists, KeepNoEmptySecondStoreOfAStream)
{
  auto* const first = shared.find_or_make(1, 0);
  ASSERT_NE(shared.try_add(1, 0), nullptr);
  ASSERT_NE(shared.find_or_make(2, 0), nullptr);
  EXPECT_EQ(shared.find(1), first);
  EXPECT_EQ(shared.stores().size(), 2);
}

TEST_F(SharedFreeLists, KeepTheEmptyStoresOfAllStreamsThatHaveACache)
{
  limits.most_unused_stores = 132;
  std::vector<rmm::detail::free_store*> made;
  for (std::uint64_t stream = 1; stream <= 100; ++stream) { made.push_back(shared.find_or_make(stream, 0)); }
  for (std::uint64_t stream = 1; stream <= 100; ++stream) { EXPECT_EQ(shared.find(stream), made[stream - 1]); }
}

TEST_F(SharedFreeLists, MayKeepAStoreForEachCache)
{
  rmm::detail::spinning_mutex mutex;
  rmm::detail::slow_path slow;
  rmm::detail::device_waits waits{0};
  rmm::detail::cache_set caches{1, mutex, slow, limits, shared, waits};
  std::thread{[&] {  // gives its caches back when it ends
    std::array<rmm::cuda_stream, 40> streams;
    for (auto const& stream : streams) { EXPECT_NE(caches.find_or_make(stream.value(), true), nullptr); }
    EXPECT_GE(limits.most_unused_stores, streams.size());
  }}
    .join();
  EXPECT_LT(limits.most_unused_stores, 40);
}

TEST_F(SharedFreeLists, KeepStoresWithMemory)
{
  for (std::uint64_t stream = 1; stream != 100; ++stream) {
    auto* const store = shared.find_or_make(stream, 0);
    ASSERT_TRUE(store != nullptr && store->try_make_room(1));
    store->ranges().insert({stream * 4096, 256}, 0, nullptr);
  }
  EXPECT_EQ(shared.stores().size(), 99);
}

}  // namespace
