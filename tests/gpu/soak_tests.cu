// SPDX-License-Identifier: Apache-2.0
//
// On a real device, for RMM_SOAK_SECONDS seconds (20 if that is not set): 16 threads on each resource in turn, twice. They want
// far more than there is, streams and threads end all the time, and beside them memory is trimmed, and elastic pools are
// paused and resumed. No word of a block may change between its owner's write and the next look, and nothing may be lost.

#include "owner_pattern.cuh"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace {

using rmm::mr::configured_resource;
using rmm::mr::elastic_pool_memory_resource;

std::chrono::duration<double> time_for_all()
{
  auto const* const given = std::getenv("RMM_SOAK_SECONDS");
  return std::chrono::duration<double>{given != nullptr ? std::strtod(given, nullptr) : 20.0};
}

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::uint64_t steps_to_fill_memory =
  8000;  // of all threads; the smallest pool once filled after more than 5,500

struct turn {
  char const* resource;
  std::size_t largest;
};

std::vector<turn> all_turns()
{
  std::vector<turn> all{
    {"pool,initial=12MiB,max=12MiB,statistics", 2 * MiB},
    {"pool,initial=1MiB,max=12MiB,statistics", 2 * MiB},
    {"pool,max=1MiB,initial=1MiB,statistics", 16 * 1024},
    {"pool,max=12MiB,scrub,guard,statistics", 2 * MiB},
    {"elastic,max=12MiB,statistics", 2 * MiB},
    {"elastic,max=12MiB,decay_ms=5,statistics", 2 * MiB},
    {"elastic,limit=12MiB,statistics", 2 * MiB},
    {"cached,max=12MiB,statistics", 2 * MiB},
    {"cached,block=4MiB,limit=8MiB,statistics", 2 * MiB},
    {"arena,size=24MiB,statistics", 2 * MiB},
    {"fixed_size,block=64KiB,preallocate=16,limit=2MiB,statistics", 64 * 1024},
    {"binning,smallest=1KiB,largest=32KiB,upstream=(pool,initial=16MiB,max=16MiB),statistics", 2 * MiB},
    {"pinned_pool,initial=8MiB,max=8MiB,statistics", MiB},
    {"pool,initial=8MiB,max=8MiB,upstream=managed,prefetch,statistics", MiB},
    {"cuda,limit=12MiB,statistics", 2 * MiB},
    {"cuda_async,limit=12MiB,statistics", 2 * MiB},
    {"cuda_async_view,limit=12MiB,alignment=4KiB,statistics", 2 * MiB},
    {"managed,limit=8MiB,statistics", MiB},
    {"pinned_host,limit=8MiB,statistics", MiB},
  };
  int pageable{};
  EXPECT_EQ(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, 0), cudaSuccess);
  if (pageable != 0) {
    all.push_back({"system,limit=8MiB,statistics", MiB});
  } else {
    std::printf("left out: system memory, which this device cannot use\n");
  }
  return all;
}

std::size_t free_on_device()
{
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::size_t free{};
  std::size_t total{};
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

/// What the main thread does to a resource while others use it.
class disturbance {
 public:
  disturbance(configured_resource const& resource, rmm::test::gate& steps)
    : trimmable_{resource.find<rmm::mr::trimmable_resource>()},
      elastic_{resource.find<elastic_pool_memory_resource>()},
      steps_{&steps}
  {}

  void operator()()
  {
    std::this_thread::sleep_for(std::chrono::milliseconds{1 + random_() % 10});
    if (elastic_ != nullptr && random_() % 4 == 0) {
      auto const contents =
        random_() % 2 == 0 ? rmm::mr::paused_contents::kept_pageable : rmm::mr::paused_contents::kept_pinned;
      steps_->alone([&] {
        elastic_->pause(contents);
        elastic_->resume();
      });
      ++pauses;
    } else if (elastic_ != nullptr && random_() % 4 == 0) {
      elastic_->tick();
    } else if (trimmable_ != nullptr) {
      trimmed_bytes += trimmable_->trim_to(random_() % 3 == 0 ? 0 : random_() % (12 * MiB));
      ++trims;
    }
  }

  std::uint64_t trims{};
  std::uint64_t trimmed_bytes{};
  std::uint64_t pauses{};

 private:
  std::mt19937_64 random_{7};
  rmm::mr::trimmable_resource* trimmable_;
  elastic_pool_memory_resource* elastic_;
  rmm::test::gate* steps_;
};

void take_turn(turn const& what, std::chrono::duration<double> time)
{
  SCOPED_TRACE(what.resource);
  configured_resource const resource{what.resource};
  rmm::test::owner_threads threads{*resource, what.largest};
  disturbance disturb{resource, threads.steps()};
  auto const seen = threads.run(16, time, [&] { disturb(); });
  std::printf(
    "%-88s %9llu steps %8llu allocated %7llu refused %6llu streams %5llu trims %7llu MiB %4llu pauses %llu foreign\n",
    what.resource,
    static_cast<unsigned long long>(seen.steps),
    static_cast<unsigned long long>(seen.allocations),
    static_cast<unsigned long long>(seen.failures),
    static_cast<unsigned long long>(seen.streams),
    static_cast<unsigned long long>(disturb.trims),
    static_cast<unsigned long long>(disturb.trimmed_bytes / MiB),
    static_cast<unsigned long long>(disturb.pauses),
    seen.foreign);
  EXPECT_EQ(seen.foreign, 0U);
  EXPECT_GT(seen.allocations, 100U);
  if (seen.steps >= steps_to_fill_memory) { EXPECT_GT(seen.failures, 0U) << "there was memory enough"; }
  auto const* const counted = resource.find<rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource>>();
  ASSERT_NE(counted, nullptr);
  EXPECT_EQ(counted->get_bytes_counter().value, 0);
  EXPECT_EQ(counted->get_allocations_counter().value, 0);
}

/// All turns; the bytes that the device had free before and not after.
std::size_t take_all_turns(std::vector<turn> const& turns, std::chrono::duration<double> time)
{
  auto const before = free_on_device();
  for (auto const& each : turns) {
    auto const free = free_on_device();
    take_turn(each, time);
    auto const left = free_on_device();
    if (left != free) {
      std::printf("%s: %lld KiB more in use\n",
                  each.resource,
                  (static_cast<long long>(free) - static_cast<long long>(left)) / 1024);
    }
  }
  return before - std::min(before, free_on_device());
}

// The driver keeps memory for as many streams as there ever were at once, also of those that ended with work pending. So a
// round may take some; what is lost is lost in every round.
TEST(Soak, LosesAndMixesUpNothing)
{
  auto const turns = all_turns();
  auto const time  = time_for_all() / static_cast<double>(2 * turns.size());
  static_cast<void>(take_all_turns(turns, time));
  auto lost = take_all_turns(turns, time);
  for (int more = 0; lost != 0 && more < 3; ++more) { lost = take_all_turns(turns, time / 8); }
  EXPECT_EQ(lost, 0U) << "in each of four rounds after the first";
}

}  // namespace
