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

}  // namespace
