// SPDX-License-Identifier: Apache-2.0
//
// Random programs of threads, streams and devices on elastic pools that give memory back at random, under the ordering checker. It
// reports blocks that reach a stream too early, memory that leaves while work uses it, and work on memory that has left. Each
// refusal is checked against the live blocks.

#include "../../support/elastic_pool_source.hpp"
#include "../../support/random_program.hpp"
#include "../../support/seeds.hpp"

#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/recovery.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace {

using rmm::recovery_rung;
using rmm::mr::elastic_pool_options;
using rmm::test::elastic_pool_source;
using rmm::test::for_each_seed;
using rmm::test::memory_source;
using rmm::test::random_program;

constexpr std::size_t chunk = std::size_t{2} << 20U;

struct ElasticPoolOrdering : Stepped {
  struct counts {
    std::size_t programs{};
    std::size_t given_back{};
    rmm::recovery_figures recovery{};
  };

  /// If `device_bytes` is not 0, the devices have so much memory.
  static counts run(std::uint64_t programs,
                    random_program::options how,
                    elastic_pool_options const& options,
                    int devices              = 1,
                    std::size_t device_bytes = 0)
  {
    counts all;
    how.rearranges = true;
    for_each_seed(programs, [&](std::uint64_t seed) {
      begin(seed, devices);
      if (device_bytes != 0) {
        auto machine         = cudasim::current_options();
        machine.memory_bytes = device_bytes;
        start(machine);
      }
      std::vector<std::unique_ptr<memory_source>> sources;
      for (int device = 0; device < devices; ++device) {
        auto on_device   = options;
        on_device.device = rmm::cuda_device_id{device};
        sources.push_back(std::make_unique<elastic_pool_source>(on_device));
      }
      random_program program{seed, how, std::move(sources)};
      program.run();
      ++all.programs;
      program.for_each_source([&](memory_source& source, std::size_t) {
        auto& elastic = static_cast<elastic_pool_source&>(source);
        all.given_back += elastic.given_back();
        all.recovery = all.recovery + elastic.pool().figures().recovery;
        elastic.pool().release_unused();
        EXPECT_EQ(elastic.pool().pool_size(), 0U);
      });
    });
    return all;
  }
};

TEST_F(ElasticPoolOrdering, HoldsForBlocksOfSeveralChunks)
{
  elastic_pool_options options;
  options.maximum_bytes = 24 * chunk;
  random_program::options how;
  how.largest     = 5 * chunk;
  how.most_live   = 60;
  auto const seen = run(20, how, options);
  EXPECT_GT(seen.given_back, seen.programs * chunk);
  if (seen.programs >= 10) { EXPECT_GT(seen.recovery[recovery_rung::remap].served, 0U); }
  EXPECT_GT(seen.recovery.failures, 0U);
}

TEST_F(ElasticPoolOrdering, HoldsForBlocksInsideChunks)
{
  elastic_pool_options options;
  options.maximum_bytes = 8 * chunk;
  random_program::options how;
  how.threads     = 3;
  how.largest     = 400 * 1024;
  auto const seen = run(20, how, options);
  EXPECT_GT(seen.given_back, seen.programs * chunk);
}

TEST_F(ElasticPoolOrdering, HoldsOnADeviceThatIsFull)
{
  random_program::options how;
  how.largest     = 3 * chunk;
  how.most_live   = 100;
  auto const seen = run(20, how, elastic_pool_options{}, 1, 30 * chunk);
  EXPECT_GT(seen.given_back, seen.programs * chunk);
  EXPECT_GT(seen.recovery.failures, 0U);
}

TEST_F(ElasticPoolOrdering, HoldsForLargerChunks)
{
  elastic_pool_options options;
  options.maximum_bytes = 64 * chunk;
  options.chunk_bytes   = 4 * chunk;
  random_program::options how;
  how.largest   = 8 * chunk;
  how.most_live = 50;
  run(20, how, options);
}

TEST_F(ElasticPoolOrdering, HoldsForChunksOfSeveralSizes)
{
  elastic_pool_options options;
  options.maximum_bytes = 540 * chunk;
  random_program::options how;
  how.largest     = 260 * chunk;  // chunks have 1, 2, 4 and 8 units
  how.most_live   = 40;
  auto const seen = run(20, how, options);
  EXPECT_GT(seen.given_back, seen.programs * chunk);
  if (seen.programs >= 10) { EXPECT_GT(seen.recovery[recovery_rung::remap].served, 0U); }
  EXPECT_GT(seen.recovery.failures, 0U);
}

TEST_F(ElasticPoolOrdering, HoldsOnSeveralDevices)
{
  elastic_pool_options options;
  options.maximum_bytes = 16 * chunk;
  random_program::options how;
  how.largest = 2 * chunk;
  run(15, how, options, 3);
}

}  // namespace
