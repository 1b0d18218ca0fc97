// SPDX-License-Identifier: Apache-2.0

// spinning_mutex, in all executions of the C++ memory model: two threads that spin, give up, sleep, are woken, and run sections of each
// other. spinning_mutex.pml has more threads, in lock().

#include "modelled_std.hpp"

#include "check_orders.hpp"

#include <rmm/detail/base/spinning_mutex.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace {

using rmm::detail::spinning_mutex;
using weak_memory::expect;
using weak_memory::program;

struct guarded {
  spinning_mutex mutex{0};  // else only a third thread would leave its section
  weak_memory::plain<int> count{0, "what the mutex guards"};

  void enter(int times)
  {
    for (int i = 0; i != times; ++i) {
      mutex.lock();
      count = count + 1;
      mutex.unlock();
    }
  }

  void run(int times)
  {
    for (int i = 0; i != times; ++i) {
      weak_memory::plain<int> before{1, "what a thread wrote before run()"};
      weak_memory::plain<int> runs{0, "what a section writes for its thread"};
      mutex.run([&]() noexcept {
        count = count + before;
        runs  = runs + 1;
      });
      expect(runs == 1, "run() returns after the section ran once");
    }
  }

  void run_here()
  {
    mutex.run_here([&]() noexcept { count = count + 1; });
  }
};

/// Makes one thread for each number, which locks so often, one for each number of `runs`, which calls run() so often, and `here` threads
/// that call run_here(). A thread that sleeps and is not woken cannot go on, which is an error.
weak_memory::set_up_program threads_that_enter(std::vector<int> const& times,
                                               std::vector<int> const& runs = {},
                                               int here                     = 0)
{
  return [=](program& made) {
    auto const state = std::make_shared<guarded>();
    int sum{};
    for (int const each : times) {
      made.thread([=] { state->enter(each); });
      sum += each;
    }
    for (int const each : runs) {
      made.thread([=] { state->run(each); });
      sum += each;
    }
    for (int i = 0; i != here; ++i) {
      made.thread([=] { state->run_here(); });
    }
    sum += here;
    made.finally([=] { expect(state->count == sum, "each thread saw what the others had written"); });
  };
}

weak_memory::limits with_given_up_turns()
{
  weak_memory::limits given;
  given.most_idle_loads = 4;  // more than a thread makes before it gives up its turn
  return given;
}

weak_memory::checked_part const spinning{"include/rmm/detail/base/spinning_mutex.hpp",
                                         {threads_that_enter({1, 1}),
                                          threads_that_enter({1}, {1}),
                                          threads_that_enter({}, {1, 1}),
                                          threads_that_enter({}, {1}, 1)},
                                         with_given_up_turns()};
weak_memory::checked_part const sleeping{spinning.file,
                                         {threads_that_enter({1, 1}),
                                          threads_that_enter({2, 1}),
                                          threads_that_enter({1}, {1}),
                                          threads_that_enter({}, {1, 1}),
                                          threads_that_enter({}, {1}, 1)},
                                         with_given_up_turns()};

/// With one processor no thread spins.
struct SpinningMutexModel : testing::TestWithParam<int> {
  SpinningMutexModel() { rmm::detail::modelled_processors = GetParam(); }
  ~SpinningMutexModel() override { rmm::detail::modelled_processors = 2; }

  [[nodiscard]] static weak_memory::checked_part const& part() { return GetParam() == 1 ? sleeping : spinning; }
};
INSTANTIATE_TEST_SUITE_P(Processors, SpinningMutexModel, testing::Values(1, 2));

TEST_P(SpinningMutexModel, KeepsThreadsApartAndWakesThem) { weak_memory::expect_right(part()); }

TEST_P(SpinningMutexModel, NeedsItsOrders)
{
  EXPECT_EQ(weak_memory::unnoticed_weakenings(part()), std::set<std::string>{});
}

}  // namespace
