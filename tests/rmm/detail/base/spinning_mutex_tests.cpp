// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/config.hpp>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
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

/// Whether this thread may use two processors. With one, no thread spins or leaves a section.
bool has_two_processors()
{
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) > 1;
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
        guard.run([]() noexcept {});
        if (errno != 1234) { changed = true; }
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_FALSE(changed);
}

TEST(SpinningMutex, SpinsIfItHasToWaitShortly)
{
  if (!has_two_processors()) { GTEST_SKIP() << "with one processor no thread spins"; }
  constexpr int rounds = 100;
  long sleeps          = rounds;
  // A machine without a processor for each thread makes it wait longer, in some or in all rounds.
  auto const end = std::chrono::steady_clock::now() + 20s;
  while (sleeps > rounds / 2 && std::chrono::steady_clock::now() < end) { sleeps = rounds_with_sleep(rounds); }
  EXPECT_LE(sleeps, rounds / 2);
}

/// Lets threads lock and others run sections, all at once. Returns whether each section was run once, alone, before its run() returned.
bool run_beside_locks(int threads_of_each_kind, int steps)
{
  spinning_mutex guard{0};
  long count{};
  auto const count_slowly = [&] {
    auto const before = count;
    wait_for(1us);
    count = before + 1;
  };
  std::atomic<int> missing{2 * threads_of_each_kind};
  auto const wait_for_others = [&] {
    --missing;
    while (missing.load() != 0) { std::this_thread::yield(); }
  };
  auto const* const no_memory = reinterpret_cast<void const*>(8);  // any address may be fetched
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i != threads_of_each_kind; ++i) {
    threads.emplace_back([&] {
      wait_for_others();
      for (int step = 0; step != steps; ++step) {
        int runs{};
        auto const section = [&]() noexcept {
          count_slowly();
          ++runs;
        };
        guard.run(section, {&runs, nullptr, no_memory});
        wrong += runs != 1 ? 1 : 0;
      }
    });
    threads.emplace_back([&] {
      wait_for_others();
      for (int step = 0; step != steps; ++step) {
        spinning_mutex_lock const lock{guard};
        count_slowly();
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  return count == 2L * threads_of_each_kind * steps && wrong == 0;
}

TEST(SpinningMutex, RunsEachSectionOnceAndAlone) { EXPECT_TRUE(run_beside_locks(4, 5'000)); }

TEST(SpinningMutex, ReturnsAfterItsSectionEnded)
{
  constexpr int rounds = 100;
  spinning_mutex guard{0};
  std::atomic<int> asked{-1};  // the round in which the other thread shall come
  std::atomic<int> comes{-1};  // the round in which it comes
  std::atomic<int> went{-1};   // the round in which its run() returned last
  std::atomic<int> ended{0};   // its sections
  std::atomic<int> early{0};   // times that run() returned before its section ended
  std::thread other{[&] {
    for (int round = 0; round != rounds; ++round) {
      while (asked.load() != round) { std::this_thread::yield(); }
      comes.store(round);
      guard.run([&]() noexcept {
        wait_for(200us);
        ++ended;
      });
      early += ended.load() <= round ? 1 : 0;
      went.store(round);
    }
  }};
  for (int round = 0; round != rounds; ++round) {
    guard.run([&]() noexcept {
      asked.store(round);
      while (comes.load() != round) { std::this_thread::yield(); }
      wait_for(20us);  // so that the other thread still spins when this one runs its section
    });
    while (went.load() != round) { std::this_thread::yield(); }
  }
  other.join();
  EXPECT_EQ(early, 0);
  EXPECT_EQ(ended, rounds);
}

struct held_up_section {
  int runs{};
  bool ran_in_holder{};
  std::chrono::microseconds used{};  // on the processor, by the thread that waited for the section
};

enum class holding { in_run, in_run_here, by_lock };

/// Holds the mutex until another thread has waited in run() for that time.
held_up_section hold_up_section(std::chrono::milliseconds time, holding how)
{
  spinning_mutex guard{0};
  held_up_section result;
  std::atomic<bool> comes{false};
  std::thread other;
  auto const holder = std::this_thread::get_id();
  auto const hold   = [&]() noexcept {
    other = std::thread{[&] {
      auto const before = time_on_processor();
      comes.store(true);
      guard.run([&]() noexcept {
        ++result.runs;
        result.ran_in_holder = std::this_thread::get_id() == holder;
      });
      result.used = time_on_processor() - before;
    }};
    while (!comes.load()) { std::this_thread::yield(); }
    std::this_thread::sleep_for(time);
  };
  if (how == holding::in_run) {
    guard.run(hold);
  } else if (how == holding::in_run_here) {
    guard.run_here(hold);
  } else {
    spinning_mutex_lock const lock{guard};
    hold();
  }
  other.join();
  return result;
}

TEST(SpinningMutex, RunsLeftSectionInTheThreadThatHoldsIt)
{
  if (!has_two_processors()) { GTEST_SKIP() << "with one processor no section is left"; }
  for (auto const how : {holding::in_run, holding::in_run_here}) {
    bool ran_in_holder{};
    // On a busy machine the other thread may not have left its section when the time is up.
    for (int round = 0; round != 20 && !ran_in_holder; ++round) {
      auto const section = hold_up_section(50ms, how);
      ASSERT_EQ(section.runs, 1);
      ran_in_holder = section.ran_in_holder;
    }
    EXPECT_TRUE(ran_in_holder);
  }
}

TEST(SpinningMutex, SleepsIfItsSectionHasToWaitLong)
{
  for (auto const how : {holding::by_lock, holding::in_run}) {
    auto const section = hold_up_section(500ms, how);
    EXPECT_LT(section.used, 10ms);
    EXPECT_EQ(section.runs, 1);
    EXPECT_FALSE(section.ran_in_holder && how == holding::by_lock) << "a thread in lock() runs no sections";
  }
}

TEST(SpinningMutex, LeavesNoSectionWhileNobodyElseWaits)
{
  spinning_mutex guard{1};
  std::thread other;
  std::thread::id ran_in;
  guard.run([&]() noexcept {
    std::atomic<bool> comes{false};
    other = std::thread{[&] {
      comes.store(true);
      guard.run([&]() noexcept { ran_in = std::this_thread::get_id(); });
    }};
    while (!comes.load()) { std::this_thread::yield(); }
    std::this_thread::sleep_for(20ms);
  });
  auto const expected = other.get_id();
  other.join();
  EXPECT_EQ(ran_in, expected);
}

[[noreturn]] void exit_after_sections_on_one_processor()
{
  cpu_set_t one;
  auto const now = sched_getcpu();
  CPU_ZERO(&one);
  CPU_SET(now, &one);
  bool right         = now >= 0 && sched_setaffinity(0, sizeof one, &one) == 0;  // holds for the threads it begins, too
  auto const section = hold_up_section(50ms, holding::in_run);
  right              = right && section.runs == 1 && !section.ran_in_holder;
  std::exit(right && run_beside_locks(2, 1'000) ? 0 : 1);
}

/// In a process of its own, because a process that has seen two processors believes that all threads may use them.
TEST(SpinningMutexDeathTest, LeavesNoSectionOnOneProcessor)
{
  EXPECT_EXIT(exit_after_sections_on_one_processor(), testing::ExitedWithCode(0), "");
}

}  // namespace
