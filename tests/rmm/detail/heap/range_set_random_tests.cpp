// SPDX-License-Identifier: Apache-2.0
#include "random_numbers.hpp"
#include "range_set_trial.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace {

using rmm::test::random_choice;
using rmm::test::range_set_trial;
using rmm::test::seed_from_environment;

struct shape {
  char const* name;
  std::size_t blocks;
  std::size_t granules;
  std::size_t steps;
};

// Names each trial in the test's output.
void PrintTo(shape const& printed, std::ostream* out) { *out << printed.name; }

struct RangeSetTrial : ::testing::TestWithParam<shape> {};

TEST_P(RangeSetTrial, AgreesWithTheModel)
{
  auto const first_seed = seed_from_environment(1);
  for (auto seed = first_seed; seed != first_seed + 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "RMM_TEST_SEED=" << seed << " repeats this");
    random_choice choose{seed};
    range_set_trial trial{GetParam().blocks, GetParam().granules};
    try {
      for (std::size_t step = 0; step != GetParam().steps; ++step) {
        trial.step(choose);
        trial.check();
      }
      trial.finish(choose);
    } catch (std::logic_error const& error) {
      FAIL() << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         RangeSetTrial,
                         ::testing::Values(shape{"OneSmallBlock", 1, 40, 1500},
                                           shape{"ManySmallBlocks", 30, 8, 1500},
                                           shape{"OneBlock", 1, 3000, 1500},
                                           shape{"SomeLargeBlocks", 3, 100'000, 1500}),
                         [](auto const& named) { return named.param.name; });

}  // namespace
