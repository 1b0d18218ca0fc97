// SPDX-License-Identifier: Apache-2.0
//
// Rows with one thread and one stream.

#include <benchmarks/compare/measure.hpp>

#include <string>
#include <utility>

namespace compare {

namespace {

constexpr unsigned timed = plugin_feature_times;

/// Returns the feature that a row needs if its largest block has `bytes` bytes.
unsigned timed_up_to(std::size_t bytes) { return bytes <= mib ? unsigned{plugin_feature_small_times} : timed; }

/// Allocates and frees `bytes` bytes in a loop.
row make_pair_row(char const* suffix, std::size_t bytes)
{
  auto const run = [bytes](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    stream const order{memory};
    auto const pairs = [&] {
      constexpr std::size_t count = 1000;
      for (std::size_t i = 0; i < count; ++i) {
        memory.deallocate(checked_allocate(memory, bytes, order), bytes, order);
      }
      return count;
    };
    measure(s.seconds / 10, pairs);
    return measure(s.seconds, pairs).as_figures();
  };
  return {std::string{"pair-"} + suffix, std::string{"allocate and free "} + suffix, timed_up_to(bytes), false, run};
}

/// Keeps `count` blocks live and replaces random ones.
row make_steady_row(char const* name, std::size_t count, lognormal sizes, unsigned needs = timed)
{
  auto const run = [=](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    stream const order{memory};
    live_blocks blocks{memory, order, sizes, count, 1};
    auto const some = [&] { return blocks.replace(1000); };

    stopwatch const warming;
    for (std::size_t done = 0; done < 2 * count && warming.seconds() < 10 * s.seconds;) { done += some(); }
    auto result = measure(s.seconds, some).as_figures();

    std::vector<double> latencies(20'000);
    for (auto& latency : latencies) {
      stopwatch const clock;
      blocks.replace_one();
      latency = clock.ns();
    }
    result.push_back({"p50_ns", percentile(latencies, 0.5)});
    result.push_back({"p99_ns", percentile(latencies, 0.99)});
    result.push_back({"p999_ns", percentile(latencies, 0.999)});
    return result;
  };
  return {name, std::to_string(count) + " live blocks, replace one", needs, false, run};
}

/// Times all steps of draw_mixture(). The blocks that are left are freed after the clock stops.
row make_random_row(char const* suffix, std::size_t allocations, std::size_t max_bytes)
{
  auto const run = [=](candidate const& c, settings const& s) {
    auto const memory = c.make(s.pool_bytes, s.pool_bytes);
    stream const order{memory};
    auto const steps = draw_mixture(allocations, max_bytes, s.pool_bytes / 8 * 7, 1);
    std::vector<block> blocks(allocations, block{});
    std::size_t failures = 0;

    auto const pass = [&] {
      auto const before = synchronizations();
      stopwatch const clock;
      for (auto const& next : steps) {
        auto& b = blocks[next.block];
        if (next.bytes != 0) {
          b = {memory.allocate(next.bytes, order), next.bytes};
          failures += b.ptr == nullptr ? 1 : 0;
        } else if (b.ptr != nullptr) {
          memory.deallocate(b.ptr, b.bytes, order);
          b.ptr = nullptr;
        }
      }
      timing const result{clock.ns(), synchronizations() - before, steps.size()};
      for (auto& b : blocks) {
        if (b.ptr != nullptr) { memory.deallocate(std::exchange(b.ptr, nullptr), b.bytes, order); }
      }
      return result;
    };

    auto sum = pass();                    // warm-up; its time also decides how often the row runs
    if (sum.ns < 10 * s.seconds * 1e9) {  // a pass that takes longer is not repeated
      sum      = {};
      failures = 0;
      do {
        auto const one = pass();
        sum = {sum.ns + one.ns, sum.synchronizations + one.synchronizations, sum.operations + one.operations};
      } while (sum.ns < s.seconds * 1e9);
    }
    auto result       = sum.as_figures();
    auto const passes = sum.operations / steps.size();
    result.push_back({"failures", static_cast<double>(failures) / static_cast<double>(passes)});
    return result;
  };
  return {std::string{"random-"} + suffix, "random allocations and frees", timed, false, run};
}

}  // namespace

std::vector<row> make_one_thread_rows()
{
  return {
    make_pair_row("256", 256),
    make_pair_row("1M", mib),
    make_pair_row("64M", 64 * mib),
    make_steady_row("steady-small-1k", 1'000, {4 * kib, 1.5, mib}, timed_up_to(mib)),
    make_steady_row("steady-small-100k", 100'000, {4 * kib, 1.5, mib}),
    make_steady_row("steady-mid-1k", 1'000, {256 * kib, 2, 64 * mib}),
    make_random_row("1k-4M", 1'000, 4 * mib),
    make_random_row("10k-4M", 10'000, 4 * mib),
    make_random_row("100k-1M", 100'000, mib),
    make_random_row("10k-64M", 10'000, 64 * mib),
  };
}

}  // namespace compare
