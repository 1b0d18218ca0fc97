// SPDX-License-Identifier: Apache-2.0

// biased_lock and process_barrier, in all executions of the C++ memory model: an owner, and one or two threads that
// lock it out. Compiled once more for systems without membarrier.

#include "modelled_std.hpp"

#include "biased_lock_orders.hpp"
#include "check_orders.hpp"

#include <rmm/detail/base/biased_lock.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace {

using rmm::detail::biased_lock;
using rmm::detail::process_barrier;
using weak_memory::expect;
using weak_memory::program;

struct guarded {
  biased_lock lock;
  weak_memory::mutex mutex;  // of the threads that lock the owner out
  weak_memory::plain<int> count{0, "what the lock guards"};
  weak_memory::plain<bool> stays_closed{false, "what the mutex guards"};
  int calls{0};

  void call_as_owner()
  {
    bool const entered = lock.try_enter();
    if (!entered) {
      mutex.lock();
      stays_closed = false;
      lock.end_keeping_out();  // the other thread may have done so meanwhile
    }
    count = count + 1;
    if (entered) {
      lock.leave();
    } else {
      mutex.unlock();
    }
    ++calls;
  }

  void lock_owner_out(bool with_barrier = true)
  {
    mutex.lock();
    lock.begin_keeping_out();
    if (with_barrier) { process_barrier::pass_all_threads(); }
    lock.wait_until_left();
    count = count + 1;
    lock.end_keeping_out();
    mutex.unlock();
    ++calls;
  }

  /// Leaves it to the owner to let itself in again. While the owner has not, other threads need not lock it out.
  void lock_owner_out_until_it_comes()
  {
    mutex.lock();
    if (!stays_closed) {
      lock.begin_keeping_out();
      process_barrier::pass_all_threads();
      lock.wait_until_left();
      stays_closed = true;
    }
    count = count + 1;
    mutex.unlock();
    ++calls;
  }
};

/// An owner that makes some calls, beside some other threads. At the end all calls must have been counted.
weak_memory::set_up_program owner_and_others(int calls, int others, bool with_barrier = true)
{
  return [=](program& made) {
    auto const state = std::make_shared<guarded>();
    made.thread([=] {
      for (int i = 0; i != calls; ++i) { state->call_as_owner(); }
    });
    for (int i = 0; i != others; ++i) {
      made.thread([=] { state->lock_owner_out(with_barrier); });
    }
    made.finally([=] { expect(state->count == state->calls, "each thread saw what the other had written"); });
  };
}

/// An owner that lets itself in again, beside threads that lock it out until it comes.
weak_memory::set_up_program owner_that_lets_itself_in(int calls, int others)
{
  return [=](program& made) {
    auto const state = std::make_shared<guarded>();
    made.thread([=] {
      for (int i = 0; i != calls; ++i) { state->call_as_owner(); }
    });
    for (int i = 0; i != others; ++i) {
      made.thread([=] { state->lock_owner_out_until_it_comes(); });
    }
    made.finally([=] { expect(state->count == state->calls, "each thread saw what the other had written"); });
  };
}

void call_alone(program& made)
{
  auto const state = std::make_shared<guarded>();
  made.thread([=] {
    expect(state->lock.try_enter(), "the owner enters");
    state->lock.leave();
  });
}

weak_memory::checked_part const biased_lock_part{"include/rmm/detail/base/biased_lock.hpp",
                                                 {owner_and_others(2, 1),
                                                  owner_and_others(1, 2),
                                                  owner_and_others(3, 1),
                                                  owner_that_lets_itself_in(2, 1),
                                                  owner_that_lets_itself_in(3, 1),
                                                  owner_that_lets_itself_in(2, 2)}};
weak_memory::checked_part const short_programs{biased_lock_part.file, {call_alone, owner_and_others(2, 1)}};

TEST(BiasedLockModel, KeepsThreadsApartAndPassesTheirWrites) { weak_memory::expect_right(biased_lock_part); }

#if RMM_DETAIL_HAS_MEMBARRIER

TEST(BiasedLockModel, NeedsTheBarrierInAllThreads)
{
  EXPECT_NE(weak_memory::explore(owner_and_others(1, 1, false)).error, "");
}

TEST(BiasedLockModel, NeedsReleaseAndAcquireBesideTheBarrier)
{
  EXPECT_EQ(weak_memory::unnoticed_weakenings(short_programs), orders_not_needed_beside_barrier());
}

#else

TEST(BiasedLockModel, NeedsSequentialOperationsWithoutTheBarrier)
{
  std::string const first_check  = "if (state_.load(std::memory_order_seq_cst) == 0) { return true; }: ";
  std::string const second_check = "if ((state_.load(std::memory_order_seq_cst) & kept_out) == 0) { return true; }: ";
  std::set<std::string> const expected{
    first_check + "seq_cst -> acquire", first_check + "seq_cst -> relaxed", second_check + "seq_cst -> acquire"};
  EXPECT_EQ(weak_memory::unnoticed_weakenings(short_programs), expected);
}

#endif

}  // namespace
