// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/workload.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace {

using namespace compare;

TEST(RandomSource, IsTheSameForASeed)
{
  random_source first{7};
  random_source again{7};
  random_source other{8};
  EXPECT_EQ(first.below(1'000'000), again.below(1'000'000));
  EXPECT_NE(first.below(1'000'000), other.below(1'000'000));
}

TEST(RandomSource, StaysBelowItsLimitAndReachesEveryNumber)
{
  random_source random{1};
  std::vector<int> seen(10);
  for (int i = 0; i < 10'000; ++i) { ++seen.at(random.below(10)); }
  EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 800);
}

TEST(RandomSource, IsNormal)
{
  random_source random{1};
  double sum     = 0;
  double squares = 0;
  for (int i = 0; i < 100'000; ++i) {
    auto const x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 100'000, 0, 0.02);
  EXPECT_NEAR(squares / 100'000, 1, 0.02);
}

TEST(Lognormal, HasItsMedianAndSpread)
{
  auto sizes = draw_sizes(lognormal{4 * kib, 1.5, mib}, 100'001, 1);
  std::sort(sizes.begin(), sizes.end());
  EXPECT_NEAR(static_cast<double>(sizes[50'000]), 4.0 * kib, 150);
  auto const one_sigma = static_cast<double>(sizes[84'134]) / static_cast<double>(sizes[50'000]);
  EXPECT_NEAR(std::log(one_sigma), 1.5, 0.05);
}

TEST(Lognormal, IsClipped)
{
  auto const sizes = draw_sizes(lognormal{4 * kib, 5, mib}, 10'000, 1);
  EXPECT_EQ(*std::max_element(sizes.begin(), sizes.end()), mib);
  EXPECT_EQ(*std::min_element(sizes.begin(), sizes.end()), 1);
}

TEST(Replacements, PickEverySlot)
{
  auto const drawn = draw_replacements({4 * kib, 1.5, mib}, 10, 1000, 1);
  std::vector<int> seen(10);
  for (auto const& r : drawn) { ++seen.at(r.slot); }
  EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 50);
}

/// Goes through a mixture and gives what is live after it, by block; fails if a step is not possible.
std::unordered_map<std::uint32_t, std::uint32_t> live_after(std::vector<step> const& steps, std::size_t& most_live)
{
  std::unordered_map<std::uint32_t, std::uint32_t> live;
  std::size_t bytes = 0;
  for (auto const& next : steps) {
    if (next.bytes != 0) {
      EXPECT_TRUE(live.emplace(next.block, next.bytes).second);
      bytes += next.bytes;
    } else {
      EXPECT_EQ(live.count(next.block), 1);
      bytes -= live[next.block];
      live.erase(next.block);
    }
    most_live = std::max(most_live, bytes);
  }
  return live;
}

TEST(Mixture, AllocatesAsOftenAsAsked)
{
  auto const steps       = draw_mixture(10'000, mib, 16 * gib, 1);
  auto const allocations = std::count_if(steps.begin(), steps.end(), [](step const& s) { return s.bytes != 0; });
  EXPECT_EQ(allocations, 10'000);
  EXPECT_NEAR(static_cast<double>(allocations) / static_cast<double>(steps.size()), 0.73, 0.02);
}

TEST(Mixture, FreesWhatIsLive)
{
  std::size_t most = 0;
  auto const steps = draw_mixture(10'000, mib, 16 * gib, 1);
  EXPECT_EQ(live_after(steps, most).size(), 10'000 - (steps.size() - 10'000));
}

TEST(Mixture, FreesOnlyOnceTheLimitIsReached)
{
  std::size_t most = 0;
  live_after(draw_mixture(10'000, mib, 100 * mib, 1), most);
  EXPECT_GE(most, 100 * mib);
  EXPECT_LT(most, 101 * mib);
}

}  // namespace
