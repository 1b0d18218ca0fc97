// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/scope_guard.hpp>

#include <gtest/gtest.h>

#include <stdexcept>
#include <type_traits>

namespace {

using rmm::detail::scope_guard;

TEST(ScopeGuard, RunsAtTheEndOfTheScope)
{
  int runs{0};
  {
    scope_guard guard{[&]() noexcept { ++runs; }};
    EXPECT_EQ(runs, 0);
  }
  EXPECT_EQ(runs, 1);
}

TEST(ScopeGuard, DoesNotRunOnceDismissed)
{
  int runs{0};
  {
    scope_guard guard{[&]() noexcept { ++runs; }};
    guard.dismiss();
  }
  EXPECT_EQ(runs, 0);
}

TEST(ScopeGuard, RunsWhenAnExceptionLeavesTheScope)
{
  int runs{0};
  auto const fail = [&] {
    scope_guard guard{[&]() noexcept { ++runs; }};
    throw std::runtime_error{"leaving"};
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(runs, 1);
}

TEST(ScopeGuard, IsNeitherCopiedNorMoved)
{
  using guard = scope_guard<void (*)() noexcept>;
  static_assert(!std::is_copy_constructible_v<guard> && !std::is_move_constructible_v<guard>);
  static_assert(!std::is_copy_assignable_v<guard> && !std::is_move_assignable_v<guard>);
}

}  // namespace
