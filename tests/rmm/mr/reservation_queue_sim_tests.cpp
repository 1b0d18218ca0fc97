// SPDX-License-Identifier: Apache-2.0

#include <rmm/mr/reservation_queue.hpp>

#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::mr::memory_reservation;
using rmm::mr::reservation_queue;
using std::chrono::milliseconds;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

template <class Source>
constexpr bool makes_queue = std::is_constructible_v<reservation_queue, Source>;
static_assert(makes_queue<rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>&>);
static_assert(makes_queue<rmm::mr::elastic_pool_memory_resource&>);
static_assert(makes_queue<memory_reservation&> && !makes_queue<memory_reservation>);
static_assert(!makes_queue<reservation_queue&> && !makes_queue<reservation_queue const&>);
static_assert(!makes_queue<rmm::mr::cuda_memory_resource&> && !makes_queue<int&>);

struct machine_objects {
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, MiB, MiB};
  reservation_queue queue{pool};
  rmm::cuda_stream stream;
};

struct ReservationQueue : FreshMachine {
  std::optional<machine_objects> objects{std::in_place};
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>& pool{objects->pool};
  reservation_queue& queue{objects->queue};
  rmm::cuda_stream& stream{objects->stream};

  void TearDown() override
  {
    objects.reset();
    FreshMachine::TearDown();
  }

  /// Waits until `count` requests are waiting.
  void expect_waiting(std::size_t count) const
  {
    while (queue.waiting() != count) { std::this_thread::sleep_for(milliseconds{1}); }
  }
};

TEST_F(ReservationQueue, ReservesAvailableMemoryImmediately)
{
  auto const task = queue.reserve_or_wait(512 * KiB, 0, milliseconds{0}, stream);
  EXPECT_EQ(task.bytes(), 512 * KiB);
  EXPECT_EQ(queue.waiting(), 0U);
}

TEST_F(ReservationQueue, ThrowsAfterTheTimeoutWithTheReason)
{
  auto const all   = pool.reserve(MiB, stream);
  auto const begin = std::chrono::steady_clock::now();
  try {
    static_cast<void>(queue.reserve_or_wait(256 * KiB, 0, milliseconds{20}));
    ADD_FAILURE() << "there is no memory";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("No reservation of 256.000000 KiB after "));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("the pool does not have as much memory in one range"));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds{20});
  EXPECT_EQ(queue.waiting(), 0U);
}

TEST_F(ReservationQueue, WaitsUntilAReservationEnds)
{
  auto all = std::optional{pool.reserve(MiB, stream)};
  std::thread task{[&] { EXPECT_EQ(queue.reserve_or_wait(MiB).bytes(), MiB); }};
  expect_waiting(1);
  all.reset();
  task.join();
  EXPECT_EQ(pool.figures().live_bytes, 0U);
}

TEST_F(ReservationQueue, TriesAtOnceWhenItIsNotified)
{
  rmm::mr::reservation_queue_options patient;
  patient.retry_after = std::chrono::hours{1};
  reservation_queue slow{pool, patient};
  void* const all = pool.allocate(MiB, stream);
  std::thread task{[&] { EXPECT_EQ(slow.reserve_or_wait(MiB).bytes(), MiB); }};
  while (slow.waiting() == 0) { std::this_thread::yield(); }
  pool.deallocate(all, MiB, stream);
  stream.synchronize();
  for (std::atomic<bool> done{false}; !done;) {  // repeated, because the first call can come before the request waits
    slow.notify();
    std::this_thread::sleep_for(milliseconds{1});
    done = slow.waiting() == 0;
  }
  task.join();
}

TEST_F(ReservationQueue, ServesByPriorityThenByAge)
{
  auto all = std::optional{pool.reserve(MiB, stream)};
  std::mutex mutex;
  std::vector<std::string> served;
  std::vector<std::thread> tasks;
  auto const add = [&](char const* name, int priority) {
    tasks.emplace_back([&, name, priority] {
      auto const mine = queue.reserve_or_wait(MiB, priority);
      std::lock_guard<std::mutex> const lock{mutex};
      served.emplace_back(name);
    });
    expect_waiting(tasks.size());
  };
  add("low, first", 0);
  add("low, second", 0);
  add("high", 100);
  add("low, third", 0);
  all.reset();
  for (auto& each : tasks) { each.join(); }
  EXPECT_EQ(served, (std::vector<std::string>{"high", "low, first", "low, second", "low, third"}));
}

TEST_F(ReservationQueue, DoesNotLetASmallRequestOvertakeALargeOne)
{
  auto half = std::optional{pool.reserve(512 * KiB, stream)};
  std::atomic<bool> has_large{false};
  std::thread large{[&] {
    auto const mine = queue.reserve_or_wait(MiB);
    has_large       = true;
  }};
  expect_waiting(1);
  std::thread small{[&] {
    auto const mine = queue.reserve_or_wait(256 * KiB);
    EXPECT_TRUE(has_large);
  }};
  expect_waiting(2);
  std::this_thread::sleep_for(milliseconds{20});
  EXPECT_EQ(queue.waiting(), 2U);
  try {
    static_cast<void>(queue.reserve_or_wait(256 * KiB, -1, milliseconds{5}));
    ADD_FAILURE() << "two requests come first";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("2 other requests come first"));
  }
  half.reset();
  large.join();
  small.join();
}

TEST_F(ReservationQueue, RequestsRiseWhileTheyWait)
{
  rmm::mr::reservation_queue_options fast;
  fast.aging = milliseconds{5};
  reservation_queue aging{pool, fast};
  std::atomic<bool> served{false};
  auto all = std::optional{pool.reserve(MiB, stream)};
  std::thread low{[&] {
    auto const mine = aging.reserve_or_wait(MiB, 0);
    served          = true;
  }};
  while (aging.waiting() == 0) { std::this_thread::yield(); }
  std::vector<std::thread> high;
  for (int i = 0; i != 3; ++i) {  // so that one of them always waits
    high.emplace_back([&] {
      while (!served) {
        auto const mine = aging.reserve_or_wait(MiB, 10);
        std::this_thread::sleep_for(milliseconds{1});
      }
    });
  }
  all.reset();
  low.join();
  for (auto& each : high) { each.join(); }
}

/// Without retries by time: a request that became the first one before another came could be in a try when the memory is freed.
TEST_F(ReservationQueue, AgeCountsOnlyAtEqualPriorityWithoutAging)
{
  rmm::mr::reservation_queue_options strict;
  strict.aging       = milliseconds{0};
  strict.retry_after = std::chrono::hours{1};
  reservation_queue by_priority{pool, strict};
  auto all = std::optional{pool.reserve(MiB, stream)};
  std::mutex mutex;
  std::vector<int> served;
  std::vector<std::thread> tasks;
  for (int const priority : {0, 1, 1, 2}) {
    tasks.emplace_back([&, priority] {
      {
        auto const mine = by_priority.reserve_or_wait(MiB, priority);
        std::lock_guard<std::mutex> const lock{mutex};
        served.push_back(priority);
      }
      by_priority.notify();
    });
    while (by_priority.waiting() != tasks.size()) { std::this_thread::yield(); }
  }
  auto const tries = [&] {
    auto const counts = pool.figures().recovery;
    return std::accumulate(
      std::begin(counts.rungs), std::end(counts.rungs), std::uint64_t{0}, [](std::uint64_t sum, auto const& rung) {
        return sum + rung.tried;
      });
  };
  for (auto before = ~tries(); before != tries();) {  // until no try is under way
    before = tries();
    std::this_thread::sleep_for(milliseconds{20});
  }
  all.reset();
  by_priority.notify();
  for (auto& each : tasks) { each.join(); }
  EXPECT_EQ(served, (std::vector<int>{2, 1, 1, 0}));
}

/// While both have the same priority by age, one changes before the other.
TEST_F(ReservationQueue, SomeRequestAlwaysTriesWhileRequestsOfTwoPrioritiesAge)
{
  rmm::mr::reservation_queue_options fast;
  fast.aging = milliseconds{40};
  reservation_queue aging{pool, fast};
  auto all = std::optional{pool.reserve(MiB, stream)};
  std::thread low{[&] { EXPECT_EQ(aging.reserve_or_wait(MiB, 0, std::chrono::seconds{60}).bytes(), MiB); }};
  while (aging.waiting() == 0) { std::this_thread::yield(); }
  std::this_thread::sleep_for(milliseconds{20});
  std::thread high{[&] { EXPECT_EQ(aging.reserve_or_wait(MiB, 1, std::chrono::seconds{60}).bytes(), MiB); }};
  std::this_thread::sleep_for(milliseconds{100});
  auto const begin = std::chrono::steady_clock::now();
  all.reset();
  low.join();
  high.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{40});  // without the timeouts' last tries
}

TEST_F(ReservationQueue, NoticesANotificationWhileItTries)
{
  struct {
    decltype(pool) upstream;
    reservation_queue* queue{};
    int calls{};
    std::optional<memory_reservation> try_reserve(std::size_t bytes, rmm::cuda_stream_view on)
    {
      if (++calls > 1) { return upstream.try_reserve(bytes, on); }
      queue->notify();
      return std::nullopt;
    }
  } source{pool};
  rmm::mr::reservation_queue_options patient;
  patient.retry_after = reservation_queue::forever;
  reservation_queue slow{source, patient};
  source.queue     = &slow;
  auto const begin = std::chrono::steady_clock::now();
  EXPECT_EQ(slow.reserve_or_wait(KiB, 0, std::chrono::seconds{60}).bytes(), KiB);
  EXPECT_EQ(source.calls, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{50});  // without the timeout's last try
}

TEST_F(ReservationQueue, AlsoDividesAReservation)
{
  auto task = pool.reserve(512 * KiB, stream);
  reservation_queue parts{task};
  auto const part = parts.reserve_or_wait(256 * KiB);
  EXPECT_EQ(task.used_bytes(), 256 * KiB);
  EXPECT_THROW(static_cast<void>(parts.reserve_or_wait(512 * KiB, 0, milliseconds{1})), rmm::out_of_memory);
}

TEST_F(ReservationQueue, GoesOnAfterARequestThatThrows)
{
  struct {
    int calls{};
    std::optional<memory_reservation> try_reserve(std::size_t, rmm::cuda_stream_view)
    {
      if (++calls == 1) { throw std::bad_alloc{}; }
      return std::nullopt;
    }
  } source;
  reservation_queue failing{source};
  EXPECT_THROW(static_cast<void>(failing.reserve_or_wait(1)), std::bad_alloc);
  EXPECT_EQ(failing.waiting(), 0U);
  EXPECT_THROW(static_cast<void>(failing.reserve_or_wait(1, 0, milliseconds{-1})), rmm::out_of_memory);
  EXPECT_EQ(source.calls, 2);
}

TEST_F(ReservationQueue, RefusesImpossibleRequestsImmediately)
{
  auto all = std::optional{pool.reserve(MiB, stream)};
  std::thread first{[&] { EXPECT_EQ(queue.reserve_or_wait(MiB, 9).bytes(), MiB); }};
  expect_waiting(1);  // so that the others must wait for their turn
  try {
    static_cast<void>(queue.reserve_or_wait(MiB + 1));
    ADD_FAILURE() << "the pool has a maximum";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("No reservation of 1.000001 MiB: there can be at most 1.000000 MiB"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("Reserve less, or make a larger pool"));
  }
  EXPECT_THROW(static_cast<void>(queue.reserve_or_wait(0)), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(queue.reserve_or_wait(std::numeric_limits<std::size_t>::max())), rmm::out_of_memory);
  EXPECT_EQ(queue.waiting(), 1U);
  all.reset();
  first.join();
}

TEST_F(ReservationQueue, KnowsTheMaximumOfItsSource)
{
  auto const expect_at_most = [](auto& source, std::size_t most) {
    reservation_queue of_source{source};
    EXPECT_EQ(of_source.reserve_or_wait(most, 0, milliseconds{0}).bytes(), most);
    EXPECT_THROW(static_cast<void>(of_source.reserve_or_wait(most + 1)), rmm::out_of_memory);  // throws without waiting
  };
  auto task = pool.reserve(512 * KiB, stream);
  expect_at_most(task, 512 * KiB);
  task.shrink_to(256 * KiB);
  EXPECT_EQ(task.maximum_bytes(), 256 * KiB);
  reservation_queue parts{task};
  EXPECT_THROW(static_cast<void>(parts.reserve_or_wait(257 * KiB)), rmm::out_of_memory);
  task.release();
  EXPECT_THROW(static_cast<void>(parts.reserve_or_wait(KiB)), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(task.maximum_bytes()), rmm::logic_error);
  expect_at_most(pool, MiB);

  rmm::mr::elastic_pool_memory_resource elastic{0, 3 * MiB};  // with chunks of 2 MiB
  EXPECT_EQ(elastic.maximum_bytes(), 4 * MiB);
  expect_at_most(elastic, 4 * MiB);
}

TEST_F(ReservationQueue, RefusesNegativeSizesWithoutAMaximum)
{
  rmm::mr::pool_memory_resource unlimited{&objects->cuda, 0};
  EXPECT_EQ(unlimited.maximum_bytes(), std::nullopt);
  reservation_queue of_unlimited{unlimited};
  struct {
    std::optional<memory_reservation> try_reserve(std::size_t, rmm::cuda_stream_view) { return std::nullopt; }
  } source;
  reservation_queue of_unknown{source};
  for (auto* const each : {&of_unlimited, &of_unknown}) {
    EXPECT_THROW(static_cast<void>(each->reserve_or_wait(std::size_t{0} - 4096)), rmm::out_of_memory);
    EXPECT_THROW(static_cast<void>(each->reserve_or_wait(0)), rmm::logic_error);
  }
}

}  // namespace
