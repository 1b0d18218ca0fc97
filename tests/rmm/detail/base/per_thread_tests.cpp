// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/per_thread.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace {

using rmm::detail::per_thread;

std::uint64_t new_number()
{
  static std::uint64_t last{1'000'000};  // apart from those of known_streams()
  return ++last;
}

struct part {
  int value{0};
  int adoptions{0};
  int releases{0};

  void adopt() noexcept { ++adoptions; }
  void release() noexcept { ++releases; }
};

TEST(PerThread, GivesAThreadTheSamePartEachTime)
{
  per_thread<part> parts{new_number()};
  auto* const mine = parts.mine();
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(parts.mine(), mine);
  EXPECT_EQ(mine->adoptions, 1);
}

TEST(PerThread, GivesTwoThreadsTwoParts)
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

TEST(PerThread, KeepsThePartsOfSeveralOwnersApart)
{
  std::vector<std::unique_ptr<per_thread<part>>> owners;  // more than a thread has slots
  for (int i = 0; i < 30; ++i) {
    owners.push_back(std::make_unique<per_thread<part>>(new_number()));
    owners.back()->mine()->value = i;
  }
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(owners[static_cast<std::size_t>(i)]->mine()->value, i);
    EXPECT_EQ(owners[static_cast<std::size_t>(i)]->mine()->adoptions, 1);
  }
}

TEST(PerThread, HandsThePartOfAThreadThatEndedToTheNext)
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

TEST(PerThread, MayGoBeforeItsThreads)
{
  auto parts = std::make_unique<per_thread<part>>(new_number());
  std::thread{[&] {
    EXPECT_NE(parts->mine(), nullptr);
    parts.reset();
  }}.join();  // the thread ends after its owner
  EXPECT_EQ(parts, nullptr);
}

TEST(PerThread, ForgetsOwnersThatAreGone)
{
  for (int i = 0; i < 1000; ++i) {
    per_thread<part> parts{new_number()};
    ASSERT_EQ(parts.mine()->adoptions, 1);
  }
}

struct at_the_end {
  per_thread<part>* parts;
  part** seen;
  ~at_the_end() { *seen = parts->mine(); }
};

TEST(PerThread, HasNoPartForAThreadThatEnds)
{
  per_thread<part> parts{new_number()};
  part other{};
  part* seen{&other};
  std::thread{[&] {
    thread_local at_the_end const last{&parts, &seen};  // made before the part, and so destroyed after it
    static_cast<void>(last);
    EXPECT_NE(parts.mine(), nullptr);
  }}.join();
  EXPECT_EQ(seen, nullptr);
}

}  // namespace
