// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/config.hpp>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using rmm::detail::spinning_mutex;
using rmm::detail::spinning_mutex_lock;
using namespace std::chrono_literals;

static_assert(std::is_nothrow_default_constructible_v<spinning_mutex> && !std::is_copy_constructible_v<spinning_mutex>);
#if !RMM_DETAIL_THREAD_SANITIZER
static_assert(std::is_trivially_destructible_v<spinning_mutex>);
[[maybe_unused]] constexpr spinning_mutex is_constant_initialized{};
#endif

void wait_for(std::chrono::steady_clock::duration time)
{
  auto const end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {}
}

rusage of_this_thread()
{
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used;
}

std::chrono::microseconds time_on_processor()
{
  auto const used = of_this_thread();
  return std::chrono::seconds{used.ru_utime.tv_sec + used.ru_stime.tv_sec} +
         std::chrono::microseconds{used.ru_utime.tv_usec + used.ru_stime.tv_usec};
}

TEST(SpinningMutex, IsHeldByOneThreadAtATime)
{
  spinning_mutex guard;
  long count{};
  std::vector<std::thread> threads;
  for (int i = 0; i != 8; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step != 10'000; ++step) {
        spinning_mutex_lock const lock{guard};
        ++count;
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(count, 80'000);
}

TEST(SpinningMutex, WakesAllThreadsThatSleep)
{
  spinning_mutex guard;
  int entered{};
  std::vector<std::thread> threads;
  {
    spinning_mutex_lock const lock{guard};
    for (int i = 0; i != 16; ++i) {
      threads.emplace_back([&] {
        spinning_mutex_lock const mine{guard};
        ++entered;
      });
    }
    std::this_thread::sleep_for(20ms);  // nobody spins any more
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(entered, 16);
}

TEST(SpinningMutex, SleepsIfItHasToWaitLong)
{
  spinning_mutex guard;
  std::chrono::microseconds used{};
  std::thread waiting;
  {
    spinning_mutex_lock const lock{guard};
    waiting = std::thread{[&] {
      auto const before = time_on_processor();
      spinning_mutex_lock const mine{guard};
      used = time_on_processor() - before;
    }};
    std::this_thread::sleep_for(500ms);
  }
  waiting.join();
  EXPECT_LT(used, 10ms);
}

/// Returns in how many of so many rounds a thread slept that had to wait for 10 us.
long rounds_with_sleep(int rounds)
{
  spinning_mutex guard;
  std::atomic<int> asked{-1};  // the round in which the other thread shall come
  std::atomic<int> comes{-1};  // the round in which it comes
  std::atomic<int> went{-1};   // the round in which it was inside last
  long sleeps{};
  std::thread other{[&] {
    for (int round = 0; round != rounds; ++round) {
      while (asked.load() != round) {}
      auto const before = of_this_thread().ru_nvcsw;
      comes.store(round);
      guard.lock();
      guard.unlock();
      sleeps += of_this_thread().ru_nvcsw != before ? 1 : 0;
      went.store(round);
    }
  }};
  for (int round = 0; round != rounds; ++round) {
    guard.lock();
    asked.store(round);
    while (comes.load() != round) {}
    wait_for(10us);
    guard.unlock();
    while (went.load() != round) {}
  }
  other.join();
  return sleeps;
}

TEST(SpinningMutex, ChangesNoErrorNumber)
{
  spinning_mutex guard;
  std::atomic<bool> changed{false};
  std::vector<std::thread> threads;
  for (int i = 0; i != 8; ++i) {
    threads.emplace_back([&] {
      errno = 1234;
      for (int step = 0; step != 10'000; ++step) {
        guard.lock();
        guard.unlock();
        if (errno != 1234) { changed = true; }
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_FALSE(changed);
}

TEST(SpinningMutex, SpinsIfItHasToWaitShortly)
{
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  if (CPU_COUNT(&usable) < 2) { GTEST_SKIP() << "with one processor no thread spins"; }
  constexpr int rounds = 100;
  long sleeps          = rounds;
  // A machine without a processor for each thread makes it wait longer, in some or in all rounds.
  auto const end = std::chrono::steady_clock::now() + 20s;
  while (sleeps > rounds / 2 && std::chrono::steady_clock::now() < end) { sleeps = rounds_with_sleep(rounds); }
  EXPECT_LE(sleeps, rounds / 2);
}

}  // namespace
