// SPDX-License-Identifier: Apache-2.0
#include "../../../support/recycling_upstream.hpp"

#include <rmm/detail/base/time_counter.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/trace/trace_clock.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace {

using namespace rmm::detail::trace;
using rmm::detail::time_counter;
using rmm::test::run_on_threads;

/// A simulated machine whose time passes only in pass().
struct machine {
  bool has_counter{true};
  std::uint64_t ns{1'000'000'000};
  std::uint64_t ticks{77};
  std::uint64_t ticks_per_1000_ns{2'600};
  std::uint64_t early_ticks{0};  // how much an unordered read of the counter is early
  unsigned clock_reads{0};

  void pass(std::uint64_t elapsed_ns)
  {
    ns += elapsed_ns;
    ticks += elapsed_ns * ticks_per_1000_ns / 1000;
  }
};

struct made_up_clocks {
  machine* of{};
  [[nodiscard]] bool has_counter() const noexcept { return of->has_counter; }
  [[nodiscard]] std::uint64_t ticks() const noexcept { return of->ticks; }
  [[nodiscard]] std::uint64_t about_ticks() const noexcept { return of->ticks - of->early_ticks; }
  [[nodiscard]] std::uint64_t ns() const noexcept
  {
    ++of->clock_reads;
    return of->ns;
  }
};

using made_up_trace_clock = basic_trace_clock<made_up_clocks>;

struct TraceClock : ::testing::Test {
  machine here{};
  std::uint64_t const begin_ns{here.ns};
  made_up_trace_clock clock{begin_ns, made_up_clocks{&here}};
  clock_line line{};
  std::uint64_t last{0};

  [[nodiscard]] std::uint64_t truth() const { return here.ns - begin_ns; }

  /// Lets time pass in steps and reads the clock after each. Returns the largest error.
  std::uint64_t run_for(std::uint64_t elapsed_ns, std::uint64_t step_ns = 1'000)
  {
    std::uint64_t worst = 0;
    for (std::uint64_t i = 0; i < elapsed_ns / step_ns; ++i) {
      here.pass(step_ns);
      auto const now = clock.now(line, true);
      EXPECT_GE(now, last);
      last  = now;
      worst = std::max(worst, now > truth() ? now - truth() : truth() - now);
    }
    return worst;
  }
};

TEST_F(TraceClock, EqualsTheSystemClockUntilTheCounterIsCalibrated)
{
  EXPECT_EQ(run_for(made_up_trace_clock::shortest_ns, 1000), 0);
  EXPECT_EQ(line.length, 0);
  run_for(2 * made_up_trace_clock::shortest_ns);
  EXPECT_NE(line.length, 0);
}

TEST_F(TraceClock, ReadsTheSystemClockOnlyEveryFewMilliseconds)
{
  run_for(100'000'000);
  auto const before = here.clock_reads;
  EXPECT_LE(run_for(1'000'000'000), 2);
  EXPECT_LE(here.clock_reads - before, 4 * 1000 / 8 + 8);
}

TEST_F(TraceClock, FollowsAnAdjustedSystemClock)
{
  run_for(100'000'000);
  for (auto const ticks : {2'601U, 2'599U, 2'600U}) {  // 385 parts in a million; adjustments are up to 500
    here.ticks_per_1000_ns = ticks;
    EXPECT_LE(run_for(8'000'000), 8'000'000 / 1'250);
    run_for(16'000'000);
    EXPECT_LE(run_for(100'000'000), 2);
  }
}

TEST_F(TraceClock, CalibratesSlowAndFastCounters)
{
  for (auto const ticks_per_1000_ns : {24U, 62U, 1'000U, 10'000U}) {
    machine other;
    other.ticks_per_1000_ns = ticks_per_1000_ns;
    made_up_trace_clock its_clock{other.ns, made_up_clocks{&other}};
    auto const begin = other.ns;
    clock_line its_line{};
    for (int i = 0; i < 100'000; ++i) {
      other.pass(1'000);
      auto const now = its_clock.now(its_line, true);
      ASSERT_NEAR(static_cast<double>(now), static_cast<double>(other.ns - begin), 100) << ticks_per_1000_ns;
    }
    EXPECT_NE(its_line.length, 0) << ticks_per_1000_ns;
  }
}

TEST_F(TraceClock, IsRightAfterALongPause)
{
  constexpr std::uint64_t year = std::uint64_t{365} * 24 * 3600 * 1'000'000'000;
  run_for(10'000'000);
  here.pass(year);
  EXPECT_LE(run_for(100'000'000), 2);
  EXPECT_NE(line.length, 0);
}

TEST_F(TraceClock, IsRightAfterTheMachineSleptWhileTheCounterRan)
{
  run_for(10'000'000);
  here.ticks += std::uint64_t{3600} * 2'600'000'000;                // CLOCK_MONOTONIC does not count sleep
  EXPECT_LE(run_for(20'000'000), made_up_trace_clock::longest_ns);  // the error is bounded by the end of the old line
  EXPECT_LE(run_for(100'000'000), 10);
  EXPECT_NE(line.length, 0);
}

TEST_F(TraceClock, IsRightAfterTheCounterStoodStill)
{
  run_for(10'000'000);
  here.ns += std::uint64_t{3600} * 1'000'000'000;
  run_for(made_up_trace_clock::longest_ns);  // until the old line ends
  EXPECT_LE(run_for(100'000'000), 10);
  EXPECT_NE(line.length, 0);
}

TEST_F(TraceClock, IsRightAfterTheCounterRestarted)
{
  run_for(10'000'000);
  here.ticks = 5;
  EXPECT_LE(run_for(20'000'000), made_up_trace_clock::longest_ns);  // the error is bounded by the end of the old line
  EXPECT_LE(run_for(100'000'000), 10);
  EXPECT_NE(line.length, 0);
}

TEST_F(TraceClock, DoesNotGoBackAfterRunningAhead)
{
  run_for(100'000'000);
  for (auto const before = line.begin; line.begin == before;) { run_for(1'000); }
  here.ticks_per_1000_ns = 2'700;  // 4 % faster, within one line
  run_for(4'000'000);
  EXPECT_GT(last, truth() + 100'000);
  here.ticks_per_1000_ns = 2'600;
  run_for(100'000'000);  // checks that the time never goes back
  EXPECT_LE(run_for(1'000'000), 2);
}

TEST_F(TraceClock, GivesUpAnUnsteadyCounter)
{
  std::uint64_t worst = 0;
  for (int i = 0; i < 200; ++i) {
    here.ticks_per_1000_ns = i % 2 == 0 ? 2'000 : 3'000;
    worst                  = std::max(worst, run_for(made_up_trace_clock::shortest_ns));
  }
  EXPECT_FALSE(clock.counts());
  EXPECT_EQ(worst, 0);
  here.ticks_per_1000_ns = 2'600;
  EXPECT_EQ(run_for(100'000'000), 0);
  EXPECT_EQ(line.length, 0);
}

TEST_F(TraceClock, ReadsTheCounterInOrderOnRequest)
{
  run_for(100'000'000);
  here.early_ticks = 260;
  auto const now   = clock.now(line, true);
  EXPECT_NEAR(static_cast<double>(now), static_cast<double>(truth()), 2);
  EXPECT_NEAR(static_cast<double>(clock.now(line, false)), static_cast<double>(now) - 100, 1);
  clock_line none{};
  EXPECT_EQ(clock.now(none, false), now);  // a thread without a line waits for a lock, so it needs no ordered read
}

TEST(TraceClockWithoutCounter, EqualsTheSystemClock)
{
  machine here;
  here.has_counter = false;
  made_up_trace_clock clock{here.ns, made_up_clocks{&here}};
  clock_line line{};
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    here.pass(1'000'000);
    here.ticks = i * i;
    ASSERT_EQ(clock.now(line, true), 1'000'000 * i);
  }
  EXPECT_FALSE(clock.counts());
}

// --- on the machine that runs the test -------------------------------------------------------------------------------

TEST(TimeCounter, IsNotUsedIfTheBuildDisablesIt)
{
  if (RMM_DETAIL_HAS_TIME_COUNTER) { GTEST_SKIP() << "this build has it"; }
  EXPECT_FALSE(time_counter::is_usable());
  EXPECT_FALSE(trace_clock{clock_ns()}.counts());
}

/// By how many nanoseconds a clock differs from the system clock.
struct differences {
  std::uint64_t median{0};
  std::uint64_t worst{0};
};

/// Compares a new clock with the system clock for 0.1 s, and longer on a machine that rarely runs this thread: until the clock has
/// calibrated the counter, if there is one.
differences compare_with_system_clock()
{
  auto const begin = clock_ns();
  trace_clock clock{begin};
  clock_line line{};
  std::vector<std::uint64_t> wrong;
  std::uint64_t last = 0;
  bool has_line      = false;
  for (std::uint64_t passed = 0; passed < 100'000'000 || (!has_line && clock.counts() && passed < 20'000'000'000);) {
    auto const before = clock_ns() - begin;
    auto const now    = clock.now(line, true);
    passed            = clock_ns() - begin;
    EXPECT_GE(now, last);
    last     = now;
    has_line = has_line || line.length != 0;
    wrong.push_back(now < before ? before - now : now > passed ? now - passed : 0);
  }
  EXPECT_EQ(has_line, clock.counts() && time_counter::is_usable());
  std::sort(wrong.begin(), wrong.end());
  return {wrong[wrong.size() / 2], wrong.back()};
}

// The best of several attempts: the machine may stop between two reads, each time that the clock compares the counter.
TEST(TraceClockOfTheMachine, AgreesWithTheSystemClock)
{
  auto const is_good = [](differences const& found) { return found.median <= 200 && found.worst <= 100'000; };
  auto found         = compare_with_system_clock();
  for (int i = 0; i < 9 && !HasFailure() && !is_good(found); ++i) { found = compare_with_system_clock(); }
  EXPECT_LE(found.median, 200);
  EXPECT_LE(found.worst, 100'000);
  RecordProperty("median_ns", static_cast<int>(found.median));
  RecordProperty("worst_ns", static_cast<int>(found.worst));
}

/// Threads pass a time to each other under a mutex. Each must find a time that is not later than its own.
TEST(TraceClockOfTheMachine, IsOrderedBetweenThreadsThatSynchronise)
{
  constexpr int rounds = RMM_DETAIL_THREAD_SANITIZER ? 100'000 : 2'000'000;
  trace_clock clock{clock_ns()};
  std::mutex mutex;
  std::uint64_t last = 0;
  int earlier        = 0;
  run_on_threads(2, [&](int number) {
    clock_line line{};
    auto random = static_cast<unsigned>(number);
    for (int i = 0; i < rounds; ++i) {
      {
        std::lock_guard<std::mutex> const lock{mutex};
        auto const now = clock.now(line, true);
        earlier += now < last ? 1 : 0;
        last = now;
      }
      random = random * 1'664'525U + 1'013'904'223U;
      for (unsigned pause = random >> 24U; pause != 0; --pause) { std::atomic_signal_fence(std::memory_order_seq_cst); }
    }
  });
  EXPECT_EQ(earlier, 0);
}

}  // namespace
