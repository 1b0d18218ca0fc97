// SPDX-License-Identifier: Apache-2.0
//
// Which stores of streams stay without memory. Other tests of the shared lists are those of the heap.

#include <rmm/detail/stream/shared_free_lists.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

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
  EXPECT_LE(most, 40);
}

TEST_F(SharedFreeLists, KeepNoEmptyStoreWithMuchHostMemory)
{
  auto* const first = shared.find_or_make(1, 0);
  ASSERT_TRUE(first != nullptr && first->try_make_room(100'000));
  ASSERT_NE(shared.find_or_make(2, 0), nullptr);
  EXPECT_EQ(shared.find(1), nullptr);
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
