// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/usage_statistics.hpp>

#include "../../../support/seeds.hpp"
#include "../../../support/worker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::detail::usage_counter;
using rmm::detail::usage_statistics;

std::uint64_t new_number()
{
  static std::uint64_t last{2'000'000};  // different from the numbers of known_streams()
  return ++last;
}

/// A model of the counters, for calls that do not overlap.
class model {
 public:
  void add(std::size_t bytes)
  {
    sections_.back().first += static_cast<std::int64_t>(bytes);
    sections_.back().second += 1;
  }
  void subtract(std::size_t bytes)
  {
    sections_.back().first -= static_cast<std::int64_t>(bytes);
    sections_.back().second -= 1;
  }
  usage_statistics::counters read() const { return sections_.back(); }
  usage_statistics::counters push()
  {
    auto const around = sections_.back();
    sections_.emplace_back();
    return around;
  }
  usage_statistics::counters pop()
  {
    auto const ended = sections_.back();
    sections_.pop_back();
    sections_.back().first.add_counters_from_tracked_sub_block(ended.first);
    sections_.back().second.add_counters_from_tracked_sub_block(ended.second);
    return ended;
  }
  std::size_t depth() const { return sections_.size(); }

 private:
  std::vector<usage_statistics::counters> sections_{1};
};

void expect_equal(usage_counter const& found, usage_counter const& expected, char const* what, int step)
{
  EXPECT_EQ(found.value, expected.value) << what << " at step " << step;
  EXPECT_EQ(found.peak, expected.peak) << what << " at step " << step;
  EXPECT_EQ(found.total, expected.total) << what << " at step " << step;
}

void expect_equal(usage_statistics::counters const& found, usage_statistics::counters const& expected, int step)
{
  expect_equal(found.first, expected.first, "bytes", step);
  expect_equal(found.second, expected.second, "allocations", step);
}

template <class Body>
void on_threads(int count, Body body)
{
  std::vector<std::thread> threads;
  for (int number = 0; number < count; ++number) { threads.emplace_back(body, number); }
  for (auto& thread : threads) { thread.join(); }
}

TEST(UsageStatistics, RefuseToPopTheOutermostSection)
{
  usage_statistics statistics{new_number()};
  EXPECT_THROW(statistics.pop(), std::out_of_range);
}

/// Adds through try_add() if it serves and `at_once` is set, otherwise through add().
void add_to(usage_statistics& statistics, std::size_t bytes, bool at_once)
{
  int made = 0;
  EXPECT_EQ(statistics.try_add(bytes, []() -> void* { return nullptr; }), nullptr);
  if (!at_once || statistics.try_add(bytes, [&] { return &made; }) != &made) { statistics.add(bytes); }
}

void subtract_from(usage_statistics& statistics, std::size_t bytes, bool at_once)
{
  EXPECT_FALSE(statistics.try_subtract(bytes, [] { return false; }));
  if (!at_once || !statistics.try_subtract(bytes, [] { return true; })) { statistics.subtract(bytes); }
}

/// Makes calls from several threads that do not overlap. `seed` decides which; `reads` says how often to compare the counters.
void compare_with_model(std::uint64_t seed, int threads, int reads)
{
  usage_statistics statistics{new_number()};
  model expected;
  std::mutex mutex;
  std::mt19937_64 random{seed};
  std::vector<std::size_t> live;
  int step = 0;
  on_threads(threads, [&](int) {
    for (int i = 0; i < 4000 / threads; ++i) {
      std::lock_guard<std::mutex> const lock{mutex};
      auto const choice = random() % 100;
      auto const bytes  = std::size_t{1} << (random() % 20U);
      if (choice < 48) {
        add_to(statistics, bytes, random() % 2 == 0);
        expected.add(bytes);
        live.push_back(bytes);
      } else if (choice < 96 && !live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        subtract_from(statistics, live.back(), random() % 2 == 0);
        expected.subtract(live.back());
        live.pop_back();
      } else if (choice == 96) {
        expect_equal(statistics.push(), expected.push(), step);
      } else if (choice == 97 && expected.depth() > 1) {
        expect_equal(statistics.pop(), expected.pop(), step);
      } else if (choice == 98) {
        statistics.subtract(bytes);  // memory that was not counted
        expected.subtract(bytes);
      }
      if (random() % 100 < static_cast<unsigned>(reads)) { expect_equal(statistics.read(), expected.read(), step); }
      ++step;
    }
  });
  expect_equal(statistics.read(), expected.read(), step);
}

TEST(UsageStatistics, TryAddSucceedsOnceTheThreadHasAShareWithRoom)
{
  usage_statistics statistics{new_number()};
  int made            = 0;
  auto const try_once = [&] { return statistics.try_add(8, [&] { return &made; }) != nullptr; };
  EXPECT_FALSE(try_once());  // the thread has no share yet
  statistics.add(8);
  EXPECT_FALSE(try_once());  // a new peak needs the counters of all threads
  statistics.subtract(8);
  for (int i = 0; i < 100 && !try_once(); ++i) {
    statistics.add(8);
    statistics.subtract(8);
  }
  EXPECT_EQ(statistics.read().second.value, 1);
  EXPECT_TRUE(statistics.try_subtract(8, [] { return true; }));
  EXPECT_EQ(statistics.read().second.value, 0);
}

TEST(UsageStatistics, TryAddTakesFewInstructionsBelowTheThreadsPeak)
{
  usage_statistics statistics{new_number()};
  statistics.add(800);
  statistics.subtract(800);
  bool counted = false;
  for (int i = 0; i < 1000 && !counted; ++i) {  // until the thread has a share of the peak
    statistics.add(8);
    counted = statistics.try_add(8);
    statistics.subtract(counted ? 16 : 8);
  }
  statistics.add(400);
  statistics.subtract(400);
  EXPECT_TRUE(statistics.try_add(400));
  EXPECT_FALSE(statistics.try_add(401));
  EXPECT_EQ(statistics.read().first.peak, 800);
  EXPECT_EQ(statistics.read().first.value, 400);
}

TEST(UsageStatistics, MatchAModelOnOneThread)
{
  rmm::test::for_each_seed(20, [](std::uint64_t seed) { compare_with_model(seed, 1, 10); });
}

TEST(UsageStatistics, MatchAModelIfThreadsTakeTurns)
{
  rmm::test::for_each_seed(20, [](std::uint64_t seed) { compare_with_model(seed, 4, 10); });
}

TEST(UsageStatistics, MatchAModelWithoutReadersAtTheSameTime)
{
  rmm::test::for_each_seed(20, [](std::uint64_t seed) { compare_with_model(seed, 4, 0); });
}

TEST(UsageStatistics, DoNotTreatALaterCallOfAnotherThreadAsOverlapping)
{
  usage_statistics statistics{new_number()};
  for (int i = 0; i < 100; ++i) {
    std::thread{[&] {
      statistics.add(100);
      statistics.subtract(100);
    }}.join();
  }
  EXPECT_EQ(statistics.read().first.peak, 100);
  EXPECT_EQ(statistics.read().second.peak, 1);
}

TEST(UsageStatistics, CountWhatOneThreadAllocatesAndAnotherFrees)
{
  usage_statistics statistics{new_number()};
  for (int i = 0; i < 1000; ++i) { statistics.add(10); }
  std::thread{[&] {
    for (int i = 0; i < 900; ++i) { statistics.subtract(10); }
    for (int i = 0; i < 901; ++i) { statistics.add(10); }
  }}.join();
  auto const [bytes, calls] = statistics.read();
  expect_equal(bytes, {10010, 10010, 19010}, "bytes", 0);
  expect_equal(calls, {1001, 1001, 1901}, "allocations", 0);
}

/// The peak of each thread does not exceed the total peak, but the sum of their peaks does.
TEST(UsageStatistics, FindThePeakOfThreadsThatPeakOneAfterTheOther)
{
  rmm::test::worker first;
  rmm::test::worker second;
  for (int rounds = 1; rounds < 60; ++rounds) {  // with counters of single threads, and with common counters
    usage_statistics statistics{new_number()};
    for (int i = 0; i < rounds; ++i) {
      for (auto* const each : {&first, &second}) {
        each->run([&] {
          statistics.add(100);
          statistics.subtract(100);
        });
      }
    }
    first.run([&] { statistics.add(100); });
    second.run([&] { statistics.add(90); });
    EXPECT_EQ(statistics.read().first.peak, 190) << rounds;
    EXPECT_EQ(statistics.read().second.peak, 2) << rounds;
  }
}

/// Threads that do not wait for each other, in rounds in which each reaches its own peak.
TEST(UsageStatistics, FindThePeakThatAllThreadsReachTogether)
{
  constexpr int threads{6};
  constexpr int rounds{30};
  usage_statistics statistics{new_number()};
  std::atomic<int> arrived{0};
  on_threads(threads, [&](int number) {
    auto const mine = static_cast<std::size_t>(100 * (number + 1));
    std::mt19937 random{static_cast<unsigned>(number)};
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < 300; ++i) {
        auto const some = 1 + random() % mine;
        statistics.add(some);
        statistics.subtract(some);
      }
      statistics.add(mine);
      arrived.fetch_add(1);
      while (arrived.load() < (2 * round + 1) * threads) { std::this_thread::yield(); }
      arrived.fetch_add(1);
      while (arrived.load() < (2 * round + 2) * threads) { std::this_thread::yield(); }
      statistics.subtract(mine);
    }
  });
  auto const [bytes, calls] = statistics.read();
  EXPECT_EQ(bytes.peak, 100 + 200 + 300 + 400 + 500 + 600);  // the sum of the threads' peaks, which was reached
  EXPECT_EQ(calls.peak, threads);
  EXPECT_EQ(bytes.value, 0);
  EXPECT_EQ(calls.total, threads * rounds * 301);
}

TEST(UsageStatistics, AreConsistentWheneverTheyAreRead)
{
  usage_statistics statistics{new_number()};
  std::atomic<int> working{3};
  std::thread reader{[&] {
    std::int64_t total = 0;
    while (working.load() != 0) {
      auto const [bytes, calls] = statistics.read();
      EXPECT_EQ(bytes.value, 8 * calls.value);
      EXPECT_EQ(bytes.total, 8 * calls.total);
      EXPECT_GE(calls.peak, calls.value);
      EXPECT_LE(calls.peak, 30);
      EXPECT_GE(calls.total, total);
      total = calls.total;
    }
  }};
  on_threads(3, [&](int) {
    for (int round = 0; round < 300; ++round) {
      for (int i = 0; i < 10; ++i) { add_to(statistics, 8, i % 2 == 0); }
      for (int i = 0; i < 10; ++i) { subtract_from(statistics, 8, i % 2 == 0); }
    }
    working.fetch_sub(1);
  });
  reader.join();
  EXPECT_EQ(statistics.read().second.total, 9000);
}

}  // namespace
