// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/pointer_map.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>

namespace {

using rmm::detail::pointer_map;

void const* pointer_to(std::uintptr_t address)
{
  return reinterpret_cast<void const*>(address);  // NOLINT: never dereferenced
}

TEST(PointerMap, IsEmptyAtFirst)
{
  pointer_map<int> map;
  EXPECT_EQ(map.count(), 0U);
  EXPECT_EQ(map.find(pointer_to(256)), nullptr);
  EXPECT_FALSE(map.erase(pointer_to(256)));
}

TEST(PointerMap, FindsTheValueOfAPointer)
{
  pointer_map<int> map;
  map.insert_or_assign(pointer_to(256), 1);
  map.insert_or_assign(pointer_to(512), 2);
  ASSERT_NE(map.find(pointer_to(256)), nullptr);
  EXPECT_EQ(*map.find(pointer_to(256)), 1);
  EXPECT_EQ(*map.find(pointer_to(512)), 2);
  EXPECT_EQ(map.find(pointer_to(768)), nullptr);
}

TEST(PointerMap, AssignsToAnExistingPointer)
{
  pointer_map<int> map;
  map.insert_or_assign(pointer_to(256), 1);
  map.insert_or_assign(pointer_to(256), 2);
  EXPECT_EQ(map.count(), 1U);
  EXPECT_EQ(*map.find(pointer_to(256)), 2);
}

TEST(PointerMap, ErasesOnceAndReturnsWhetherItDid)
{
  pointer_map<int> map;
  map.insert_or_assign(pointer_to(256), 1);
  EXPECT_TRUE(map.erase(pointer_to(256)));
  EXPECT_FALSE(map.erase(pointer_to(256)));
  EXPECT_EQ(map.count(), 0U);
}

TEST(PointerMap, ExtractsAValueThatCanOnlyMove)
{
  pointer_map<std::unique_ptr<int>> map;
  map.insert_or_assign(pointer_to(256), std::make_unique<int>(1));
  map.insert_or_assign(pointer_to(512), std::make_unique<int>(2));
  std::unique_ptr<int> value;
  EXPECT_FALSE(map.extract(pointer_to(768), value));
  EXPECT_EQ(value, nullptr);
  ASSERT_TRUE(map.extract(pointer_to(256), value));
  EXPECT_EQ(*value, 1);
  EXPECT_FALSE(map.extract(pointer_to(256), value));
  EXPECT_EQ(map.count(), 1U);
  ASSERT_NE(map.find(pointer_to(512)), nullptr);
  **map.find(pointer_to(512)) = 3;
  ASSERT_TRUE(map.extract(pointer_to(512), value));
  EXPECT_EQ(*value, 3);
}

TEST(PointerMap, DoesNotFindNull)
{
  pointer_map<int> map;
  map.insert_or_assign(pointer_to(256), 1);
  EXPECT_EQ(map.find(nullptr), nullptr);
  EXPECT_FALSE(map.erase(nullptr));
}

TEST(PointerMap, IsEmptyAfterClear)
{
  pointer_map<int> map;
  for (std::uintptr_t i = 1; i <= 100; ++i) { map.insert_or_assign(pointer_to(256 * i), 0); }
  map.clear();
  EXPECT_EQ(map.count(), 0U);
  EXPECT_EQ(map.find(pointer_to(256)), nullptr);
  map.insert_or_assign(pointer_to(256), 3);
  EXPECT_EQ(map.count(), 1U);
}

TEST(PointerMap, HoldsWhatAModelHolds)
{
  constexpr unsigned seed = 20240817;
  SCOPED_TRACE(seed);
  std::mt19937 random{seed};
  pointer_map<std::size_t> map;
  std::map<void const*, std::size_t> model;
  for (std::size_t step = 0; step != 20'000; ++step) {
    // At first more inserts than erases, later the reverse.
    auto const* const pointer = pointer_to(256 * (1 + random() % 700));
    if (random() % 8 < (step < 10'000 ? 6U : 2U)) {
      map.insert_or_assign(pointer, step);
      model[pointer] = step;
    } else {
      ASSERT_EQ(map.erase(pointer), model.erase(pointer) == 1);
    }
    ASSERT_EQ(map.count(), model.size());
    if (step % 64 != 0) { continue; }
    std::map<void const*, std::size_t> seen;
    map.for_each([&](void const* ptr, std::size_t value) { seen[ptr] = value; });
    ASSERT_EQ(seen, model);
    for (auto const& [ptr, value] : model) {
      ASSERT_NE(map.find(ptr), nullptr);
      ASSERT_EQ(*map.find(ptr), value);
    }
  }
}

}  // namespace
