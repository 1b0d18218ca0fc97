// SPDX-License-Identifier: Apache-2.0
#include "../../support/counting_upstream.hpp"
#include "../../support/mock_resource.hpp"
#include "../../support/recycling_upstream.hpp"

#include <rmm/error.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::mr::make_statistics_adaptor;
using rmm::mr::statistics_resource_adaptor;
using adaptor = statistics_resource_adaptor<counting_upstream>;
using counter = adaptor::counter;

constexpr std::size_t ten_mib{10 << 20};

struct figures {
  std::int64_t value, peak, total;

  template <class Counter>
  figures(Counter const& c) : value{c.value}, peak{c.peak}, total{c.total}
  {}
  figures(std::int64_t v, std::int64_t p, std::int64_t t) : value{v}, peak{p}, total{t} {}

  friend bool operator==(figures const& lhs, figures const& rhs)
  {
    return lhs.value == rhs.value && lhs.peak == rhs.peak && lhs.total == rhs.total;
  }
  friend std::ostream& operator<<(std::ostream& out, figures const& self)
  {
    return out << "value " << self.value << ", peak " << self.peak << ", total " << self.total;
  }
};

figures tens_of_mib(std::int64_t value, std::int64_t peak, std::int64_t total)
{
  auto const unit = static_cast<std::int64_t>(ten_mib);
  return {value * unit, peak * unit, total * unit};
}

TEST(StatisticsCounter, RaisesPeakAndTotalWhenItGrows)
{
  counter c;
  c += 5;
  c += 2;
  EXPECT_EQ(figures(c), figures(7, 7, 7));
}

TEST(StatisticsCounter, KeepsPeakAndTotalWhenItShrinks)
{
  counter c;
  c += 5;
  c -= 8;
  EXPECT_EQ(figures(c), figures(-3, 5, 5));
  c += 4;
  EXPECT_EQ(figures(c), figures(1, 5, 9));
}

TEST(StatisticsCounter, AddsASectionAfterWhatItCountedItself)
{
  counter c;
  c += 10;
  c -= 4;
  counter section;
  section += 7;
  section -= 2;
  c.add_counters_from_tracked_sub_block(section);
  EXPECT_EQ(figures(c), figures(11, 13, 17));
}

TEST(StatisticsCounter, KeepsAPeakThatTheSectionDoesNotReach)
{
  counter c;
  c += 100;
  c -= 99;
  counter section;
  section += 7;
  c.add_counters_from_tracked_sub_block(section);
  EXPECT_EQ(figures(c), figures(8, 100, 107));
}

struct Statistics : ::testing::Test {
  counting_upstream upstream;
  adaptor mr{&upstream};

  std::vector<void*> allocate(int count)
  {
    std::vector<void*> blocks;
    for (int i = 0; i < count; ++i) { blocks.push_back(mr.allocate(ten_mib)); }
    return blocks;
  }
  void free(std::vector<void*> const& blocks)
  {
    for (void* const ptr : blocks) { mr.deallocate(ptr, ten_mib); }
  }
  void TearDown() override { EXPECT_EQ(upstream.live_count(), 0U); }
};

TEST_F(Statistics, StartAtZero)
{
  EXPECT_EQ(figures(mr.get_bytes_counter()), figures(0, 0, 0));
  EXPECT_EQ(figures(mr.get_allocations_counter()), figures(0, 0, 0));
}

TEST_F(Statistics, CountValuePeakAndTotal)
{
  auto const first = allocate(10);
  free({first.begin(), first.begin() + 5});
  EXPECT_EQ(figures(mr.get_bytes_counter()), tens_of_mib(5, 10, 10));
  EXPECT_EQ(figures(mr.get_allocations_counter()), figures(5, 10, 10));
  auto const second = allocate(10);
  EXPECT_EQ(figures(mr.get_bytes_counter()), tens_of_mib(15, 15, 20));
  EXPECT_EQ(figures(mr.get_allocations_counter()), figures(15, 15, 20));
  free({first.begin() + 5, first.end()});
  free(second);
  EXPECT_EQ(figures(mr.get_bytes_counter()), tens_of_mib(0, 15, 20));
  EXPECT_EQ(figures(mr.get_allocations_counter()), figures(0, 15, 20));
}

TEST_F(Statistics, GoNegativeWhenMemoryOfOthersIsFreed)
{
  statistics_resource_adaptor<adaptor> outer{&mr};
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) { blocks.push_back(upstream.allocate(ten_mib)); }
  free(blocks);
  EXPECT_EQ(mr.get_bytes_counter().value, -static_cast<std::int64_t>(10 * ten_mib));
  EXPECT_EQ(mr.get_allocations_counter().value, -10);
}

TEST_F(Statistics, CountAtEachLevelOfAStackOfAdaptors)
{
  statistics_resource_adaptor<adaptor> outer{&mr};
  void* const inner_block = mr.allocate(100);
  void* const outer_block = outer.allocate(50);
  EXPECT_EQ(mr.get_bytes_counter().value, 150);
  EXPECT_EQ(outer.get_bytes_counter().value, 50);
  outer.deallocate(outer_block, 50);
  mr.deallocate(inner_block, 100);
  EXPECT_EQ(mr.get_bytes_counter().value, 0);
}

TEST_F(Statistics, CountBytesAsTheyWereAskedFor)
{
  void* const ptr = mr.allocate(5);
  EXPECT_EQ(mr.get_bytes_counter().value, 5);
  mr.deallocate(ptr, 5);
}

TEST_F(Statistics, DoNotCountAllocationsThatFail)
{
  upstream.refuse_above(10);
  EXPECT_THROW(mr.allocate(11), rmm::out_of_memory);
  EXPECT_EQ(figures(mr.get_bytes_counter()), figures(0, 0, 0));
  EXPECT_EQ(figures(mr.get_allocations_counter()), figures(0, 0, 0));
}

TEST_F(Statistics, CountAllocationsOfZeroBytes)
{
  void* const ptr = mr.allocate(0);
  EXPECT_EQ(figures(mr.get_bytes_counter()), figures(0, 0, 0));
  EXPECT_EQ(figures(mr.get_allocations_counter()), figures(1, 1, 1));
  mr.deallocate(ptr, 0);
}

TEST_F(Statistics, RefuseToPopTheOutermostSection)
{
  try {
    mr.pop_counters();
    FAIL();
  } catch (std::out_of_range const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("cannot pop the last counter pair"));
  }
  EXPECT_EQ(figures(mr.get_bytes_counter()), figures(0, 0, 0));
}

TEST_F(Statistics, CountInNestedSections)
{
  void* const a0     = mr.allocate(ten_mib);
  auto const outside = mr.push_counters();
  EXPECT_EQ(figures(outside.first), tens_of_mib(1, 1, 1));
  EXPECT_EQ(figures(outside.second), figures(1, 1, 1));
  EXPECT_EQ(figures(mr.get_bytes_counter()), figures(0, 0, 0));

  void* const a1    = mr.allocate(ten_mib);
  auto const around = mr.push_counters();
  EXPECT_EQ(figures(around.first), tens_of_mib(1, 1, 1));

  free({mr.allocate(ten_mib)});
  auto const inner = mr.pop_counters();
  EXPECT_EQ(figures(inner.first), tens_of_mib(0, 1, 1));
  EXPECT_EQ(figures(inner.second), figures(0, 1, 1));

  free({a0});
  auto const middle = mr.pop_counters();
  EXPECT_EQ(figures(middle.first), tens_of_mib(0, 2, 2));
  EXPECT_EQ(figures(middle.second), figures(0, 2, 2));

  free({a1});
  EXPECT_EQ(figures(mr.get_bytes_counter()), tens_of_mib(0, 3, 3));
  EXPECT_THROW(mr.pop_counters(), std::out_of_range);
}

TEST_F(Statistics, PeakOfNestedSectionsCountsFromWhatWasThere)
{
  void* const before = mr.allocate(100);
  mr.push_counters();
  mr.deallocate(mr.allocate(50), 50);
  mr.pop_counters();
  EXPECT_EQ(figures(mr.get_bytes_counter()), figures(100, 150, 150));
  mr.deallocate(before, 100);
}

TEST_F(Statistics, ComeFromAFactory)
{
  auto made = make_statistics_adaptor(&upstream);
  EXPECT_EQ(made.get_upstream(), &upstream);
}

TEST(StatisticsOrder, ForgetMemoryBeforeUpstreamHasItBack)
{
  ::testing::StrictMock<mock_resource> mock;
  statistics_resource_adaptor mr{&mock};
  EXPECT_CALL(mock, do_allocate).WillOnce(::testing::Return(address(0x1000)));
  EXPECT_CALL(mock, do_deallocate).WillOnce([&](auto&&...) {
    EXPECT_EQ(mr.get_bytes_counter().value, 0);
    EXPECT_EQ(mr.get_allocations_counter().value, 0);
  });
  mr.deallocate(mr.allocate(100), 100);
}

TEST(StatisticsThreads, CountExactly)
{
  recycling_upstream upstream;
  statistics_resource_adaptor mr{&upstream};
  constexpr int threads{8};
  constexpr int rounds{5000};
  run_on_threads(threads, [&](int number) {
    auto const bytes = static_cast<std::size_t>(number + 1);
    for (int i = 0; i < rounds; ++i) { mr.deallocate(mr.allocate(bytes), bytes); }
  });
  auto const bytes = mr.get_bytes_counter();
  auto const calls = mr.get_allocations_counter();
  EXPECT_EQ(bytes.value, 0);
  EXPECT_EQ(bytes.total, rounds * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
  EXPECT_EQ(calls.value, 0);
  EXPECT_EQ(calls.total, rounds * threads);
  EXPECT_GE(calls.peak, 1);
  EXPECT_LE(calls.peak, threads);
  EXPECT_LE(bytes.peak, 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8);
}

}  // namespace
