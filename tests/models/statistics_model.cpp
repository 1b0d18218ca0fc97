// SPDX-License-Identifier: Apache-2.0

// The threads' counters (usage_statistics) and the shards of live allocations (outstanding_allocations), in all
// executions of the C++ memory model. The compiler tells the explorer of each access to their plain members (plain_accesses.cpp).

#include "modelled_std.hpp"

#include "biased_lock_orders.hpp"
#include "check_orders.hpp"

#include <rmm/detail/base/usage_statistics.hpp>
#include <rmm/mr/detail/outstanding_allocations.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace {

using rmm::detail::usage_statistics;
using weak_memory::atomic;
using weak_memory::expect;
using weak_memory::program;

[[nodiscard]] std::uint64_t next_number()
{
  static std::uint64_t last = 0;
  return ++last;
}

struct counted {
  usage_statistics all{next_number()};
  atomic<bool> flag{false};
  std::atomic<std::int64_t> counted_alone{0};
  std::atomic<int> calls_before{0};

  static constexpr std::int64_t unit        = 100;
  static constexpr std::int64_t peak_before = 2 * unit;

  counted()
  {
    weak_memory::run_before([&] { all.add(2 * unit); });
    weak_memory::run_before([&] { all.subtract(2 * unit); });
  }

  /// Gives the calling thread a share, and a limit of at least `unit`: as much as it had before all counts went down.
  void prepare()
  {
    for (; !all.try_add(unit); ++calls_before) {
      all.add(unit);
      all.subtract(unit);
    }
    all.subtract(unit);
    ++calls_before;
  }

  /// Counts without a lock. Returns false if that is not possible.
  bool try_add(std::int64_t bytes)
  {
    bool const counts = all.try_add(static_cast<std::size_t>(bytes));
    if (counts) { counted_alone.fetch_add(bytes, std::memory_order_relaxed); }
    return counts;
  }

  /// Checks the counts. `value` is the sum of all other calls; only add() made them, so it is also their total.
  void expect_counts(std::int64_t value, std::int64_t least_peak, std::int64_t largest_peak, std::int64_t freed = 0)
  {
    auto const alone = counted_alone.load();
    auto const bytes = all.read().first;
    expect(bytes.value == value + alone, "the value is exact");
    expect(bytes.total == peak_before + calls_before * unit + value + freed + alone, "the total is exact");
    expect(bytes.peak >= least_peak && bytes.peak <= largest_peak, "the peak was reached, in some order of the calls");
  }
};

/// Adds a thread that exists before and after the run, so that the run has only its calls.
void add_thread(program& made, std::shared_ptr<counted> const& state, std::function<void(counted&)> body)
{
  made.thread(
    [=] {
      body(*state);
      weak_memory::keep_thread_local_objects();
    },
    [=] { state->prepare(); });
}

/// A thread counts below its limit while another one reads.
void count_beside_reader(program& made)
{
  auto const state = std::make_shared<counted>();
  add_thread(made, state, [](counted& to) { to.try_add(30); });
  made.thread([=] {
    auto const bytes = state->all.read().first;
    expect(bytes.value == 0 || bytes.value == 30, "the value is one of the run");
    expect(bytes.peak == counted::peak_before, "the peak is not reached again");
  });
  made.finally([=] { state->expect_counts(0, counted::peak_before, counted::peak_before); });
}

/// A thread counts twice while another one reads: the second call begins where the first one ended.
void count_twice_beside_reader(program& made)
{
  auto const state = std::make_shared<counted>();
  add_thread(made, state, [](counted& to) {
    if (to.try_add(30)) { to.try_add(30); }
  });
  made.thread([=] {
    auto const bytes = state->all.read().first;
    expect(bytes.value % 30 == 0 && bytes.value <= 60, "the value is one of the run");
  });
  made.finally([=] { state->expect_counts(0, counted::peak_before, counted::peak_before); });
}

/// A thread raises the peak while another one counts below its limit.
void raise_peak(program& made)
{
  auto const state = std::make_shared<counted>();
  add_thread(made, state, [](counted& to) { to.all.add(1000); });
  add_thread(made, state, [](counted& to) { to.try_add(30); });
  made.finally([=] { state->expect_counts(1000, 1000, 1030); });
}

/// Two threads raise the peak.
void raise_peak_twice(program& made)
{
  auto const state = std::make_shared<counted>();
  add_thread(made, state, [](counted& to) { to.all.add(1000); });
  add_thread(made, state, [](counted& to) { to.all.add(500); });
  made.finally([=] { state->expect_counts(1500, 1500, 1500); });
}

/// A thread allocates more after another one said that it has memory: the peak has both, unless the first was freed.
void hand_over(program& made, bool frees)
{
  auto const state = std::make_shared<counted>();
  add_thread(made, state, [=](counted& to) {
    to.all.add(1000);
    if (frees) { to.all.subtract(1000); }
    to.flag.store(true, std::memory_order_release);
  });
  add_thread(made, state, [](counted& to) {
    while (!to.flag.load(std::memory_order_acquire)) {}
    to.all.add(500);
  });
  made.finally([=] {
    auto const peak = frees ? 1000 : 1500;
    state->expect_counts(frees ? 500 : 1500, peak, peak, frees ? 1000 : 0);
  });
}

/// A section begins or ends while a thread counts. The counts are in the outer section, once.
void count_in_sections(program& made, bool ends)
{
  auto const state = std::make_shared<counted>();
  if (ends) { static_cast<void>(state->all.push()); }
  add_thread(made, state, [](counted& to) { to.try_add(30); });
  made.thread([=] {
    auto const bytes = (ends ? state->all.pop() : state->all.push()).first;
    expect(bytes.value == 0 || bytes.value == 30, "the value is one of the run");
    expect(bytes.value <= bytes.peak, "the peak is no less than the value");
    if (!ends) { static_cast<void>(state->all.pop()); }
  });
  made.finally([=] { state->expect_counts(0, counted::peak_before, counted::peak_before); });
}

/// A thread ends while another one begins, which gets the first one's share or a new one.
void begin_and_end(program& made)
{
  auto const state = std::make_shared<counted>();
  made.thread([=] { state->all.add(30); }, [=] { state->prepare(); });
  made.thread([=] {
    state->all.subtract(30);
    weak_memory::keep_thread_local_objects();
  });
  made.finally([=] { state->expect_counts(0, counted::peak_before, counted::peak_before, 30); });
}

/// A new thread gets a share while all threads count under the mutex, and another thread reads.
void begin_while_frozen(program& made)
{
  auto const state = std::make_shared<counted>();
  made.thread(
    [=] {
      auto const bytes = state->all.read().first;
      expect(bytes.value == 0 || bytes.value == -30, "the value is one of the run");
      weak_memory::keep_thread_local_objects();
    },
    [=] { state->all.add(0); });  // takes the share that exists
  made.thread([=] {
    state->all.subtract(30);
    weak_memory::keep_thread_local_objects();
  });
  made.finally([=] { state->expect_counts(-30, counted::peak_before, counted::peak_before, 30); });
}

weak_memory::checked_part statistics_part(std::string file)
{
  weak_memory::checked_part part;
  part.file     = std::move(file);
  part.programs = {count_beside_reader,
                   count_twice_beside_reader,
                   raise_peak,
                   [](program& made) { hand_over(made, false); },
                   [](program& made) { hand_over(made, true); },
                   [](program& made) { count_in_sections(made, false); },
                   [](program& made) { count_in_sections(made, true); },
                   begin_and_end,
                   begin_while_frozen};
  return part;
}

TEST(StatisticsModel, CountsAreExactAndPeaksWereReached)
{
  auto part = statistics_part({});
  part.programs.emplace_back(raise_peak_twice);
  weak_memory::expect_right(part);
}

TEST(StatisticsModel, NeedsTheOrdersOfTheLock)
{
  auto const part = statistics_part("include/rmm/detail/base/biased_lock.hpp");
  EXPECT_EQ(weak_memory::unnoticed_weakenings(part, orders_not_needed_beside_barrier()), std::set<std::string>{});
}

TEST(StatisticsModel, NeedsTheBarrierInAllThreads)
{
  rmm::detail::membarrier_has_effect = false;
  EXPECT_NE(weak_memory::explore(count_beside_reader).error.find("data race"), std::string::npos);
  rmm::detail::membarrier_has_effect = true;
}

// --- live allocations ---

struct allocation {
  std::size_t allocation_size;
};

struct tracked {
  rmm::mr::detail::outstanding_allocations<allocation> all;
  atomic<bool> flag{false};

  [[nodiscard]] static void* block(int number)
  {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(4096 * number));
  }

  void add(int number) { all.add(block(number), {8}); }
  [[nodiscard]] bool remove(int number) { return all.remove(block(number)).second; }
  /// Frees memory that was never added, as an adaptor does.
  void remove_unknown(int number)
  {
    if (!remove(number)) { all.subtract(8); }
  }

  void expect_blocks(std::set<int> const& numbers)
  {
    std::set<int> found;
    all.for_each([&](void* at, allocation const& each) {
      expect(each.allocation_size == 8, "an entry is whole");
      found.insert(static_cast<int>(reinterpret_cast<std::uintptr_t>(at) / 4096));
    });
    expect(found == numbers, "the live allocations are there");
    expect(all.bytes() <= 8 * numbers.size(), "no more bytes are live than in the entries");
  }
  /// O3, at rest: bytes that were subtracted in excess do not hide later allocations.
  void expect_no_surplus(int free_number)
  {
    add(free_number);
    expect(all.bytes() == 8, "all bytes count that were allocated after all others were freed");
  }
};

/// Threads allocate and free while another one asks for the sum.
void sum_beside_changes(program& made)
{
  auto const state = std::make_shared<tracked>();
  state->add(1);
  made.thread([=] { expect(state->remove(1), "a live allocation is found"); });
  made.thread([=] { state->add(2); });
  made.reader([=] {
    auto const bytes = state->all.bytes();
    expect(bytes == 0 || bytes == 8 || bytes == 16, "each entry counts once");
  });
  made.finally([=] {
    state->expect_blocks({2});
    expect(state->all.bytes() == 8, "the sum is exact");
  });
}

/// The last live block is freed while another thread frees unknown memory.
void free_unknown(program& made)
{
  auto const state = std::make_shared<tracked>();
  state->add(1);
  made.thread([=] { expect(state->remove(1), "a live allocation is found"); });
  made.thread([=] { state->remove_unknown(2); });
  made.finally([=] {
    state->expect_blocks({});
    state->expect_no_surplus(3);
  });
}

/// The upstream passes an address from one thread to another. It knows nothing of the entries.
void hand_over_address(program& made)
{
  auto const state = std::make_shared<tracked>();
  state->add(1);
  made.thread([=] {
    expect(state->remove(1), "a live allocation is found");
    state->flag.store(true, std::memory_order_release);
  });
  made.thread([=] {
    while (!state->flag.load(std::memory_order_acquire)) {}
    state->add(1);
  });
  made.finally([=] { state->expect_blocks({1}); });
}

/// All entries move to the first shard while a thread adds one and removes another.
void make_whole(program& made)
{
  auto const state = std::make_shared<tracked>();
  state->add(1);
  made.thread([=] {
    state->add(2);
    expect(state->remove(1), "a live allocation is found, wherever it is");
  });
  made.thread([=] { static_cast<void>(state->all.whole_table()); });
  made.finally([=] {
    state->expect_blocks({2});
    expect(state->all.whole_table().size() == 1, "all entries are in one table");
    expect(state->all.bytes() == 8, "the sum is exact");
  });
}

/// Two threads read the whole table.
void read_whole(program& made)
{
  auto const state = std::make_shared<tracked>();
  state->add(1);
  for (int i = 0; i != 2; ++i) {
    made.thread([=] {
      auto const& table = state->all.whole_table();
      expect(table.size() == 1 && table.begin()->second.allocation_size == 8, "the table is whole");
    });
  }
}

/// The table is visited while threads allocate and free.
void show_beside_changes(program& made)
{
  auto const state = std::make_shared<tracked>();
  state->add(1);
  made.thread([=] { expect(state->remove(1), "a live allocation is found"); });
  made.thread([=] {
    std::size_t sum = 0;
    state->all.for_each([&](void*, allocation const& each) { sum += each.allocation_size; });
    expect(sum == 0 || sum == 8, "the table is shown as it is at one moment");
  });
}

weak_memory::checked_part tracking_part()
{
  weak_memory::checked_part part;
  part.file     = "include/rmm/mr/detail/outstanding_allocations.hpp";
  part.programs = {sum_beside_changes, free_unknown, hand_over_address, make_whole, read_whole, show_beside_changes};
  part.given.most_idle_loads = 100;  // a sum loads from all shards
  return part;
}

TEST(TrackingModel, EntriesAreNeitherLostNorCountedTwice) { weak_memory::expect_right(tracking_part()); }

TEST(TrackingModel, LeavesAllOrderToItsMutexes)
{
  EXPECT_EQ(weak_memory::unnoticed_weakenings(tracking_part()), std::set<std::string>{});
}

}  // namespace
