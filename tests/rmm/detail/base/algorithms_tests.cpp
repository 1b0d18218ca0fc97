// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/algorithms.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

namespace detail = rmm::detail;

static_assert(detail::min(2, 1) == 1 && detail::max(2, 1) == 2 && detail::max({3, 7, 5}) == 7);
static_assert(detail::clamp(5, 1, 3) == 3 && detail::clamp(0, 1, 3) == 1 && detail::clamp(2, 1, 3) == 2);

bool is_odd(int value) { return value % 2 != 0; }

/// Returns random numbers below `most`. A small `most` makes many of them equal.
std::vector<int> numbers(std::size_t count, int most, unsigned seed)
{
  std::mt19937 random{seed};
  std::vector<int> made(count);
  for (auto& each : made) { each = std::uniform_int_distribution<int>{0, most - 1}(random); }
  return made;
}

TEST(Algorithms, MinAndMaxOfEqualValuesAreTheFirst)
{
  int const one   = 1;
  int const other = 1;
  EXPECT_EQ(&detail::min(one, other), &one);
  EXPECT_EQ(&detail::max(one, other), &one);
}

TEST(Algorithms, FindAndCountMatchTheStandard)
{
  std::vector<int> const none;
  std::vector<int> const mixed{2, 4, 5, 6, 7};
  std::vector<int> const odd{1, 3};
  for (auto const& all : {none, mixed, odd}) {
    EXPECT_EQ(detail::find_if(all.begin(), all.end(), is_odd), std::find_if(all.begin(), all.end(), is_odd));
    EXPECT_EQ(detail::any_of(all.begin(), all.end(), is_odd), std::any_of(all.begin(), all.end(), is_odd));
    EXPECT_EQ(detail::all_of(all.begin(), all.end(), is_odd), std::all_of(all.begin(), all.end(), is_odd));
    EXPECT_EQ(detail::none_of(all.begin(), all.end(), is_odd), std::none_of(all.begin(), all.end(), is_odd));
    EXPECT_EQ(detail::count_if(all.begin(), all.end(), is_odd), std::count_if(all.begin(), all.end(), is_odd));
  }
}

TEST(Algorithms, RemoveIfKeepsTheOrderOfTheRest)
{
  for (std::size_t count = 0; count != 20; ++count) {
    auto all      = numbers(count, 10, static_cast<unsigned>(count));
    auto expected = all;
    expected.erase(std::remove_if(expected.begin(), expected.end(), is_odd), expected.end());
    all.erase(detail::remove_if(all.begin(), all.end(), is_odd), all.end());
    EXPECT_EQ(all, expected);
  }
}

TEST(Algorithms, RemoveIfMovesWhatCannotBeCopied)
{
  std::vector<std::unique_ptr<int>> all;
  for (int i = 0; i != 5; ++i) { all.push_back(std::make_unique<int>(i)); }
  auto const rest = detail::remove_if(all.begin(), all.end(), [](auto const& each) { return *each < 2; });
  all.erase(rest, all.end());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(*all[0], 2);
}

TEST(Algorithms, CopyMayOverlap)
{
  std::vector<int> all{1, 2, 3, 4};
  EXPECT_EQ(detail::copy(all.data() + 1, all.data() + 4, all.data()), all.data() + 3);
  EXPECT_EQ(all, (std::vector<int>{2, 3, 4, 4}));
  int* const none = nullptr;
  EXPECT_EQ(detail::copy(none, none, none), none);
}

TEST(Algorithms, BoundsMatchTheStandard)
{
  auto const less = [](int lhs, int rhs) { return lhs < rhs; };
  for (std::size_t count = 0; count != 40; ++count) {
    auto all = numbers(count, 10, static_cast<unsigned>(count));
    std::sort(all.begin(), all.end());
    for (int value = -1; value != 11; ++value) {
      auto const lower = std::lower_bound(all.begin(), all.end(), value);
      auto const upper = std::upper_bound(all.begin(), all.end(), value);
      EXPECT_EQ(detail::lower_bound(all.begin(), all.end(), value), lower);
      EXPECT_EQ(detail::upper_bound(all.begin(), all.end(), value), upper);
      EXPECT_EQ(detail::lower_bound(all.begin(), all.end(), value, less), lower);
      EXPECT_EQ(detail::upper_bound(all.begin(), all.end(), value, less), upper);
      EXPECT_EQ(detail::binary_search(all.begin(), all.end(), value), lower != upper);
    }
  }
}

TEST(Algorithms, SortSortsAllPermutationsOfAFew)
{
  for (std::size_t count = 0; count != 8; ++count) {
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    do {
      auto all = order;
      detail::sort(all.begin(), all.end());
      ASSERT_TRUE(std::is_sorted(all.begin(), all.end()));
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Algorithms, SortSortsManyWithAndWithoutDuplicates)
{
  for (int const most : {1, 2, 10, 1'000'000}) {
    for (std::size_t const count : {15U, 16U, 17U, 18U, 100U, 1000U, 30'000U}) {
      auto all      = numbers(count, most, static_cast<unsigned>(count));
      auto expected = all;
      std::sort(expected.begin(), expected.end(), std::greater<>{});
      detail::sort(all.begin(), all.end(), std::greater<>{});
      ASSERT_EQ(all, expected) << count << " below " << most;
    }
  }
}

TEST(Algorithms, SortMovesWhatIsExpensiveToCopy)
{
  std::vector<std::unique_ptr<std::string>> all;
  for (int const each : numbers(500, 100, 3)) { all.push_back(std::make_unique<std::string>(std::to_string(each))); }
  auto const is_before = [](auto const& lhs, auto const& rhs) { return *lhs < *rhs; };
  detail::sort(all.begin(), all.end(), is_before);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), is_before));
}

/// Compares like McIlroy's adversary ("A Killer Adversary for Quicksort"). It fixes values as late as possible, so that each pivot
/// ends up next to the smallest remaining value.
std::size_t comparisons_at_worst(std::size_t count)
{
  auto const undecided = count;
  std::vector<std::size_t> values(count, undecided);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::size_t decided{};
  std::size_t candidate{};
  std::size_t comparisons{};
  detail::sort(order.begin(), order.end(), [&](std::size_t lhs, std::size_t rhs) {
    ++comparisons;
    if (values[lhs] == undecided && values[rhs] == undecided) { values[lhs == candidate ? lhs : rhs] = decided++; }
    if (values[lhs] == undecided) {
      candidate = lhs;
    } else if (values[rhs] == undecided) {
      candidate = rhs;
    }
    return values[lhs] < values[rhs];
  });
  return comparisons;
}

TEST(Algorithms, SortNeedsFewComparisonsAtWorst)
{
  constexpr std::size_t count = 20'000;
  EXPECT_LT(static_cast<double>(comparisons_at_worst(count)), 5 * count * std::log2(count));
}

}  // namespace
