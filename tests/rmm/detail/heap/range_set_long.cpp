// SPDX-License-Identifier: Apache-2.0
#include "random_numbers.hpp"
#include "range_set_trial.hpp"
#include "shadow_ranges.hpp"

#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/heap/range_set.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

using rmm::test::random_choice;
using rmm::test::range_set_trial;
using rmm::test::seed_from_environment;

TEST(RangeSetLongTrial, AgreesWithTheModelFor100MillionSteps)
{
  constexpr std::size_t trials          = 100;
  constexpr std::size_t steps           = 1'000'000;
  constexpr std::size_t steps_per_check = 1024;

  auto const first_seed = seed_from_environment(1);
  for (auto seed = first_seed; seed != first_seed + trials; ++seed) {
    SCOPED_TRACE(::testing::Message() << "RMM_TEST_SEED=" << seed << " repeats this");
    random_choice choose{seed};
    range_set_trial trial{1 + choose(4), 1 + choose(1000)};
    try {
      for (std::size_t step = 1; step <= steps; ++step) {
        trial.step(choose);
        if (step % steps_per_check == 0) { trial.check(); }
      }
      trial.finish(choose);
    } catch (std::logic_error const& error) {
      FAIL() << error.what();
    }
  }
}

// Frees blocks of a large area one by one and takes them again. The set grows to tens of thousands of ranges.
TEST(RangeSetLongTrial, AgreesWithTheModelWhenTheSetIsLarge)
{
  constexpr std::size_t trials          = 5;
  constexpr std::size_t blocks          = 200'000;
  constexpr std::size_t block_bytes     = 4 * rmm::detail::heap_granule;
  constexpr std::size_t steps           = 2 * blocks;
  constexpr std::size_t steps_per_check = 4096;

  auto const first_seed = seed_from_environment(1);
  for (auto seed = first_seed; seed != first_seed + trials; ++seed) {
    SCOPED_TRACE(::testing::Message() << "RMM_TEST_SEED=" << seed << " repeats this");
    random_choice choose{seed};
    rmm::detail::range_set set;
    rmm::test::shadow_ranges model;
    std::vector<rmm::detail::address_range> live;
    for (std::size_t at = 1; at <= blocks; ++at) { live.push_back({at * block_bytes, block_bytes}); }
    for (std::size_t step = 1; step <= steps; ++step) {
      if (step <= blocks / 2 || choose(2) == 0) {
        std::swap(live[choose(live.size())], live.back());
        ASSERT_TRUE(set.try_reserve(set.count() + 1));
        set.insert(live.back(), step);
        model.insert(live.back(), step);
        live.pop_back();
      } else {
        auto const bytes = (1 + choose(8)) * rmm::detail::heap_granule;
        auto const taken = choose(2) == 0 ? set.take(bytes) : set.take_back(bytes);
        if (!taken) { continue; }
        ASSERT_EQ(model.remove({taken.begin, bytes}).epoch, taken.epoch);
        live.push_back({taken.begin, bytes});
      }
      if (step % steps_per_check != 0) { continue; }
      ASSERT_TRUE(set.validate());
      ASSERT_TRUE(model.matches(set));
    }
    EXPECT_GT(set.capacity(), 40'000U);
  }
}

}  // namespace
