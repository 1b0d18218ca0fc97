// SPDX-License-Identifier: Apache-2.0
//
// RANDOM_ALLOCATIONS_BENCH: random allocations and frees of one thread on the default stream.

#include <benchmarks/utilities/options.hpp>
#include <benchmarks/utilities/resources.hpp>

#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using rmm::benchmarks::resource_ptr;

constexpr std::size_t mib = std::size_t{1} << 20U;

struct block {
  void* ptr;
  std::size_t bytes;
};

/// Allocates `count` blocks of 1 ... max_bytes bytes in at most twice as many steps. The other steps free a random block.
void allocate_at_random(rmm::mr::device_memory_resource& resource, std::size_t count, std::size_t max_bytes)
{
  constexpr std::size_t most_live   = 16'000 * mib;
  constexpr double allocation_share = 0.73;

  std::default_random_engine random;
  std::uniform_int_distribution<std::size_t> size{1, max_bytes};
  std::bernoulli_distribution allocates{allocation_share};
  std::vector<block> live;
  std::size_t live_bytes = 0;
  std::size_t made       = 0;

  auto const try_allocate = [&] {
    auto const bytes = size(random);
    if (live_bytes + bytes > most_live) { return false; }
    try {
      live.push_back({resource.allocate(bytes), bytes});
    } catch (rmm::bad_alloc const&) {
      return false;
    }
    live_bytes += bytes;
    ++made;
    return true;
  };
  auto const free_one = [&] {
    if (live.empty()) { return; }
    auto& victim = live[std::uniform_int_distribution<std::size_t>{0, live.size() - 1}(random)];
    resource.deallocate(victim.ptr, victim.bytes);
    live_bytes -= victim.bytes;
    victim = live.back();
    live.pop_back();
  };

  for (std::size_t step = 0; step < 2 * count; ++step) {
    bool const wanted = made < count && (live.empty() || allocates(random));
    if (!wanted || !try_allocate()) { free_one(); }
  }
  for (auto const& b : live) { resource.deallocate(b.ptr, b.bytes); }
}

struct resource_choice {
  char const* benchmark_name;
  resource_ptr (*make)();
};

/// The resources of the option --resource.
std::map<std::string, resource_choice> const choices{
  {"pool", {"pool_mr", []() -> resource_ptr { return rmm::benchmarks::make_pool(); }}},
  {"binning", {"binning_mr", rmm::benchmarks::make_binning}},
  {"arena", {"arena_mr", rmm::benchmarks::make_large_arena}},
  {"cuda_async", {"cuda_async_mr", rmm::benchmarks::make_cuda_async}},
  {"cuda", {"cuda_mr", rmm::benchmarks::make_cuda}},
};

void register_benchmark(resource_choice const& choice,
                        std::vector<std::int64_t> const& counts,
                        std::vector<std::int64_t> const& sizes)
{
  auto const run = [make = choice.make](benchmark::State& state) {
    auto const resource = make();
    for ([[maybe_unused]] auto _ : state) {
      allocate_at_random(
        *resource, static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)) * mib);
    }
  };
  auto* const registered =
    benchmark::RegisterBenchmark((std::string{"BM_RandomAllocations/"} + choice.benchmark_name).c_str(), run);
  registered->Unit(benchmark::kMillisecond);
  for (auto const count : counts) {
    for (auto const size : sizes) { registered->Args({count, size}); }
  }
}

void run(int argc, char** argv)
{
  rmm::benchmarks::options options{"RANDOM_ALLOCATIONS_BENCH", "Random allocations and frees"};
  options.flag('p', "profile", "run once, without the benchmark harness")
    .value('r', "resource", "cuda, cuda_async, pool (default), arena or binning")
    .value('n', "numallocs", "number of allocations (1000)")
    .value('m', "maxsize", "largest size in MiB (4096)");
  if (options.is_help(argc, argv)) {
    std::cout << options.help_with_harness();
    return;
  }
  benchmark::Initialize(&argc, argv);
  options.parse(argc, argv);
  auto const name  = options.get<std::string>("resource", "pool");
  auto const count = options.get<std::int64_t>("numallocs", 1000);
  auto const size  = options.get<std::int64_t>("maxsize", 4096);
  auto const found = choices.find(name);
  if (found == choices.end()) {
    std::cout << "Error: invalid memory_resource name: " << name << '\n';
    return;
  }
  if (count < 1 || size < 1) { throw std::invalid_argument{"numallocs and maxsize have to be above 0"}; }

  if (options.is_set("profile")) {
    std::cout << "Profiling " << name << " with " << count << " allocations of max " << size << "B\n";
    allocate_at_random(*found->second.make(), static_cast<std::size_t>(count), static_cast<std::size_t>(size) * mib);
    std::cout << "Finished\n";
    return;
  }
  auto const counts =
    options.has("numallocs") ? std::vector<std::int64_t>{count} : std::vector<std::int64_t>{1000, 10000, 100000};
  auto const sizes =
    options.has("maxsize") ? std::vector<std::int64_t>{size} : std::vector<std::int64_t>{1, 4, 64, 256, 1024, 4096};
  if (options.has("resource")) {
    register_benchmark(found->second, counts, sizes);
  } else {
    for (auto const* each : {"pool", "binning", "arena", "cuda_async", "cuda"}) {
      register_benchmark(choices.at(each), counts, sizes);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace

int main(int argc, char** argv)
{
  try {
    run(argc, argv);
  } catch (std::exception const& e) {
    std::cout << "Exception caught: " << e.what() << '\n';
  }
}
