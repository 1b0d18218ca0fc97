// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

namespace rmm::test {

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
inline constexpr std::uint64_t one_seed_of = 4;
#else
inline constexpr std::uint64_t one_seed_of = RMM_TEST_UNDER_SANITIZER ? 20 : 1;
#endif

/// Returns RMM_TEST_SEED from the environment. If it is not set, returns 1 under a sanitizer, and a random number otherwise. The caller
/// prints it.
[[nodiscard]] inline std::uint64_t drawn_seed()
{
  auto const* const given = std::getenv("RMM_TEST_SEED");
  if (given != nullptr) { return std::strtoull(given, nullptr, 10); }
  return RMM_TEST_UNDER_SANITIZER ? 1 : std::random_device{}();
}

/// Calls `run(seed)` for the seeds 1 ... count, until one fails, and prints that seed. Runs a twentieth of the seeds
/// under a sanitizer, and a quarter with per-thread default streams, because these also run with the legacy one.
///
/// RMM_TEST_SEEDS in the environment sets the count, RMM_TEST_MOST_SEEDS the most, and RMM_TEST_SEED the only seed to run.
template <class Run>
void for_each_seed(std::uint64_t count, Run&& run)
{
  auto const from_environment = [](char const* name, std::uint64_t otherwise) {
    auto const* const given = std::getenv(name);
    return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
  };
  auto const usual = one_seed_of == 1 ? count : std::max<std::uint64_t>(count / one_seed_of, 1);
  auto const only  = from_environment("RMM_TEST_SEED", 0);
  auto const most  = from_environment("RMM_TEST_MOST_SEEDS", std::numeric_limits<std::uint64_t>::max());
  auto const first = only != 0 ? only : 1;
  auto const last  = only != 0 ? only : std::min(from_environment("RMM_TEST_SEEDS", usual), most);
  for (std::uint64_t seed = first; seed <= last && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("RMM_TEST_SEED=" + std::to_string(seed));
    run(seed);
  }
}

}  // namespace rmm::test
