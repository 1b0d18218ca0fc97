// SPDX-License-Identifier: Apache-2.0
//
// TAKE_TURNS_BENCH: an elastic pool and the allocator of another library take turns in one process. Each allocates most of the
// device in its turn, and then gives the memory back.

#include <benchmarks/compare/measure.hpp>
#include <benchmarks/compare/plugin.hpp>
#include <benchmarks/compare/workload.hpp>
#include <benchmarks/utilities/options.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using compare::block;
using compare::gib;
using compare::mib;

void check(cudaError_t status)
{
  if (status != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(status)}; }
}

std::pair<std::size_t, std::size_t> free_and_total()
{
  std::size_t free{};
  std::size_t total{};
  check(cudaMemGetInfo(&free, &total));
  return {free, total};
}

/// Allocates blocks of many sizes with a total of `bytes`, writes to each, and frees them in random order. `allocate` takes a
/// size, `deallocate` a block.
template <class Allocate, class Deallocate>
void have_peak(std::size_t bytes, std::uint64_t seed, cudaStream_t stream, Allocate&& allocate, Deallocate&& deallocate)
{
  compare::random_source random{seed};
  compare::lognormal const sizes{64 * mib, 1.5, 8 * gib};
  std::vector<block> live;
  for (std::size_t rest = bytes; rest != 0;) {
    auto const size = std::min(rest, std::max(sizes(random) / 256 * 256, std::size_t{256}));
    void* const ptr = allocate(size);
    if (ptr == nullptr) {
      throw std::runtime_error{"out of memory with " + std::to_string((bytes - rest) / mib) + " MiB of " +
                               std::to_string(bytes / mib) + " MiB"};
    }
    live.push_back({ptr, size});
    check(cudaMemsetAsync(ptr, 0x3c, std::min(size, mib), stream));
    rest -= size;
  }
  while (!live.empty()) {
    std::swap(live[random.below(live.size())], live.back());
    deallocate(live.back());
    live.pop_back();
  }
}

rmm::benchmarks::options make_options()
{
  rmm::benchmarks::options options{"TAKE_TURNS_BENCH",
                                   "Lets an elastic pool and another allocator take turns with most of the device."};
  options.value('o', "other", "name of the other allocator, which a plug-in has (torch)")
    .value('n', "rounds", "number of turns of each (20)")
    .value('p', "percent", "share of the device's memory that each takes in its turn (70)")
    .value(0, "chunk", "chunk size of the elastic pool in MiB (0: the smallest)")
    .value(0, "plugins", "folder of the plug-ins (the program's folder)")
    .flag('h', "help", "print this text");
  return options;
}

int run(rmm::benchmarks::options const& options)
{
  auto const name   = options.get<std::string>("other", "torch");
  auto const rounds = options.get("rounds", 20);
  auto const folder =
    options.get<std::string>("plugins", std::filesystem::read_symlink("/proc/self/exe").parent_path());
  auto const candidates = compare::load_plugins(folder);
  auto const other =
    std::find_if(candidates.begin(), candidates.end(), [&](auto const& each) { return each.name() == name; });
  if (other == candidates.end()) { throw std::runtime_error{"no plug-in has an allocator with this name: " + name}; }

  check(cudaFree(nullptr));
  auto const [free_before, total] = free_and_total();
  auto const peak                 = total / 100 * options.get<std::size_t>("percent", 70) / (2 * mib) * (2 * mib);
  rmm::mr::elastic_pool_options pool_options;
  pool_options.chunk_bytes = options.get<std::size_t>("chunk", 0) * mib;
  rmm::mr::elastic_pool_memory_resource pool{pool_options};
  rmm::cuda_stream const stream;
  std::printf("peaks of %.1f GiB in turn, of %.1f GiB: elastic pool, %s\n",
              static_cast<double>(peak) / gib,
              static_cast<double>(total) / gib,
              other->description().c_str());

  double pool_seconds{};
  double other_seconds{};
  std::size_t kept{};
  for (int round = 0; round < rounds; ++round) {
    auto const seed = static_cast<std::uint64_t>(round);
    compare::stopwatch const ours;
    have_peak(
      peak,
      2 * seed + 1,
      stream.value(),
      [&](std::size_t bytes) { return pool.allocate(bytes, stream); },
      [&](block const& each) { pool.deallocate(each.ptr, each.bytes, stream); });
    pool.release_unused();
    pool_seconds += ours.seconds();
    kept = std::max(kept, free_before - std::min(free_before, free_and_total().first));

    compare::stopwatch const theirs;
    {
      auto const memory = other->make(0, 0);
      compare::stream const order{memory};
      have_peak(
        peak,
        2 * seed + 2,
        order,
        [&](std::size_t bytes) { return memory.allocate(bytes, order); },
        [&](block const& each) { memory.deallocate(each.ptr, each.bytes, order); });
    }  // the destructor empties the allocator's cache
    other_seconds += theirs.seconds();
  }
  std::printf(
    "%d turns of each, none without memory; a turn takes the elastic pool %.0f ms, the other %.0f ms; the most that "
    "the "
    "pool and its context kept after a turn: %.1f MiB\n",
    rounds,
    pool_seconds * 1e3 / rounds,
    other_seconds * 1e3 / rounds,
    static_cast<double>(kept) / mib);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return rmm::benchmarks::run_with(make_options(), argc, argv, 1, run); }
