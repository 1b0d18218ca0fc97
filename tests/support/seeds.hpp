// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace rmm::test {

/// Calls `run(seed)` for the seeds 1 ... count, a tenth of them under a sanitizer, until one fails, and says which that was.
///
/// In the environment, RMM_TEST_SEEDS is another count, and RMM_TEST_SEED the one seed to run.
template <class Run>
void for_each_seed(std::uint64_t count, Run&& run)
{
  auto const from_environment = [](char const* name, std::uint64_t otherwise) {
    auto const* const given = std::getenv(name);
    return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
  };
  auto const usual = RMM_TEST_UNDER_SANITIZER ? std::max<std::uint64_t>(count / 10, 2) : count;
  auto const only  = from_environment("RMM_TEST_SEED", 0);
  auto const first = only != 0 ? only : 1;
  auto const last  = only != 0 ? only : from_environment("RMM_TEST_SEEDS", usual);
  for (std::uint64_t seed = first; seed <= last && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("RMM_TEST_SEED=" + std::to_string(seed));
    run(seed);
  }
}

}  // namespace rmm::test
