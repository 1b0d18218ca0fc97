// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/pointer_bag.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <set>

namespace {

using rmm::detail::pointer_bag;

TEST(PointerBag, IsEmptyAtFirst)
{
  pointer_bag const bag;
  int value{};
  EXPECT_EQ(bag.begin(), bag.end());
  EXPECT_FALSE(bag.contains(&value));
}

TEST(PointerBag, KeepsItsElementsWhenItGrows)
{
  std::array<int, 100> values{};
  pointer_bag bag;
  for (auto& value : values) { ASSERT_TRUE(bag.try_add(&value)); }
  for (auto const& value : values) { EXPECT_TRUE(bag.contains(&value)); }
  std::set<void*> const seen(bag.begin(), bag.end());
  EXPECT_EQ(seen.size(), values.size());
}

TEST(PointerBag, RemovesOnceAndReturnsWhetherItDid)
{
  std::array<int, 3> values{};
  pointer_bag bag;
  for (auto& value : values) { ASSERT_TRUE(bag.try_add(&value)); }
  EXPECT_TRUE(bag.remove(&values[0]));
  EXPECT_FALSE(bag.contains(&values[0]));
  EXPECT_FALSE(bag.remove(&values[0]));
  EXPECT_TRUE(bag.contains(&values[1]));
  EXPECT_TRUE(bag.contains(&values[2]));
  EXPECT_EQ(bag.end() - bag.begin(), 2);
}

}  // namespace
