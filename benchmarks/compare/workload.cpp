// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/workload.hpp>

namespace compare {

std::vector<replacement> draw_replacements(lognormal const& sizes,
                                           std::size_t live,
                                           std::size_t count,
                                           std::uint64_t seed)
{
  random_source random{seed};
  std::vector<replacement> result(count);
  for (auto& r : result) {
    r.slot  = static_cast<std::uint32_t>(random.below(live));
    r.bytes = static_cast<std::uint32_t>(sizes(random));
  }
  return result;
}

std::vector<step> draw_mixture(std::size_t allocations, std::size_t max_bytes, std::size_t limit, std::uint64_t seed)
{
  constexpr double allocate_share = 0.73;

  random_source random{seed};
  std::vector<step> steps;
  std::vector<step> live;
  std::size_t live_bytes = 0;
  std::size_t made       = 0;
  while (made < allocations) {
    if (live.empty() || (random.uniform() < allocate_share && live_bytes < limit)) {
      step const allocation{static_cast<std::uint32_t>(made++),
                            static_cast<std::uint32_t>(1 + random.below(max_bytes))};
      steps.push_back(allocation);
      live.push_back(allocation);
      live_bytes += allocation.bytes;
    } else {
      auto& victim = live[random.below(live.size())];
      steps.push_back({victim.block, 0});
      live_bytes -= victim.bytes;
      victim = live.back();
      live.pop_back();
    }
  }
  return steps;
}

}  // namespace compare
