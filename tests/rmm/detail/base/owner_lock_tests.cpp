// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/owner_lock.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using rmm::detail::owner_lock;
using rmm::detail::process_barrier;

TEST(OwnerLock, TheOwnerEntersAndLeaves)
{
  owner_lock lock;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(lock.try_enter());
    lock.leave();
  }
}

TEST(OwnerLock, AnOwnerThatIsKeptOutHasNotEntered)
{
  owner_lock lock;
  lock.begin_keeping_out();
  EXPECT_FALSE(lock.try_enter());
  lock.wait_until_left();  // returns: nobody is inside
  lock.end_keeping_out();
  EXPECT_TRUE(lock.try_enter());
  lock.leave();
}

TEST(OwnerLock, WhoeverKeepsOutWaitsForAnOwnerThatIsInside)
{
  owner_lock lock;
  int guarded{0};
  ASSERT_TRUE(lock.try_enter());
  std::atomic<bool> began{false};
  std::thread other{[&] {
    lock.begin_keeping_out();
    process_barrier::pass_all_threads();
    began = true;
    lock.wait_until_left();
    EXPECT_EQ(guarded, 1);
    lock.end_keeping_out();
  }};
  while (!began) { std::this_thread::yield(); }
  guarded = 1;
  lock.leave();
  other.join();
}

TEST(OwnerLock, NothingIsGuardedTwiceAtATime)
{
  // The owner and another thread count by plain loads and stores; were both inside at a time, some steps would be lost. Before
  // it enters, the owner writes to memory that is in no cache: what it writes after that reaches the other thread late.
  struct shared {
    owner_lock lock;
    std::int64_t volatile counter{0};
  };
  std::vector<shared> all(4);
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> of_owner{0};
  std::int64_t of_other{0};

  std::thread owner{[&] {
    std::vector<unsigned char> scratch(std::size_t{16} << 20);
    auto* const bytes = static_cast<unsigned char volatile*>(scratch.data());
    std::size_t at    = 0;
    std::size_t which = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      for (int i = 0; i < 24; ++i) {
        at        = (at + 64 * 4099) % scratch.size();
        bytes[at] = 1;
      }
      auto& each = all[which++ % all.size()];
      if (each.lock.try_enter()) {
        each.counter = each.counter + 1;
        each.lock.leave();
      } else {
        std::lock_guard<std::mutex> const kept_out{mutex};
        each.counter = each.counter + 1;
      }
      of_owner.store(of_owner.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }};
  // Where there are fewer processors than threads each turn may take one of the scheduler's.
  auto const enough = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  for (int i = 0; i < 10'000 && (i < 100 || std::chrono::steady_clock::now() < enough); ++i) {
    auto const before = of_owner.load(std::memory_order_relaxed);
    while (of_owner.load(std::memory_order_relaxed) == before) { std::this_thread::yield(); }  // it is running now
    std::lock_guard<std::mutex> const guard{mutex};
    for (auto& each : all) { each.lock.begin_keeping_out(); }
    process_barrier::pass_all_threads();
    for (auto& each : all) { each.lock.wait_until_left(); }
    for (auto& each : all) {
      for (int k = 0; k < 20; ++k) { each.counter = each.counter + 1; }
      of_other += 20;
    }
    for (auto& each : all) { each.lock.end_keeping_out(); }
  }
  stop = true;
  owner.join();
  std::int64_t counted{0};
  for (auto const& each : all) { counted += each.counter; }
  EXPECT_EQ(counted, of_owner + of_other);
}

TEST(ProcessBarrier, WorksWhereItSaysThatItIsAvailable)
{
  EXPECT_EQ(process_barrier::is_available(), process_barrier::is_available());
  if (process_barrier::is_available()) { EXPECT_TRUE(process_barrier::pass_all_threads()); }
}

}  // namespace
