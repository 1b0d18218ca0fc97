// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/owned_ptr.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::detail::counted_ptr;
using rmm::detail::make_counted;
using rmm::detail::make_owned;
using rmm::detail::owned_ptr;

std::atomic<int> alive{0};

struct object {
  explicit object(int of = 0) : value{of}
  {
    if (of < 0) { throw std::invalid_argument{"negative"}; }
    ++alive;
  }
  object(object const&)            = delete;
  object& operator=(object const&) = delete;
  ~object() { --alive; }

  int value;
};

struct free_memory {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

static_assert(!std::is_copy_constructible_v<owned_ptr<object>>);
static_assert(std::is_nothrow_move_constructible_v<owned_ptr<object>> &&
              std::is_nothrow_move_constructible_v<counted_ptr<object>>);
static_assert(sizeof(owned_ptr<void, free_memory>) == sizeof(void*));

TEST(OwnedPtr, DestroysWhatItOwns)
{
  {
    auto const one = make_owned<object>(7);
    EXPECT_EQ(one->value, 7);
    EXPECT_EQ((*one).value, 7);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(OwnedPtr, IsMoved)
{
  auto one   = make_owned<object>(1);
  auto other = make_owned<object>(2);
  other      = std::move(one);
  EXPECT_EQ(alive, 1);
  EXPECT_EQ(other->value, 1);
  EXPECT_EQ(one, nullptr);
  EXPECT_FALSE(one);
  owned_ptr<object> const third{std::move(other)};
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(alive, 1);
}

TEST(OwnedPtr, ConvertsToPointerToConst)
{
  owned_ptr<object const> const kept = make_owned<object>(6);
  EXPECT_EQ(kept->value, 6);
  static_assert(!std::is_convertible_v<owned_ptr<object const>, owned_ptr<object>>);
  static_assert(!std::is_convertible_v<counted_ptr<void>, counted_ptr<object>>);
}

TEST(OwnedPtr, ResetAndReleaseLeaveNull)
{
  auto one = make_owned<object>();
  one.reset(new object{3});
  EXPECT_EQ(alive, 1);
  auto* const released = one.release();
  EXPECT_EQ(one.get(), nullptr);
  delete released;
  one = make_owned<object>();
  one = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(OwnedPtr, OwnsArrays)
{
  {
    owned_ptr<object[]> const three{new object[3]};
    three[2].value = 5;
    EXPECT_EQ(three.get()[2].value, 5);
    EXPECT_EQ(alive, 3);
  }
  EXPECT_EQ(alive, 0);
}

TEST(OwnedPtr, CanUseACustomDeleter)
{
  owned_ptr<void, free_memory> const memory{std::malloc(10)};
  EXPECT_NE(memory.get(), nullptr);
}

TEST(OwnedPtr, LiesInVectorsThatGrow)
{
  {
    std::vector<owned_ptr<object>> all;
    for (int i = 0; i != 100; ++i) { all.push_back(make_owned<object>(i)); }
    all.erase(all.begin());
    EXPECT_EQ(all.front()->value, 1);
    EXPECT_EQ(alive, 99);
  }
  EXPECT_EQ(alive, 0);
}

TEST(CountedPtr, TheLastOwnerDestroys)
{
  auto one = make_counted<object>(4);
  {
    auto const other = one;
    one              = nullptr;
    EXPECT_EQ(one, nullptr);
    EXPECT_EQ(other->value, 4);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(CountedPtr, IsMovedAndAssignedToItself)
{
  auto one         = make_counted<object>(4);
  auto const moved = std::move(one);
  EXPECT_FALSE(one);
  auto again        = moved;
  auto const& alias = again;
  again             = alias;
  EXPECT_EQ((*again).value, 4);
  EXPECT_EQ(alive, 1);
}

TEST(CountedPtr, OfVoidKeepsTheObject)
{
  {
    counted_ptr<void> kept = make_counted<object>(4);
    auto const other       = kept;
    kept                   = nullptr;
    EXPECT_EQ(static_cast<object*>(other.get())->value, 4);
  }
  EXPECT_EQ(alive, 0);
}

TEST(CountedPtr, LeavesNothingWhenTheConstructorThrows)
{
  EXPECT_THROW(static_cast<void>(make_counted<object>(-1)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(make_owned<object>(-1)), std::invalid_argument);
  EXPECT_EQ(alive, 0);
}

TEST(CountedPtr, AlignsTheObject)
{
  struct alignas(128) aligned {
    char bytes[128];
  };
  auto const one = make_counted<aligned>();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.get()) % 128, 0U);
}

TEST(CountedPtr, IsSharedByThreads)
{
  {
    auto const one = make_counted<object>(1);
    std::vector<std::thread> threads;
    for (int i = 0; i != 4; ++i) {
      threads.emplace_back([mine = one] {
        for (int step = 0; step != 1000; ++step) {
          auto const other = mine;
          EXPECT_EQ(other->value, 1);
        }
      });
    }
    for (auto& each : threads) { each.join(); }
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
