// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/detail/stream/thread_caches.hpp>

#include "../../../support/worker.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace {

using rmm::detail::cache_slot;
using rmm::detail::cache_slot_of;
using rmm::detail::heap_link;
using rmm::detail::stream_cache;
using rmm::detail::stream_ordered_heap;
using rmm::detail::thread_caches;

stream_cache* fake_cache(std::uintptr_t number) { return reinterpret_cast<stream_cache*>(64 * number); }
cudaStream_t fake_stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(4096 * number); }

struct ThreadCaches : ::testing::Test {
  static void add(std::uint64_t heap, std::uintptr_t number, rmm::detail::counted_ptr<heap_link> link)
  {
    thread_caches::mine()->add({heap, fake_stream(number), fake_cache(number), std::move(link)});
  }

  /// Returns the link of a heap that exists, as far as threads can tell. Requires that `caches` is null before the thread ends.
  static rmm::detail::counted_ptr<heap_link> make_link()
  {
    auto link    = rmm::detail::make_counted<heap_link>();
    link->caches = reinterpret_cast<rmm::detail::cache_set*>(64);
    return link;
  }

  rmm::detail::counted_ptr<heap_link> gone{
    rmm::detail::make_counted<heap_link>()};  // the link of a destroyed heap, so the end of the thread does nothing
};

TEST_F(ThreadCaches, EachThreadHasOwnCaches)
{
  auto const* const here = thread_caches::mine();
  EXPECT_EQ(thread_caches::mine(), here);
  rmm::test::run_on_a_thread_that_ends([&] { EXPECT_NE(thread_caches::mine(), here); });
}

TEST_F(ThreadCaches, FindsCachesByHeapAndStream)
{
  rmm::test::run_on_a_thread_that_ends([&] {
    auto const link = make_link();
    add(1, 1, link);
    add(1, 2, link);
    add(2, 1, link);
    thread_caches::mine()->add({2, fake_stream(2), fake_cache(4), link});
    EXPECT_EQ(thread_caches::mine()->find(1, fake_stream(2)), fake_cache(2));
    EXPECT_EQ(thread_caches::mine()->find(2, fake_stream(2)), fake_cache(4));
    EXPECT_EQ(thread_caches::mine()->find(3, fake_stream(2)), nullptr);
    EXPECT_EQ(thread_caches::mine()->find(1, fake_stream(3)), nullptr);
    link->caches = nullptr;
  });
}

TEST_F(ThreadCaches, ForgetsCachesInTheSlotTableToo)
{
  rmm::test::run_on_a_thread_that_ends([&] {
    add(1, 1, gone);
    auto& slot = cache_slot_of(1, fake_stream(1));
    slot       = {1, fake_stream(1), fake_cache(1)};
    thread_caches::mine()->forget(1, fake_stream(1));
    EXPECT_EQ(thread_caches::mine()->find(1, fake_stream(1)), nullptr);
    EXPECT_EQ(slot.cache, nullptr);
    EXPECT_EQ(slot.heap, 0U);
  });
}

TEST_F(ThreadCaches, KeepsCachesOfAnotherHeapAtTheSameAddress)
{
  rmm::test::run_on_a_thread_that_ends([&] {
    auto const link = make_link();
    add(1, 1, link);
    add(2, 1, link);
    thread_caches::mine()->forget(2, fake_stream(1));
    EXPECT_EQ(thread_caches::mine()->find(2, fake_stream(1)), nullptr);
    EXPECT_EQ(thread_caches::mine()->find(1, fake_stream(1)), fake_cache(1));
    EXPECT_EQ(thread_caches::mine()->count(), 1U);
    link->caches = nullptr;
  });
}

TEST_F(ThreadCaches, DropsCachesOfDestroyedHeaps)
{
  rmm::test::run_on_a_thread_that_ends([&] {
    for (std::uint64_t heap = 1; heap <= 10'000; ++heap) { add(heap, 1, gone); }
    EXPECT_LT(thread_caches::mine()->count(), 100U);
  });
}

TEST_F(ThreadCaches, FindsCachesAmongThousands)
{
  rmm::test::run_on_a_thread_that_ends([&] {
    auto const link  = make_link();
    auto* const mine = thread_caches::mine();
    for (std::uintptr_t i = 1; i <= 5000; ++i) { add(1, i, link); }
    for (std::uintptr_t i = 1; i <= 5000; i += 3) { mine->forget(1, fake_stream(i)); }
    for (std::uintptr_t i = 1; i <= 5000; ++i) {
      ASSERT_EQ(mine->find(1, fake_stream(i)), i % 3 == 1 ? nullptr : fake_cache(i)) << i;
    }
    EXPECT_EQ(mine->count(), 5000U - 1667U);
    EXPECT_NE(mine->next_of(1), mine->next_of(1));
    EXPECT_EQ(mine->next_of(2), nullptr);
    link->caches = nullptr;
  });
}

TEST_F(ThreadCaches, SlotsStartEmpty)
{
  rmm::test::run_on_a_thread_that_ends([] {
    auto const& slot = cache_slot_of(12345, fake_stream(99));
    EXPECT_EQ(slot.heap, 0U);
    EXPECT_EQ(slot.cache, nullptr);
  });
}

TEST_F(ThreadCaches, SpreadsStreamsOverTheTable)
{
  std::size_t used = 0;
  rmm::test::run_on_a_thread_that_ends([&] {
    for (std::uintptr_t i = 1; i <= 64; ++i) { cache_slot_of(1, fake_stream(i)) = {1, fake_stream(i), nullptr}; }
    for (auto const& slot : rmm::detail::cache_slots) { used += slot.heap != 0 ? 1U : 0U; }
  });
  EXPECT_GT(used, 32U);
}

TEST_F(ThreadCaches, ReturnsCachesAtTheEndOfTheThread)
{
  rmm::cuda_stream stream;
  stream_ordered_heap heap;
  auto* const block = reinterpret_cast<void*>(std::uintptr_t{1} << 30);  // an address that is never accessed
  ASSERT_EQ(heap.add_block_and_allocate(block, 1 << 20, 1 << 20, stream), block);
  rmm::test::run_on_a_thread_that_ends([&] {
    heap.deallocate(block, 1 << 20, stream);
    EXPECT_NE(heap.try_allocate(256, stream), nullptr);
    EXPECT_GT(heap.figures().cached_bytes, 0U);
  });
  EXPECT_EQ(heap.figures().cached_bytes, 0U);
  EXPECT_EQ(heap.figures().free_bytes, (1U << 20) - 256);
  EXPECT_TRUE(heap.check_invariants());
}

}  // namespace
