// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace rmm::test {

/// Returns the seed in the environment variable RMM_TEST_SEED, or `otherwise`.
[[nodiscard]] inline std::uint64_t seed_from_environment(std::uint64_t otherwise)
{
  auto const* const chosen = std::getenv("RMM_TEST_SEED");
  return chosen == nullptr ? otherwise : std::strtoull(chosen, nullptr, 10);
}

/// A source of random decisions. A call with n returns a number below n.
class random_choice {
 public:
  explicit random_choice(std::uint64_t seed) : engine_{seed} {}

  [[nodiscard]] std::size_t operator()(std::size_t below) { return static_cast<std::size_t>(engine_() % below); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace rmm::test
