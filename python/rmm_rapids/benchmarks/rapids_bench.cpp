// SPDX-License-Identifier: Apache-2.0

// The engine beside RAPIDS' own resources, all of them through `cuda::mr::any_resource`, as RAPIDS' libraries call them.
//
//   rapids_bench [TURNS] [OPERATIONS]
//
// prints a line of CSV for each resource and workload: nanoseconds for an allocation with its deallocation, as median, least and largest of
// the turns, and the bytes that the device lost to the resource. Each turn makes all resources anew, in an order drawn at random. Nothing but
// allocation is timed: sizes and choices are drawn before. Resources whose runtime finds no device are left out.

#include <rmm_engine_rapids/engine_resource.hpp>

#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

constexpr std::size_t mib{std::size_t{1} << 20U};
constexpr std::size_t gib{std::size_t{1} << 30U};
constexpr std::size_t alignment{256};

void expect(cudaError_t error)
{
  if (error != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(error)}; }
}

std::size_t free_bytes()
{
  std::size_t free{};
  std::size_t total{};
  expect(cudaMemGetInfo(&free, &total));
  return free;
}

class stream {
 public:
  stream() { expect(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking)); }
  ~stream() { cudaStreamDestroy(handle_); }
  stream(stream const&)            = delete;
  stream& operator=(stream const&) = delete;

  operator cuda::stream_ref() const noexcept { return cuda::stream_ref{handle_}; }

 private:
  cudaStream_t handle_{};
};

struct candidate {
  char const* name;
  std::function<any_resource()> make;
  bool is_slow{false};
};

std::vector<candidate> candidates()
{
  auto const engine = [](char const* configuration) {
    return [configuration] { return any_resource{rmm_engine_rapids::engine_resource{configuration}}; };
  };
  return {
    {"rapids cuda", [] { return any_resource{rmm::mr::cuda_memory_resource{}}; }, true},
    {"rapids cuda_async", [] { return any_resource{rmm::mr::cuda_async_memory_resource{gib}}; }},
    {"rapids pool",
     [] {
       return any_resource{rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, gib}};
     }},
    {"rapids arena",
     [] {
       return any_resource{rmm::mr::arena_memory_resource{rmm::mr::cuda_memory_resource{}, 8 * gib}};
     }},
    {"engine pool", engine("pool,initial=1GiB")},
    {"engine elastic", engine("elastic,initial=1GiB")},
    {"engine cached", engine("cached")},
  };
}

/// Returns the candidates that can allocate on this machine.
std::vector<candidate> available_candidates()
{
  std::vector<candidate> available;
  for (auto const& each : candidates()) {
    try {
      auto resource     = each.make();
      auto* const block = resource.allocate(cuda::stream_ref{cudaStream_t{nullptr}}, mib, alignment);
      resource.deallocate(cuda::stream_ref{cudaStream_t{nullptr}}, block, mib, alignment);
      available.push_back(each);
    } catch (std::exception const& failure) {
      std::fprintf(stderr, "left out: %s: %s\n", each.name, failure.what());
    }
  }
  return available;
}

/// A step of a thread: frees the block in a slot, and allocates another into the slot.
struct step {
  std::size_t slot;
  std::size_t bytes;
};

struct workload {
  char const* name;
  std::size_t threads;
  std::size_t slots;
  std::size_t streams;  // number of streams of each thread; each slot always uses one stream
  std::size_t least;
  std::size_t most;
};

constexpr workload workloads[] = {
  {"256 B", 1, 1, 1, 256, 256},
  {"1 MiB", 1, 1, 1, mib, mib},
  {"1000 blocks of 256 B to 1 MiB", 1, 1000, 1, 256, mib},
  {"the same on 4 streams", 1, 1000, 4, 256, mib},
  {"8 threads with 100 blocks each", 8, 100, 1, 256, mib},
};

std::vector<step> draw_steps(workload const& what, std::size_t count, std::uint64_t seed)
{
  std::mt19937_64 random{seed};
  std::uniform_int_distribution<std::size_t> slot{0, what.slots - 1};
  std::uniform_real_distribution<double> logarithm{std::log2(static_cast<double>(what.least)),
                                                   std::log2(static_cast<double>(what.most) + 0.5)};
  std::vector<step> steps(count);
  for (auto& each : steps) { each = {slot(random), static_cast<std::size_t>(std::exp2(logarithm(random)))}; }
  return steps;
}

/// The blocks of one thread.
class worker {
 public:
  worker(any_resource const& resource, workload const& what)
    : resource_{resource}, streams_(what.streams), blocks_(what.slots)
  {}
  ~worker() { clear(); }
  worker(worker const&)            = delete;
  worker& operator=(worker const&) = delete;

  void run(std::vector<step> const& steps)
  {
    for (auto const& each : steps) {
      auto& [block, bytes]         = blocks_[each.slot];
      cuda::stream_ref const order = streams_[each.slot % streams_.size()];
      if (block != nullptr) { resource_.deallocate(order, block, bytes, alignment); }
      block = nullptr;
      bytes = each.bytes;
      block = resource_.allocate(order, bytes, alignment);
    }
  }

  void clear()
  {
    for (std::size_t slot = 0; slot < blocks_.size(); ++slot) {
      auto& [block, bytes] = blocks_[slot];
      if (block != nullptr) { resource_.deallocate(streams_[slot % streams_.size()], block, bytes, alignment); }
      block = nullptr;
    }
  }

 private:
  any_resource resource_;
  std::vector<stream> streams_;
  std::vector<std::pair<void*, std::size_t>> blocks_;
};

struct result {
  double nanoseconds;
  std::size_t bytes;
};

result measure(any_resource const& resource, workload const& what, std::size_t operations, std::size_t free_before)
{
  auto const count = operations / what.threads;
  std::vector<std::vector<step>> steps;
  for (std::size_t index = 0; index < what.threads; ++index) { steps.push_back(draw_steps(what, count, index)); }
  std::atomic<std::size_t> waiting{what.threads};
  std::atomic<bool> has_failed{false};
  std::vector<double> nanoseconds(what.threads);
  auto const work = [&](std::size_t index) {
    try {
      worker all{resource, what};
      all.run({steps[index].begin(), steps[index].begin() + static_cast<std::ptrdiff_t>(count / 10)});  // warm-up
      --waiting;
      while (waiting > 0 && !has_failed) {}
      auto const begin = std::chrono::steady_clock::now();
      all.run(steps[index]);
      std::chrono::duration<double, std::nano> const took{std::chrono::steady_clock::now() - begin};
      nanoseconds[index] = took.count() / static_cast<double>(count);
    } catch (std::exception const& failure) {
      std::fprintf(stderr, "%s: %s\n", what.name, failure.what());
      has_failed = true;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t index = 1; index < what.threads; ++index) { threads.emplace_back(work, index); }
  work(0);
  for (auto& each : threads) { each.join(); }
  if (has_failed) { throw std::runtime_error{"a thread failed"}; }
  auto const free_now = free_bytes();
  auto const slowest  = *std::max_element(nanoseconds.begin(), nanoseconds.end());
  return {slowest, free_before > free_now ? free_before - free_now : 0};
}

void print(std::map<std::pair<std::size_t, std::size_t>, std::vector<result>> results,
           std::vector<candidate> const& resources)
{
  std::puts("workload,resource,median_ns,least_ns,largest_ns,device_mib");
  for (auto& [key, turns] : results) {
    std::sort(turns.begin(), turns.end(), [](auto const& one, auto const& other) {
      return one.nanoseconds < other.nanoseconds;
    });
    auto const& median = turns[turns.size() / 2];
    std::printf("%s,%s,%.1f,%.1f,%.1f,%.0f\n",
                workloads[key.first].name,
                resources[key.second].name,
                median.nanoseconds,
                turns.front().nanoseconds,
                turns.back().nanoseconds,
                static_cast<double>(median.bytes) / mib);
  }
}

int run(std::size_t turns, std::size_t operations)
{
  expect(cudaFree(nullptr));
  auto const resources = available_candidates();
  std::map<std::pair<std::size_t, std::size_t>, std::vector<result>> results;
  std::mt19937_64 random{1};
  std::vector<std::size_t> order(resources.size());
  for (std::size_t index = 0; index < order.size(); ++index) { order[index] = index; }
  for (std::size_t turn = 0; turn < turns; ++turn) {
    std::shuffle(order.begin(), order.end(), random);
    for (auto const which : order) {
      for (std::size_t what = 0; what < std::size(workloads); ++what) {
        auto const before   = free_bytes();
        auto const resource = resources[which].make();
        auto const count    = resources[which].is_slow ? operations / 100 : operations;
        auto const found    = measure(resource, workloads[what], count, before);
        results[{what, which}].push_back(found);
      }
    }
  }
  print(results, resources);
  return 0;
}

}  // namespace

int main(int argc, char** argv)
{
  try {
    return run(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 7,
               argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 200'000);
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "rapids_bench: %s\n", failure.what());
    return 1;
  }
}
