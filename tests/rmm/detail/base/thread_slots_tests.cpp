// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/thread_slots.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::detail::per_thread;

std::uint64_t new_number()
{
  static std::uint64_t last{1'000'000};  // different from the numbers of known_streams()
  return ++last;
}

using key = char const*;

struct thing {
  std::atomic<int> returns{0};
};

struct thing_link {
  rmm::detail::owning_process process;
  rmm::detail::mutex mutex;
  bool has_gone{false};

  [[nodiscard]] bool is_gone() const noexcept { return has_gone; }
  void go()
  {
    rmm::detail::mutex_lock const lock{mutex};
    has_gone = true;
  }
};

class things : public rmm::detail::thread_slots<things, key, thing, thing_link> {
 public:
  ~things()
  {
    give_back([](thing_link const&, thing* returned) noexcept { ++returned->returns; });
  }
};

key key_of(std::uintptr_t number) { return reinterpret_cast<key>(4096 * number); }

template <class Task>
void run_on_a_thread(Task&& task)
{
  std::thread{std::forward<Task>(task)}.join();
}

struct ThreadSlots : ::testing::Test {
  thing one;
  thing other;
  rmm::detail::counted_ptr<thing_link> link{rmm::detail::make_counted<thing_link>()};
};

TEST_F(ThreadSlots, EachThreadHasItsOwn)
{
  auto const* const here = things::mine();
  EXPECT_EQ(things::mine(), here);
  run_on_a_thread([&] { EXPECT_NE(things::mine(), here); });
}

TEST_F(ThreadSlots, AreFoundByOwnerAndKey)
{
  run_on_a_thread([&] {
    auto& mine = *things::mine();
    EXPECT_EQ(mine.find(1, key_of(1)), nullptr);
    mine.add({1, key_of(1), &one, link});
    mine.add({2, key_of(1), &other, link});
    mine.add({2, nullptr, &one, link});
    EXPECT_EQ(mine.find(1, key_of(1)), &one);
    EXPECT_EQ(mine.find(2, key_of(1)), &other);
    EXPECT_EQ(mine.find(2, nullptr), &one);
    EXPECT_EQ(mine.find(1, nullptr), nullptr);
    EXPECT_EQ(mine.count(), 3U);
  });
}

TEST_F(ThreadSlots, AreReturnedOnceWhenTheThreadEnds)
{
  run_on_a_thread([&] {
    things::mine()->add({1, key_of(1), &one, link});
    things::mine()->add({1, key_of(2), &other, link});
    things::mine()->forget(1, key_of(2));
  });
  EXPECT_EQ(one.returns, 1);
  EXPECT_EQ(other.returns, 0);
}

TEST_F(ThreadSlots, AreNotReturnedToADestroyedOwner)
{
  run_on_a_thread([&] {
    things::mine()->add({1, key_of(1), &one, link});
    link->go();
  });
  EXPECT_EQ(one.returns, 0);
}

TEST_F(ThreadSlots, OfDestroyedOwnersDoNotAccumulate)
{
  run_on_a_thread([&] {
    things::mine()->add({1, key_of(1), &one, rmm::detail::make_counted<thing_link>()});
    link->go();
    for (std::uint64_t owner = 2; owner <= 10'000; ++owner) { things::mine()->add({owner, key_of(1), &other, link}); }
    EXPECT_LT(things::mine()->count(), 100U);
    EXPECT_EQ(things::mine()->find(1, key_of(1)), &one);
  });
}

TEST_F(ThreadSlots, NextOfVisitsEachSlotOfAnOwner)
{
  run_on_a_thread([&] {
    auto& mine = *things::mine();
    EXPECT_EQ(mine.next_of(1), nullptr);
    mine.add({1, key_of(1), &one, link});
    mine.add({1, key_of(2), &other, link});
    mine.add({2, key_of(3), &one, link});
    EXPECT_NE(mine.next_of(1), mine.next_of(1));
    EXPECT_EQ(mine.next_of(3), nullptr);
  });
}

TEST_F(ThreadSlots, MatchAMapAfterAnyRemovals)
{
  run_on_a_thread([&] {
    auto& mine = *things::mine();
    std::map<std::pair<std::uint64_t, key>, thing*> expected;
    std::mt19937 random{42};
    auto const at_most = [&](unsigned most) { return std::uniform_int_distribution<unsigned>{1, most}(random); };
    for (int step = 0; step != 100'000; ++step) {
      auto const owner = std::uint64_t{at_most(4)};
      auto const name  = key_of(at_most(2000));
      auto const there = expected.find({owner, name});
      ASSERT_EQ(mine.find(owner, name), there == expected.end() ? nullptr : there->second);
      if (there != expected.end()) {
        mine.forget(owner, name);
        expected.erase(there);
      } else if (expected.size() < (step < 50'000 ? 8000U : 10U)) {
        auto* const added = at_most(2) == 1 ? &one : &other;
        mine.add({owner, name, added, link});
        expected[{owner, name}] = added;
      }
      ASSERT_EQ(mine.count(), expected.size());
    }
    std::size_t visited = 0;
    mine.for_each([&](things::entry const& each) {
      EXPECT_EQ((expected[{each.owner, each.key}]), each.object);
      ++visited;
    });
    EXPECT_EQ(visited, expected.size());
    link->go();
  });
}

TEST_F(ThreadSlots, AreReturnedWhileOwnersAreDestroyed)
{
  for (int turn = 0; turn != 50; ++turn) {
    std::vector<rmm::detail::counted_ptr<thing_link>> owners(20);
    for (auto& each : owners) { each = rmm::detail::make_counted<thing_link>(); }
    thing counted;
    std::vector<std::thread> threads;
    for (int i = 0; i != 3; ++i) {
      threads.emplace_back([&] {
        for (std::size_t owner = 0; owner != owners.size(); ++owner) {
          things::mine()->add({owner + 1, nullptr, &counted, owners[owner]});
        }
      });
    }
    for (auto const& each : owners) { each->go(); }
    for (auto& each : threads) { each.join(); }
    EXPECT_LE(counted.returns, 60);
  }
}

struct end_of_things {
  bool* sees_none;
  ~end_of_things() { *sees_none = things::mine() == nullptr; }
};

TEST_F(ThreadSlots, AreGoneForThreadLocalObjectsDestroyedLater)
{
  bool sees_none = false;
  run_on_a_thread([&] {
    thread_local end_of_things const last{&sees_none};  // constructed before the slots, so destroyed after them
    static_cast<void>(last);
    EXPECT_NE(things::mine(), nullptr);
  });
  EXPECT_TRUE(sees_none);
}

struct part {
  int value{0};
  int adoptions{0};
  int releases{0};

  void adopt() noexcept { ++adoptions; }
  void release() noexcept { ++releases; }
};

TEST(PerThread, ReturnsTheSamePartToAThread)
{
  per_thread<part> parts{new_number()};
  auto* const mine = parts.mine();
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(parts.mine(), mine);
  EXPECT_EQ(mine->adoptions, 1);
}

TEST(PerThread, ReturnsDifferentPartsToTwoThreads)
{
  per_thread<part> parts{new_number()};
  part* others{};
  std::thread{[&] { others = parts.mine(); }}.join();
  EXPECT_NE(parts.mine(), nullptr);
  int count = 0;
  parts.for_each([&](part&) { ++count; });
  EXPECT_LE(count, 2);
  EXPECT_NE(others, nullptr);
}

TEST(PerThread, SeparatesThePartsOfSeveralOwners)
{
  std::vector<std::unique_ptr<per_thread<part>>> owners;  // more owners than a thread has slots
  for (int i = 0; i < 30; ++i) {
    owners.push_back(std::make_unique<per_thread<part>>(new_number()));
    owners.back()->mine()->value = i;
  }
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(owners[static_cast<std::size_t>(i)]->mine()->value, i);
    EXPECT_EQ(owners[static_cast<std::size_t>(i)]->mine()->adoptions, 1);
  }
}

TEST(PerThread, ReusesThePartOfAnEndedThread)
{
  per_thread<part> parts{new_number()};
  part* first{};
  part* second{};
  std::thread{[&] { first = parts.mine(), first->value = 7; }}.join();
  EXPECT_EQ(first->releases, 1);
  std::thread{[&] { second = parts.mine(); }}.join();
  EXPECT_EQ(second, first);
  EXPECT_EQ(second->value, 7);
  EXPECT_EQ(second->adoptions, 2);
}

TEST(PerThread, MayBeDestroyedBeforeItsThreads)
{
  auto parts = std::make_unique<per_thread<part>>(new_number());
  std::thread{[&] {
    EXPECT_NE(parts->mine(), nullptr);
    parts.reset();
  }}.join();  // the thread outlives the owner
  EXPECT_EQ(parts, nullptr);
}

TEST(PerThread, ForgetsDestroyedOwners)
{
  for (int i = 0; i < 1000; ++i) {
    per_thread<part> parts{new_number()};
    ASSERT_EQ(parts.mine()->adoptions, 1);
  }
}

struct fragile_part {
  inline static bool fails = false;
  int adoptions{0};

  fragile_part()
  {
    if (fails) { throw std::bad_alloc{}; }
  }
  void adopt() noexcept { ++adoptions; }
  void release() noexcept {}
};

TEST(PerThread, HasNoPartWithoutHostMemoryAndOneLater)
{
  per_thread<fragile_part> parts{new_number()};
  fragile_part::fails = true;
  EXPECT_EQ(parts.mine(), nullptr);
  EXPECT_EQ(parts.mine_at_hand(), nullptr);
  parts.for_each([](fragile_part const&) { FAIL(); });
  fragile_part::fails = false;
  ASSERT_NE(parts.mine(), nullptr);
  EXPECT_EQ(parts.mine()->adoptions, 1);
}

TEST(PerThread, HasOnePartForEachOfManyThreads)
{
  constexpr int threads = 4;
  per_thread<part> parts{new_number()};
  std::atomic<int> there{0};
  std::vector<std::thread> all;
  for (int i = 0; i != threads; ++i) {
    all.emplace_back([&] {
      ++parts.mine()->value;
      ++there;
      while (there != threads) { std::this_thread::yield(); }  // so that all parts exist at the same time
    });
  }
  for (auto& each : all) { each.join(); }
  int count = 0;
  parts.for_each([&](part const& each) {
    ++count;
    EXPECT_EQ(each.value, 1);
    EXPECT_EQ(each.releases, 1);
  });
  EXPECT_EQ(count, threads);
}

struct at_the_end {
  per_thread<part>* parts;
  part** seen;
  ~at_the_end() { *seen = parts->mine(); }
};

TEST(PerThread, HasNoPartForAnEndingThread)
{
  per_thread<part> parts{new_number()};
  part other{};
  part* seen{&other};
  std::thread{[&] {
    thread_local at_the_end const last{&parts, &seen};  // constructed before the part, so destroyed after it
    static_cast<void>(last);
    EXPECT_NE(parts.mine(), nullptr);
  }}.join();
  EXPECT_EQ(seen, nullptr);
}

}  // namespace
