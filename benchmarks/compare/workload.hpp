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

/// A source of random numbers that gives the same sequence for a seed on every machine. The distributions of the C++ library do
/// not guarantee that.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : engine_{seed} {}

  /// Uniform in 0 ... limit - 1. Requires 0 < limit < 2^32.
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(((engine_() >> 32U) * limit) >> 32U); }

  /// Returns a uniform number in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }

  /// Returns a normally distributed number with mean 0 and deviation 1 (Box and Muller).
  double normal()
  {
    constexpr double pi = 3.14159265358979323846;
    auto const radius   = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

/// A lognormal distribution of sizes with a given median, clipped to 1 ... cap.
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

/// A replacement in a fixed set of live blocks: frees the block in `slot` and allocates `bytes` bytes.
struct replacement {
  std::uint32_t slot;
  std::uint32_t bytes;
};

std::vector<replacement> draw_replacements(lognormal const& sizes,
                                           std::size_t live,
                                           std::size_t count,
                                           std::uint64_t seed);

/// A step of a mixture: allocates block number `block` if `bytes` > 0, and frees it if `bytes` == 0.
struct step {
  std::uint32_t block;
  std::uint32_t bytes;
};

/// Returns the steps of a row random-N-M, until there are `allocations` allocations. While fewer than `limit` bytes are live,
/// 73 of 100 steps allocate 1 ... max_bytes bytes. All other steps free a random block. The blocks that are left stay live.
std::vector<step> draw_mixture(std::size_t allocations, std::size_t max_bytes, std::size_t limit, std::uint64_t seed);

}  // namespace compare
