// SPDX-License-Identifier: Apache-2.0

// The threads' parts of an object (per_thread) and shared owners (counted_ptr), in all executions of the C++ memory
// model: threads come and end, the object is destroyed meanwhile, and a thread visits all parts.

#include "modelled_std.hpp"

#include "check_orders.hpp"

#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/base/thread_slots.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace {

using rmm::detail::per_thread;
using weak_memory::atomic;
using weak_memory::expect;
using weak_memory::plain;
using weak_memory::program;
using unnoticed = std::set<std::string>;

/// A thread's part: memory of its own, and a number that other threads may read.
struct part {
  plain<int> uses{0, "a part of a thread"};
  plain<bool> is_in_use{false, "whether a thread has the part"};
  atomic<int> published{0};

  part() = default;
  ~part() { is_in_use = false; }

  void adopt()
  {
    expect(!is_in_use, "a part belongs to one thread");
    is_in_use = true;
  }
  void release() { is_in_use = false; }
  void use()
  {
    uses = uses + 1;
    published.store(uses, std::memory_order_relaxed);
  }
};

[[nodiscard]] std::uint64_t next_number()
{
  static std::uint64_t last = 0;
  return ++last;
}

struct owner {
  std::unique_ptr<per_thread<part>> parts = std::make_unique<per_thread<part>>(next_number());

  [[nodiscard]] int published()
  {
    int sum = 0;
    parts->for_each([&](part& each) { sum += each.published.load(std::memory_order_relaxed); });
    return sum;
  }
};

/// Threads end, and leave their parts to others.
void come_and_end(program& made)
{
  auto const state = std::make_shared<owner>();
  for (int i = 0; i != 2; ++i) {
    made.thread([=] {
      state->parts->mine()->use();
      state->parts->mine()->use();
    });
  }
  made.finally([=] {
    int parts = 0;
    int uses  = 0;
    state->parts->for_each([&](part& each) {
      ++parts;
      uses += each.uses;
      expect(!each.is_in_use, "a thread that ends gives its part back");
    });
    expect(uses == 4 && parts >= 1 && parts <= 2, "each use is in one of the parts");
  });
}

/// A visitor reads while threads use their parts.
void visit(program& made)
{
  auto const state = std::make_shared<owner>();
  auto const begin = std::make_shared<atomic<int>>(0);
  for (int i = 0; i != 2; ++i) {
    made.thread([=] { state->parts->mine()->use(); });
  }
  made.thread([=] {
    static_cast<void>(begin->load(std::memory_order_relaxed));  // threads may come before
    auto const seen = state->published();
    expect(seen >= 0 && seen <= 2, "a visitor sees what threads have published");
  });
  made.finally([=] { expect(state->published() == 2, "all uses are counted"); });
}

/// The object is destroyed after the thread used it, while the thread ends.
void owner_goes(program& made)
{
  auto const state = std::make_shared<owner>();
  auto const used  = std::make_shared<atomic<bool>>(false);
  made.thread([=] {
    state->parts->mine()->use();
    used->store(true, std::memory_order_release);
  });
  made.thread([=] {
    while (!used->load(std::memory_order_acquire)) {}
    state->parts.reset();
  });
}

/// A user's bug: a read of a part outside of for_each() races with its thread.
void keep_part(program& made)
{
  auto const state = std::make_shared<owner>();
  made.thread([=] { state->parts->mine()->use(); });
  made.thread([=] {
    part* kept = nullptr;
    state->parts->for_each([&](part& each) { kept = &each; });
    if (kept != nullptr) { static_cast<void>(static_cast<int>(kept->uses)); }
  });
}

weak_memory::checked_part per_thread_part()
{
  weak_memory::checked_part checked;
  checked.file     = "include/rmm/detail/base/thread_slots.hpp";
  checked.programs = {come_and_end, visit, owner_goes};
  return checked;
}

TEST(ThreadSlotsModel, PartsArePassedOnWithWhatTheirThreadsWrote) { weak_memory::expect_right(per_thread_part()); }

TEST(ThreadSlotsModel, AVisitorMustNotKeepAPart)
{
  EXPECT_NE(weak_memory::explore(keep_part, per_thread_part().given).error.find("a part of a thread"),
            std::string::npos);
}

/// The owners of one object: each writes to it, and the last one destroys it.
void share_object(program& made)
{
  struct shared_object {
    std::array<plain<int>, 2> written{plain<int>{0, "a shared object"}, plain<int>{0, "a shared object"}};
    ~shared_object() { expect(written[0] == 1 && written[1] == 1, "the last owner sees what the others wrote"); }
  };
  using pointer     = rmm::detail::counted_ptr<shared_object>;
  auto const owners = std::make_shared<std::array<pointer, 2>>();
  (*owners)[0]      = rmm::detail::make_counted<shared_object>();
  (*owners)[1]      = (*owners)[0];
  for (std::size_t i = 0; i != 2; ++i) {
    made.thread([=] {
      auto const copy  = (*owners)[i];
      copy->written[i] = 1;
      (*owners)[i]     = nullptr;
    });
  }
}

TEST(CountedPtrModel, TheLastOwnerSeesAllWrites)
{
  weak_memory::checked_part const checked{"include/rmm/detail/base/owned_ptr.hpp", {share_object}};
  weak_memory::expect_right(checked);
  EXPECT_EQ(weak_memory::unnoticed_weakenings(checked), unnoticed{});
}

}  // namespace
