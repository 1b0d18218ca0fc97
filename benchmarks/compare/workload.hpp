// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace compare {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr std::size_t gib = 1024 * mib;

/// Random numbers that are the same on every machine for a seed: the distributions of the C++ library need not be.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : engine_{seed} {}

  /// Uniform in 0 ... limit - 1. Requires 0 < limit < 2^32.
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(((engine_() >> 32U) * limit) >> 32U); }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }

  /// Normal, mean 0 and deviation 1 (Box and Muller).
  double normal()
  {
    constexpr double pi = 3.14159265358979323846;
    auto const radius   = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

/// Sizes with a given median whose logarithm is normal, clipped to 1 ... cap.
struct lognormal {
  std::size_t median;
  double sigma;
  std::size_t cap;

  std::size_t operator()(random_source& random) const
  {
    auto const size = static_cast<double>(median) * std::exp(sigma * random.normal());
    return static_cast<std::size_t>(std::clamp(size, 1.0, static_cast<double>(cap)));
  }
};

template <class Distribution>
std::vector<std::size_t> draw_sizes(Distribution const& distribution, std::size_t count, std::uint64_t seed)
{
  random_source random{seed};
  std::vector<std::size_t> sizes(count);
  for (auto& size : sizes) { size = distribution(random); }
  return sizes;
}

/// Replacements among a fixed number of live blocks: the block in `slot` goes, one of `bytes` comes.
struct replacement {
  std::uint32_t slot;
  std::uint32_t bytes;
};

std::vector<replacement> draw_replacements(lognormal const& sizes,
                                           std::size_t live,
                                           std::size_t count,
                                           std::uint64_t seed);

/// One step of a mixture of allocations and frees: block number `block` comes (`bytes` > 0) or goes (`bytes` == 0).
struct step {
  std::uint32_t block;
  std::uint32_t bytes;
};

/// The steps of a row random-N-M: 73 of 100 steps allocate 1 ... max_bytes while less than `limit` is live, the others
/// free a random block, until `allocations` were made. What is live then stays so.
std::vector<step> draw_mixture(std::size_t allocations, std::size_t max_bytes, std::size_t limit, std::uint64_t seed);

}  // namespace compare
