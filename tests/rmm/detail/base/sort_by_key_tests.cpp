// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/sort_by_key.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace {

TEST(SortByKey, SortsKeysOfAllSizesAndKeepsEqualOnesInOrder)
{
  using element = std::pair<std::uintptr_t, std::size_t>;
  for (unsigned const bits : {0U, 1U, 10U, 11U, 12U, 40U, 64U}) {
    for (unsigned const zeros : {0U, 8U, 20U}) {
      for (std::size_t const count : {0U, 1U, 2U, 100U, 30'000U}) {
        std::mt19937_64 random{bits + zeros + count};
        std::vector<element> all;
        for (std::size_t i = 0; i != count; ++i) {
          auto const key = bits == 0 ? 0 : random() >> (64U - bits);
          all.emplace_back((key << zeros) + 7, i);  // a common offset, which the sort subtracts
        }
        auto expected     = all;
        auto const before = [](element const& lhs, element const& rhs) { return lhs.first < rhs.first; };
        std::stable_sort(expected.begin(), expected.end(), before);
        std::vector<element> scratch(count);
        rmm::detail::sort_by_key(
          all.begin(), all.end(), scratch.begin(), [](element const& each) { return each.first; });
        ASSERT_EQ(all, expected) << count << " of " << bits << " bits and " << zeros << " zeros";
      }
    }
  }
}

}  // namespace
