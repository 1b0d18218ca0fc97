// SPDX-License-Identifier: Apache-2.0
//
// Rows on memory: how much an allocator takes from the device, and how much of that a program can use.

#include <benchmarks/compare/measure.hpp>

#include <string>
#include <utility>

namespace compare {

namespace {

constexpr unsigned with_memory      = plugin_feature_times | plugin_feature_memory;
constexpr unsigned for_small_blocks = plugin_feature_small_times | plugin_feature_memory;

/// Fills a bounded pool until an allocation fails, frees a random half, and repeats that 60 times. The shares are live bytes
/// over the pool's bytes at each failure.
struct shares {
  double sum{0};
  double worst{1};
  std::size_t count{0};

  void note(double share)
  {
    sum += share;
    worst = std::min(worst, share);
    ++count;
  }
};

void fill_and_thin(allocator const& memory,
                   std::size_t pool_bytes,
                   lognormal const& sizes,
                   std::uint64_t seed,
                   shares& result,
                   timing& time)
{
  constexpr int rounds = 60;

  stream const order{memory};
  random_source random{seed};
  std::vector<block> live;
  std::size_t live_bytes = 0;
  auto const free_from   = [&](std::size_t first) {
    for (auto i = first; i < live.size(); ++i) {
      memory.deallocate(live[i].ptr, live[i].bytes, order);
      live_bytes -= live[i].bytes;
    }
    time.operations += live.size() - first;
    live.resize(first);
  };
  auto const before = synchronizations();
  for (int round = 0; round < rounds; ++round) {
    stopwatch const clock;
    for (;;) {
      auto const bytes = sizes(random);
      void* const ptr  = memory.allocate(bytes, order);
      if (ptr == nullptr) { break; }
      live.push_back({ptr, bytes});
      live_bytes += bytes;
      ++time.operations;
    }
    time.ns += clock.ns();
    result.note(static_cast<double>(live_bytes) / static_cast<double>(pool_bytes));

    for (auto i = live.size(); i > 1; --i) { std::swap(live[i - 1], live[random.below(i)]); }
    stopwatch const freeing;
    free_from(live.size() / 2);
    time.ns += freeing.ns();
  }
  free_from(0);
  time.synchronizations += synchronizations() - before;
}

row make_share_row(char const* name, lognormal sizes)
{
  auto const run = [=](candidate const& c, settings const& s) {
    shares result;
    timing time;
    for (int seed = 1; seed <= s.seeds; ++seed) {
      auto const memory = c.make(s.pool_bytes, s.pool_bytes);
      fill_and_thin(memory, s.pool_bytes, sizes, static_cast<std::uint64_t>(seed), result, time);
    }
    figures all{{"mean_share", result.sum / static_cast<double>(result.count)}, {"worst_share", result.worst}};
    auto const times = time.as_figures();
    all.insert(all.end(), times.begin(), times.end());
    return all;
  };
  return {name, "share of a bounded pool in live use when an allocation fails", plugin_feature_bounded, false, run};
}

/// Times the construction of an allocator and its first block: with a pool of full size, and with a pool that starts empty.
row make_first_allocation_row()
{
  auto const first = [](candidate const& c, std::size_t initial, std::size_t maximum) {
    stopwatch const clock;
    auto const memory = c.make(initial, maximum);
    stream const order{memory};
    auto* const ptr = checked_allocate(memory, mib, order);
    auto const ns   = clock.ns();
    memory.deallocate(ptr, mib, order);
    return ns;
  };
  auto const run = [=](candidate const& c, settings const& s) {
    first(c, 0, 0);                     // warm-up: the first call loads code
    auto const empty = first(c, 0, 0);  // first: the driver is slower for a while after the full pool is freed
    return figures{{"first_full_ns", first(c, s.pool_bytes, s.pool_bytes)}, {"first_empty_ns", empty}};
  };
  return {"first-allocation", "make an allocator and a stream, allocate 1 MiB", for_small_blocks, false, run};
}

double reserved_over(allocator const& memory, std::size_t live_bytes)
{
  return static_cast<double>(memory.reserved()) / static_cast<double>(live_bytes);
}

/// Times 4,096 allocations of 1 MiB from a pool that starts empty.
row make_growth_row()
{
  auto const run = [](candidate const& c, settings const&) {
    constexpr std::size_t bytes = mib;
    constexpr std::size_t count = 4096;

    auto const memory = c.make(0, 0);
    stream const order{memory};
    std::vector<void*> blocks;
    blocks.reserve(count);
    auto result     = measure(0, [&] {
                    for (std::size_t i = 0; i < count; ++i) { blocks.push_back(memory.allocate(bytes, order)); }
                    return count;
                  }).as_figures();
    auto const lost = std::count(blocks.begin(), blocks.end(), nullptr);
    if (memory.reserved() != 0) { result.push_back({"reserved_over_live", reserved_over(memory, bytes * count)}); }
    for (auto* const ptr : blocks) {
      if (ptr != nullptr) { memory.deallocate(ptr, bytes, order); }
    }
    if (lost != 0) { throw std::bad_alloc{}; }
    return result;
  };
  return {"growth", "4096 times 1 MiB from a pool that starts empty", for_small_blocks, false, run};
}

/// The bytes that a pool without a maximum holds after 100,000 replacements, over the peak of live bytes.
row make_reserved_row(char const* name, lognormal sizes)
{
  auto const run = [=](candidate const& c, settings const&) {
    auto const memory = c.make(0, 0);
    stream const order{memory};
    live_blocks blocks{memory, order, sizes, 1000, 1};
    auto most = blocks.live_bytes();
    for (int i = 0; i < 1000; ++i) {
      blocks.replace(100);
      most = std::max(most, blocks.live_bytes());
    }
    if (memory.reserved() == 0) { return figures{}; }
    return figures{{"reserved_over_live", reserved_over(memory, most)}};
  };
  return {name, "reserved over peak live bytes, 1000 live blocks", with_memory, false, run};
}

}  // namespace

std::vector<row> make_memory_rows()
{
  return {
    make_share_row("frag-small", {64 * kib, 2, 256 * mib}),
    make_share_row("frag-large", {4 * mib, 2, 2 * gib}),
    make_first_allocation_row(),
    make_growth_row(),
    make_reserved_row("reserved-small", {4 * kib, 1.5, mib}),
    make_reserved_row("reserved-mid", {256 * kib, 2, 64 * mib}),
  };
}

}  // namespace compare
