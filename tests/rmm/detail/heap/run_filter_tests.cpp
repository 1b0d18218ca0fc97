// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/heap/run_filter.hpp>

#include <rmm/detail/heap/address_range.hpp>

#include "random_numbers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::heap_granule;
using rmm::detail::run_filter;

constexpr std::uintptr_t base = std::uintptr_t{1} << 40;

[[nodiscard]] address_range range_of(std::size_t begin, std::size_t granules)
{
  return {base + begin * heap_granule, granules * heap_granule};
}

TEST(RunFilter, KeepsNoHoles)
{
  run_filter filter{100 * heap_granule, 0, 10'000, 10'000 * heap_granule};
  for (std::size_t i = 0; i != 10'000; ++i) { filter.add(range_of(2 * i, 1)); }
  EXPECT_FALSE(filter.close());
  EXPECT_FALSE(filter.may_be_in_run(range_of(2'000, 1)));
}

TEST(RunFilter, KeepsARunAndLittleElse)
{
  run_filter filter{100 * heap_granule, 0, 10'100, 10'100 * heap_granule};
  for (std::size_t i = 0; i != 10'000; ++i) { filter.add(range_of(2 * i, 1)); }
  for (std::size_t i = 0; i != 100; ++i) { filter.add(range_of(20'001 + i, 1)); }
  EXPECT_TRUE(filter.close());
  for (std::size_t i = 0; i != 100; ++i) { EXPECT_TRUE(filter.may_be_in_run(range_of(20'001 + i, 1))) << i; }
  std::size_t kept{};
  for (std::size_t i = 0; i != 10'000; ++i) { kept += filter.may_be_in_run(range_of(2 * i, 1)) ? 1U : 0U; }
  EXPECT_LT(kept, 100U);
}

TEST(RunFilter, KeepsNeighboursOfAPieceThatIsARunByItself)
{
  run_filter filter{100 * heap_granule, 0, 3, 1'000'002 * heap_granule};
  for (auto const range : {range_of(0, 1), range_of(1, 1'000'000), range_of(1'000'001, 1)}) { filter.add(range); }
  EXPECT_TRUE(filter.close());
  for (auto const range : {range_of(0, 1), range_of(1, 1'000'000), range_of(1'000'001, 1)}) {
    EXPECT_TRUE(filter.may_be_in_run(range));
  }
  EXPECT_FALSE(filter.may_be_in_run(range_of(500'000, 1)));
}

TEST(RunFilter, KeepsRunsAtAnEdge)
{
  run_filter filter{1'000 * heap_granule, 0, 20, 20 * heap_granule};
  for (std::size_t i = 0; i != 10; ++i) { filter.add(range_of(777 + i, 1)); }
  for (std::size_t i = 0; i != 10; ++i) { filter.add(range_of(9'777 + i, 1)); }
  filter.add_edge(base + 787 * heap_granule);
  EXPECT_TRUE(filter.close());
  for (std::size_t i = 0; i != 10; ++i) { EXPECT_TRUE(filter.may_be_in_run(range_of(777 + i, 1))) << i; }
  EXPECT_FALSE(filter.may_be_in_run(range_of(9'777, 1)));
}

TEST(RunFilter, KeepsEverythingIfTheBitsAreFull)
{
  run_filter filter{4 * heap_granule, 0, 1 << 14, (1 << 14) * heap_granule};
  for (std::size_t i = 0; i != 1 << 14; ++i) { filter.add(range_of(i, 1)); }
  EXPECT_TRUE(filter.close());
  EXPECT_TRUE(filter.may_be_in_run(range_of(1234, 1)));
}

TEST(RunFilter, ReportsIfItCannotTell)
{
  EXPECT_TRUE(run_filter::can_tell(2 * heap_granule, 0));
  EXPECT_FALSE(run_filter::can_tell(heap_granule, 0));
  EXPECT_FALSE(run_filter::can_tell(800 * heap_granule, 100 * heap_granule));
  EXPECT_TRUE(run_filter::can_tell(801 * heap_granule, 100 * heap_granule));
}

/// R2: runs of listed pieces, with unlisted pieces of up to `gap` granules between them and at their ends.
TEST(RunFilter, KeepsEachRunWhole)
{
  auto const seed = rmm::test::seed_from_environment(1);
  SCOPED_TRACE("RMM_TEST_SEED=" + std::to_string(seed));
  rmm::test::random_choice random{seed};
  for (int round = 0; round != 300; ++round) {
    auto const least   = 2 + random(random(2) == 0 ? 60 : 5'000);
    auto const gap     = random(1 + (least - 1) / 8);
    auto const largest = 1 + random(random(2) == 0 ? 4 : least);
    std::vector<std::vector<address_range>> runs;
    std::size_t count{};
    std::size_t total{};
    std::vector<bool> wanted;
    std::vector<std::uintptr_t> edges;
    std::size_t at = random(1'000);
    for (int i = 0; i != 200; ++i) {
      std::vector<address_range> pieces;
      auto const begin  = at;
      auto const length = 1 + random(2 * least);
      while (at - begin < length) {
        if (gap != 0 && random(2) == 0) { at += random(gap + 1); }
        auto const granules = 1 + random(largest);
        pieces.push_back(range_of(at, granules));
        total += pieces.back().bytes;
        at += granules;
      }
      if (gap != 0 && random(2) == 0) { at += random(gap + 1); }
      bool const has_edge = random(10) == 0;
      if (has_edge) { edges.push_back(base + (random(2) == 0 ? begin : at) * heap_granule); }
      wanted.push_back(has_edge || at - begin >= least);
      count += pieces.size();
      runs.push_back(std::move(pieces));
      at += 1 + random(random(8) == 0 ? 100'000 : 50);
    }
    if (!run_filter::can_tell(least * heap_granule, gap * heap_granule)) { continue; }
    run_filter filter{least * heap_granule, gap * heap_granule, count, total};
    for (auto const& run : runs) {
      for (auto const piece : run) { filter.add(piece); }
    }
    for (auto const edge : edges) { filter.add_edge(edge); }
    bool const any = filter.close();
    for (std::size_t i = 0; i != runs.size(); ++i) {
      if (!wanted[i]) { continue; }
      ASSERT_TRUE(any) << round;
      for (auto const piece : runs[i]) {
        ASSERT_TRUE(filter.may_be_in_run(piece)) << "round " << round << ", run " << i << ", least " << least;
      }
    }
  }
}

}  // namespace
