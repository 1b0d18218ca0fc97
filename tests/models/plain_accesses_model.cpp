// SPDX-License-Identifier: Apache-2.0

// The explorer sees accesses to plain memory in sources that are compiled like this one.

#include "weak_memory.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using weak_memory::explore;
using weak_memory::program;

/// The shared objects of two threads, on the heap like objects of the library.
struct shared {
  weak_memory::atomic<int> flag{0};
  int number{0};
  std::array<char, 8> bytes{};
  std::vector<int> list;
  std::unique_ptr<int> owned = std::make_unique<int>(1);
  int* until_freed           = new int{1};
};
using code = std::function<void(shared&)>;

[[nodiscard]] std::string error_of(code const& first, code const& second)
{
  auto const result = explore([&](program& made) {
    auto const state = std::make_shared<shared>();
    for (auto const* each : {&first, &second}) {
      made.thread([=] { (*each)(*state); });
    }
  });
  EXPECT_TRUE(!result.error.empty() || result.is_complete);
  return result.error.substr(0, result.error.find(','));
}

[[nodiscard]] code after(std::memory_order order, code const& next)
{
  return [=](shared& state) {
    if (state.flag.load(order) == 1) { next(state); }
  };
}
[[nodiscard]] code before(std::memory_order order, code const& first)
{
  return [=](shared& state) {
    first(state);
    state.flag.store(1, order);
  };
}

void write_number(shared& state) { state.number = 1; }
void read_number(shared& state) { weak_memory::expect(state.number == 1, "the number is there"); }
void append(shared& state) { state.list.push_back(1); }
void read_list(shared& state) { weak_memory::expect(state.list.at(0) == 1, "the list is there"); }
void free_owned(shared& state) { delete state.owned.release(); }
void free_and_take(shared& state)
{
  free_owned(state);
  state.owned = std::make_unique<int>(2);
}

constexpr char const* race = "a data race";

TEST(PlainAccesses, AreOrderedByReleaseAndAcquire)
{
  for (auto const& [write, read] :
       {std::pair<code, code>{write_number, read_number}, {append, read_list}, {free_and_take, free_owned}}) {
    EXPECT_EQ(error_of(before(std::memory_order_release, write), after(std::memory_order_acquire, read)), "");
    EXPECT_EQ(error_of(before(std::memory_order_relaxed, write), after(std::memory_order_acquire, read)), race);
    EXPECT_EQ(error_of(before(std::memory_order_release, write), after(std::memory_order_relaxed, read)), race);
  }
}

TEST(PlainAccesses, OfNeighboursDoNotRace)
{
  auto const write = [](std::size_t at) { return [at](shared& state) { state.bytes[at] = 1; }; };
  EXPECT_EQ(error_of(write(2), write(3)), "");
  EXPECT_EQ(error_of(write(3), write(3)), race);
}

TEST(PlainAccesses, RaceWithTheEndOfMemory)
{
  auto const read = [](shared& state) { state.number = *state.until_freed; };
  auto const free = [](shared& state) { delete state.until_freed; };
  EXPECT_EQ(error_of(read, free), race);
}

TEST(PlainAccesses, OfMemoryThatIsMadeAnewDoNotRaceWithOlderOnes)
{
  auto const use = [](shared& state) {
    auto const own = std::make_unique<int>(1);  // often at an address that another thread used
    *own           = state.flag.fetch_add(1, std::memory_order_relaxed);
  };
  EXPECT_EQ(error_of(use, use), "");
}

TEST(PlainAccesses, OfThreadsThatWereThereBeforeRace)
{
  auto const result = explore([](program& made) {
    auto const state = std::make_shared<shared>();
    for (int i = 0; i != 2; ++i) {
      made.thread(
        [=] {
          static_cast<void>(state->flag.load(std::memory_order_acquire));
          state->number += 1;
        },
        [=] { state->number += 1; });
    }
  });
  EXPECT_EQ(result.error.substr(0, result.error.find(',')), race);
}

TEST(PlainAccesses, OfThreadLocalVariablesDoNotRace)
{
  static thread_local int own = 0;
  auto const use              = [](shared& state) {
    auto* const mine = &own;
    *mine            = state.flag.fetch_add(1, std::memory_order_relaxed);
  };
  EXPECT_EQ(error_of(use, use), "");
}

}  // namespace
