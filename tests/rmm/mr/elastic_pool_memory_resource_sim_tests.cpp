// SPDX-License-Identifier: Apache-2.0
//
// The elastic pool: the memory it takes from the device, the places of allocations, and the memory it gives back.

#include "../../support/simulated.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/chunked_space.hpp>
#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/recovery.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::mr::elastic_pool_memory_resource;
using rmm::mr::elastic_pool_options;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;
constexpr std::size_t GiB = 1024 * MiB;

struct ElasticPool : FreshMachine {
  [[nodiscard]] static std::size_t free_on_device() { return rmm::available_device_memory().first; }

  rmm::cuda_stream stream;

  void TearDown() override
  {
    {
      rmm::cuda_stream const ends{std::move(stream)};
    }
    Simulated::TearDown();
  }
};

TEST_F(ElasticPool, TakesNothingBeforeItsFirstAllocation)
{
  auto const before = free_on_device();
  elastic_pool_memory_resource const pool;
  EXPECT_TRUE(pool.has_virtual_memory());
  EXPECT_EQ(pool.pool_size(), 0U);
  EXPECT_EQ(free_on_device(), before);
}

TEST_F(ElasticPool, GrowsByWholeChunksInPlace)
{
  elastic_pool_memory_resource pool;
  auto const chunk  = pool.chunk_bytes();
  auto const before = free_on_device();
  void* const first = pool.allocate(chunk, stream);
  EXPECT_EQ(pool.pool_size(), chunk);
  void* const second = pool.allocate(chunk, stream);
  EXPECT_EQ(pool.pool_size(), 2 * chunk);
  EXPECT_EQ(static_cast<char*>(second), static_cast<char*>(first) + chunk);
  EXPECT_EQ(free_on_device(), before - 2 * chunk);
  EXPECT_EQ(pool.figures().upstream_blocks, 1U);
  pool.deallocate(first, chunk, stream);
  pool.deallocate(second, chunk, stream);
  void* const both = pool.allocate(2 * chunk, stream);
  EXPECT_EQ(both, first);
  EXPECT_EQ(pool.pool_size(), 2 * chunk);
  pool.deallocate(both, 2 * chunk, stream);
}

TEST_F(ElasticPool, UsesTheFreeEndOfWhatItHasWhenItGrows)
{
  elastic_pool_memory_resource pool;
  auto const chunk = pool.chunk_bytes();
  void* const part = pool.allocate(chunk / 2, stream);
  void* const rest = pool.allocate(chunk + chunk / 2, stream);
  EXPECT_EQ(pool.pool_size(), 2 * chunk);
  pool.deallocate(part, chunk / 2, stream);
  pool.deallocate(rest, chunk + chunk / 2, stream);
}

TEST_F(ElasticPool, TakesTheInitialMemoryAtOnce)
{
  elastic_pool_memory_resource pool{64 * MiB};
  EXPECT_EQ(pool.pool_size(), 64 * MiB);
  void* const ptr = pool.allocate(64 * MiB, stream);
  EXPECT_EQ(pool.pool_size(), 64 * MiB);
  pool.deallocate(ptr, 64 * MiB, stream);
}

TEST_F(ElasticPool, APoolServesOneRequestForItsWholeMaximum)
{
  constexpr std::size_t odd = 3 * MiB + 256;
  elastic_pool_memory_resource pool{odd, odd};
  void* const ptr = pool.allocate(odd, stream);
  EXPECT_EQ(pool.pool_size(), 2 * pool.chunk_bytes());
  pool.deallocate(ptr, odd, stream);
}

TEST_F(ElasticPool, RefusesInvalidSizesAndOptions)
{
  EXPECT_THROW((elastic_pool_memory_resource{100}), rmm::logic_error);
  EXPECT_THROW((elastic_pool_memory_resource{0, 100}), rmm::logic_error);
  EXPECT_THROW((elastic_pool_memory_resource{512, 256}), rmm::logic_error);
  elastic_pool_options options;
  options.chunk_bytes = 3 * MiB;
  EXPECT_THROW((elastic_pool_memory_resource{options}), rmm::logic_error);
}

TEST_F(ElasticPool, RefusesAMissingDevice)
{
  elastic_pool_options options;
  for (int const device : {-1, rmm::get_num_cuda_devices()}) {
    options.device = rmm::cuda_device_id{device};
    EXPECT_THROW((elastic_pool_memory_resource{options}), rmm::logic_error) << device;
  }
}

TEST_F(ElasticPool, ReportsItsMaximumInWholeChunks)
{
  elastic_pool_memory_resource pool{0, 256};
  try {
    static_cast<void>(pool.allocate(pool.chunk_bytes() + 1, stream));
    FAIL() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    EXPECT_EQ(e.report()->maximum_bytes, pool.chunk_bytes());
  }
}

TEST_F(ElasticPool, TrimGivesChunksWithoutAllocationsBack)
{
  elastic_pool_memory_resource pool;
  auto const chunk  = pool.chunk_bytes();
  auto const before = free_on_device();
  void* const kept  = pool.allocate(chunk, stream);
  void* const large = pool.allocate(10 * chunk, stream);
  pool.deallocate(large, 10 * chunk, stream);
  EXPECT_EQ(pool.trim_to(4 * chunk), 7 * chunk);
  EXPECT_EQ(pool.pool_size(), 4 * chunk);
  EXPECT_EQ(free_on_device(), before - 4 * chunk);
  EXPECT_EQ(pool.release_unused(), 3 * chunk);
  EXPECT_EQ(free_on_device(), before - chunk);
  EXPECT_EQ(pool.release_unused(), 0U);
  pool.deallocate(kept, chunk, stream);
  EXPECT_EQ(pool.release_unused(), chunk);
  EXPECT_EQ(free_on_device(), before);
}

TEST_F(ElasticPool, TrimKeepsChunksThatHoldAnAllocation)
{
  elastic_pool_memory_resource pool;
  auto const chunk = pool.chunk_bytes();
  std::vector<void*> all;
  for (int i = 0; i < 16; ++i) { all.push_back(pool.allocate(chunk / 2, stream)); }
  EXPECT_EQ(pool.pool_size(), 8 * chunk);
  for (std::size_t i = 0; i < 16; i += 2) { pool.deallocate(all[i], chunk / 2, stream); }
  EXPECT_EQ(pool.release_unused(), 0U);
  for (std::size_t i = 1; i < 16; i += 2) { pool.deallocate(all[i], chunk / 2, stream); }
  EXPECT_EQ(pool.release_unused(), 8 * chunk);
}

/// A stream that the library does not know, so its frees have no event at first.
struct ElasticPoolWithARawStream : ElasticPool {
  ElasticPoolWithARawStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess); }
  void TearDown() override
  {
    EXPECT_EQ(cudaStreamDestroy(raw), cudaSuccess);
    ElasticPool::TearDown();
  }

  cudaStream_t raw{};
};

TEST_F(ElasticPoolWithARawStream, TrimDoesNotWaitForWorkOnOtherMemory)
{
  elastic_pool_memory_resource pool;
  auto const chunk  = pool.chunk_bytes();
  void* const large = pool.allocate(4 * chunk, stream);
  void* const kept  = pool.allocate(chunk / 2, stream);
  pool.deallocate(pool.allocate(1000, raw), 1000, raw);  // has no event, and lies in the chunk of `kept`
  pool.deallocate(large, 4 * chunk, stream);
  cudasim::hold(raw);
  ASSERT_EQ(cudasim::launch(raw, {}, {}), cudaSuccess);
  EXPECT_EQ(pool.release_unused(), 4 * chunk);
  EXPECT_EQ(cudasim::pending(raw), 1U);
  EXPECT_EQ(pool.figures().device_synchronizations, 0U);
  cudasim::let_go(raw);
  pool.deallocate(kept, chunk / 2, stream);
}

TEST_F(ElasticPoolWithARawStream, TrimWaitsForTheDeviceIfItLacksEvents)
{
  elastic_pool_memory_resource pool;
  auto const chunk = pool.chunk_bytes();
  std::vector<void*> small;
  while (pool.pool_size() <= chunk) { small.push_back(pool.allocate(16 * KiB, raw)); }
  for (auto* const ptr : small) { pool.deallocate(ptr, 16 * KiB, raw); }
  EXPECT_EQ(pool.release_unused(), 2 * chunk);
  EXPECT_EQ(pool.figures().device_synchronizations, 1U);
}

TEST_F(ElasticPool, TrimRecordsEventsOnKnownStreams)
{
  elastic_pool_memory_resource pool;
  auto const chunk = pool.chunk_bytes();
  std::vector<void*> small;
  while (pool.pool_size() <= chunk) { small.push_back(pool.allocate(16 * KiB, stream)); }
  for (auto* const ptr : small) { pool.deallocate(ptr, 16 * KiB, stream); }
  EXPECT_EQ(pool.release_unused(), 2 * chunk);
  EXPECT_EQ(pool.figures().device_synchronizations, 0U);
}

TEST_F(ElasticPool, FreeChunksBecomeOneLargeBlock)
{
  elastic_pool_options options;
  elastic_pool_memory_resource const probe;
  auto const chunk      = probe.chunk_bytes();
  options.maximum_bytes = 16 * chunk;
  elastic_pool_memory_resource pool{options};
  std::vector<void*> all;
  for (int i = 0; i < 16; ++i) { all.push_back(pool.allocate(chunk, stream)); }
  for (std::size_t i = 0; i < 16; i += 2) { pool.deallocate(all[i], chunk, stream); }
  void* const large = pool.allocate(8 * chunk, stream);
  EXPECT_EQ(pool.pool_size(), 16 * chunk);
  EXPECT_EQ(pool.figures().recovery[rmm::recovery_rung::remap].served +
              pool.figures().recovery[rmm::recovery_rung::grow].served,
            16U + 1U);
  pool.deallocate(large, 8 * chunk, stream);
  for (std::size_t i = 1; i < 16; i += 2) { pool.deallocate(all[i], chunk, stream); }
}

TEST_F(ElasticPool, ReportsWhyItCannotGrow)
{
  elastic_pool_memory_resource pool{0, 32 * MiB};
  void* const most = pool.allocate(31 * MiB, stream);
  try {
    static_cast<void>(pool.allocate(4 * MiB, stream));
    ADD_FAILURE() << "there is no room for it";
  } catch (rmm::out_of_memory const& e) {
    ASSERT_NE(e.report(), nullptr);
    EXPECT_EQ(e.report()->maximum_bytes, std::optional<std::size_t>{32 * MiB});
    EXPECT_EQ(e.report()->asked_bytes, 4 * MiB);
    EXPECT_EQ(e.report()->tries_of(rmm::recovery_rung::remap), 1U);
  }
  pool.deallocate(most, 31 * MiB, stream);
}

TEST_F(ElasticPool, ReportsThatTheDeviceIsFull)
{
  elastic_pool_memory_resource pool;
  ASSERT_TRUE(cudasim::occupy(0, free_on_device() - 128 * MiB));
  for (std::size_t const bytes : {130 * MiB, GiB}) {
    try {
      static_cast<void>(pool.allocate(bytes, stream));
      ADD_FAILURE() << "there is no room for it";
    } catch (rmm::out_of_memory const& e) {
      std::string const text{e.what()};
      EXPECT_NE(text.find("the device has less than"), std::string::npos) << text;
      EXPECT_EQ(text.find("of at most"), std::string::npos) << text;
    }
  }
}

TEST_F(ElasticPool, ARequestThatFailsKeepsFreeMemory)
{
  elastic_pool_memory_resource pool;
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  void* const below = pool.allocate(8 * MiB, stream);
  void* const above = pool.allocate(16 * MiB, stream);
  pool.deallocate(below, 8 * MiB, stream);
  {
    rmm::tag_scope const scope{cache};
    pool.deallocate(pool.allocate(8 * MiB, stream), 8 * MiB, stream);
  }
  stream.synchronize();
  ASSERT_TRUE(cudasim::occupy(0, free_on_device() - 128 * MiB));
  auto const held     = pool.mapped_bytes();
  auto const unmapped = cudasim::calls("cuMemUnmap");
  EXPECT_THROW(static_cast<void>(pool.allocate(GiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(pool.mapped_bytes(), held);
  EXPECT_EQ(cudasim::calls("cuMemUnmap"), unmapped);
  void* const fits = pool.allocate(140 * MiB, stream);  // uses the memory of both parts
  pool.deallocate(fits, 140 * MiB, stream);
  pool.deallocate(above, 16 * MiB, stream);
}

TEST_F(ElasticPool, GivesLongUnusedMemoryBack)
{
  elastic_pool_options options;
  options.decay = std::chrono::milliseconds{0};
  elastic_pool_memory_resource pool{options};
  auto const chunk = pool.chunk_bytes();
  void* const ptr  = pool.allocate(4 * chunk, stream);
  pool.deallocate(ptr, 4 * chunk, stream);
  stream.synchronize();
  EXPECT_EQ(pool.tick(), 0U);  // was in use until now
  EXPECT_EQ(pool.tick(), 4 * chunk);
  EXPECT_EQ(pool.pool_size(), 0U);
}

TEST_F(ElasticPool, KeepsUnusedMemoryWithoutDecay)
{
  elastic_pool_options options;
  options.decay = std::chrono::milliseconds::max();
  elastic_pool_memory_resource pool{options};
  auto const chunk = pool.chunk_bytes();
  pool.deallocate(pool.allocate(chunk, stream), chunk, stream);
  stream.synchronize();
  for (int i = 0; i < 3; ++i) { EXPECT_EQ(pool.tick(), 0U); }
  EXPECT_EQ(pool.pool_size(), chunk);
}

TEST_F(ElasticPool, UnmappedAddressesBecomeOneRange)
{
  auto const chunk = elastic_pool_memory_resource{}.chunk_bytes();
  rmm::detail::chunked_space space{0, 8 * chunk, chunk, {}, {0}};
  space.map(space.begin(), 4 * chunk, chunk);
  for (auto const each : std::initializer_list<std::size_t>{1, 2, 0, 3}) {
    space.unmap(space.begin() + each * chunk, chunk);
  }
  EXPECT_EQ(space.empty_ranges(), (std::vector{rmm::detail::address_range{space.begin(), 8 * chunk}}));
  EXPECT_EQ(space.release_spare(), 4 * chunk);
}

/// Returns the sizes of the chunks of a space in units of `unit`, from the highest address down.
[[nodiscard]] std::vector<std::size_t> sizes_of_chunks(rmm::detail::chunked_space const& space, std::size_t unit)
{
  std::vector<std::size_t> sizes;
  space.visit_chunks_down({space.begin(), SIZE_MAX / 2}, [&](rmm::detail::address_range chunk) {
    sizes.push_back(chunk.bytes / unit);
    return true;
  });
  return sizes;
}

using units = std::vector<std::size_t>;

TEST_F(ElasticPool, NewChunksAreLargeAndTheRestIsFilledWithSmallerOnes)
{
  auto const unit = elastic_pool_memory_resource{}.chunk_bytes();
  rmm::detail::chunked_space space{0, 64 * unit, unit, {}, {0}};
  space.map(space.begin(), 23 * unit, 8 * unit);
  EXPECT_EQ(sizes_of_chunks(space, unit), (units{1, 2, 4, 8, 8}));
  EXPECT_EQ(space.mapped_bytes(), 23 * unit);
  EXPECT_TRUE(space.check_invariants());
  EXPECT_EQ(space.find(space.begin() + 8 * unit - 1)->bytes(), 8 * unit);
  EXPECT_EQ(space.find(space.begin() + 22 * unit)->bytes(), unit);
  EXPECT_EQ(space.find(space.begin() + 23 * unit), nullptr);
}

TEST_F(ElasticPool, SpareChunksAreMappedAgainInTheirSize)
{
  auto const unit = elastic_pool_memory_resource{}.chunk_bytes();
  rmm::detail::chunked_space space{0, 64 * unit, unit, {}, {0}};
  space.map(space.begin(), 23 * unit, 8 * unit);
  space.unmap(space.begin(), 8 * unit);
  space.unmap(space.begin() + 16 * unit, 4 * unit);
  EXPECT_EQ(space.spare_bytes(), 12 * unit);
  auto const made = cudasim::calls("cuMemCreate");
  space.map(space.begin() + 32 * unit, 12 * unit, unit);
  EXPECT_EQ(cudasim::calls("cuMemCreate"), made);
  EXPECT_EQ(sizes_of_chunks(space, unit), (units{4, 8, 1, 2, 8}));
  EXPECT_EQ(space.spare_bytes(), 0U);
  EXPECT_TRUE(space.check_invariants());
}

TEST_F(ElasticPool, ASpareChunkThatIsTooLargeIsReplacedBySmallerOnes)
{
  auto const unit   = elastic_pool_memory_resource{}.chunk_bytes();
  auto const before = free_on_device();
  rmm::detail::chunked_space space{0, 64 * unit, unit, {}, {0}};
  space.map(space.begin(), 24 * unit, 8 * unit);
  space.unmap(space.begin(), 24 * unit);
  space.map(space.begin() + 32 * unit, 11 * unit, 2 * unit);
  EXPECT_EQ(sizes_of_chunks(space, unit), (units{1, 2, 8}));
  EXPECT_EQ(space.spare_bytes(), 8 * unit);
  EXPECT_EQ(before - free_on_device(), 19 * unit);
  EXPECT_TRUE(space.check_invariants());
}

TEST_F(ElasticPool, ChunksThatCannotBeMappedStaySpare)
{
  auto const unit = elastic_pool_memory_resource{}.chunk_bytes();
  rmm::detail::chunked_space space{0, 64 * unit, unit, {}, {0}};
  for (auto const* const function : {"cuMemMap", "cuMemSetAccess"}) {
    cudasim::inject({function, function == std::string{"cuMemMap"} ? 2U : 1U, cudaErrorMemoryAllocation, 1});
    EXPECT_THROW(space.map(space.begin(), 15 * unit, 8 * unit), rmm::out_of_memory);
    EXPECT_EQ(space.mapped_bytes(), 0U);
    EXPECT_EQ(space.spare_bytes(), 15 * unit);
    EXPECT_TRUE(space.check_invariants());
  }
  space.map(space.begin(), 15 * unit, 8 * unit);
  EXPECT_EQ(sizes_of_chunks(space, unit), (units{1, 2, 4, 8}));
}

TEST_F(ElasticPool, ChunksKeepTheirSizesWhileTheirMemoryIsDropped)
{
  auto const unit = elastic_pool_memory_resource{}.chunk_bytes();
  rmm::detail::chunked_space space{0, 64 * unit, unit, {}, {0}};
  space.map(space.begin(), 11 * unit, 8 * unit);
  auto const before = free_on_device();
  space.drop();
  EXPECT_EQ(free_on_device(), before + 11 * unit);
  space.restore();
  EXPECT_EQ(free_on_device(), before);
  EXPECT_EQ(sizes_of_chunks(space, unit), (units{1, 2, 8}));
  EXPECT_TRUE(space.check_invariants());
}

TEST_F(ElasticPool, MapsALargeRequestWithFewCalls)
{
  elastic_pool_memory_resource pool;
  constexpr auto bytes = 1024 * MiB;
  auto const before    = cudasim::calls("cuMemMap");
  void* const ptr      = pool.allocate(bytes, stream);
  EXPECT_LE(cudasim::calls("cuMemMap") - before, 36U);
  EXPECT_EQ(pool.pool_size(), bytes + bytes / 128);
  pool.deallocate(ptr, bytes, stream);
  stream.synchronize();
  EXPECT_EQ(pool.release_unused(), bytes + bytes / 128);
}

TEST_F(ElasticPool, MapsSmallerChunksOnceItHoldsMoreThanHalfOfItsMaximum)
{
  elastic_pool_memory_resource pool{0, 4352 * MiB};
  constexpr auto bytes = 1024 * MiB;
  std::vector<void*> blocks;
  std::vector<std::uint64_t> calls;
  for (int i = 0; i < 4; ++i) {
    auto const before = cudasim::calls("cuMemMap");
    blocks.push_back(pool.allocate(bytes, stream));
    calls.push_back(cudasim::calls("cuMemMap") - before);
  }
  EXPECT_LE(calls[0], 36U);
  EXPECT_LE(calls[1], 44U);
  EXPECT_GE(calls[2], 120U);
  EXPECT_GE(calls[3], 110U);  // growth before has taken some in advance
  for (void* const block : blocks) { pool.deallocate(block, bytes, stream); }
}

TEST_F(ElasticPool, MovesPartOfALargeChunk)
{
  constexpr auto large = 4096 * MiB;
  constexpr auto part  = large / 2 + 28 * MiB;
  auto const before    = free_on_device();
  elastic_pool_memory_resource pool{0, large + 64 * MiB};
  void* const all  = pool.allocate(large, stream);  // has chunks of 32 MiB
  void* const kept = pool.allocate(64 * MiB, stream);
  pool.deallocate(all, large, stream);
  void* const low  = pool.allocate(large / 2, stream);
  void* const wall = pool.allocate(8 * MiB, stream);
  pool.deallocate(low, large / 2, stream);
  void* const moved = pool.allocate(part, stream);  // 65 chunks, with 4 MiB more than needed
  EXPECT_EQ(pool.pool_size(), large + 60 * MiB);
  EXPECT_EQ(before - free_on_device(), large + 60 * MiB);
  EXPECT_EQ(pool.mapped_bytes(), large + 60 * MiB);
  pool.deallocate(moved, part, stream);
  pool.deallocate(wall, 8 * MiB, stream);
  pool.deallocate(kept, 64 * MiB, stream);
  stream.synchronize();
  EXPECT_EQ(pool.release_unused(), large + 60 * MiB);
  EXPECT_EQ(free_on_device(), before);
}

/// 2 MiB of the device's memory, or of the pool's maximum, are taken from between two free chunks of 4 MiB.
struct ElasticPoolWithFreeChunks : ElasticPool {
  static constexpr auto half  = 128 * MiB;  // chunks of 4 MiB
  static constexpr auto large = 4 * MiB;
  static constexpr auto most  = 2 * half + 2 * MiB;

  /// Fills `pool` and frees the chunks; a chunk of 2 MiB between them goes back to the device.
  void fill(elastic_pool_memory_resource& pool)
  {
    void* const low    = pool.allocate(half, stream);
    void* const middle = pool.allocate(2 * MiB, stream);
    void* const high   = pool.allocate(half, stream);
    ASSERT_EQ(static_cast<char*>(middle), static_cast<char*>(low) + half);
    ASSERT_EQ(static_cast<char*>(high), static_cast<char*>(middle) + 2 * MiB);
    pool.deallocate(low, half, stream);
    pool.deallocate(high, half, stream);
    blocks = {pool.allocate(half - large, stream), pool.allocate(large, stream), pool.allocate(large, stream)};
    blocks.push_back(pool.allocate(half - large, stream));
    std::sort(blocks.begin(), blocks.end(), std::less<>{});
    ASSERT_EQ(blocks[1], static_cast<char*>(middle) - large);
    ASSERT_EQ(blocks[2], high);
    pool.deallocate(blocks[1], large, stream);
    pool.deallocate(middle, 2 * MiB, stream);
    pool.deallocate(blocks[2], large, stream);
    stream.synchronize();
    auto const before = pool.pool_size();
    pool.trim_to(before - 2 * MiB);
    ASSERT_EQ(pool.pool_size(), before - 2 * MiB);
  }

  void clear(elastic_pool_memory_resource& pool)
  {
    pool.deallocate(blocks.front(), half - large, stream);
    pool.deallocate(blocks.back(), half - large, stream);
  }

  std::vector<void*> blocks;
};

TEST_F(ElasticPoolWithFreeChunks, MovesAChunkThatThePlaceCutsOnAFullDevice)
{
  elastic_pool_memory_resource pool{0, most};
  ASSERT_NO_FATAL_FAILURE(fill(pool));
  ASSERT_TRUE(cudasim::occupy(0, free_on_device()));
  void* const ptr = pool.allocate(2 * large, stream);
  EXPECT_EQ(pool.mapped_bytes(), most - 2 * MiB);
  EXPECT_THROW(pool.allocate(large, stream), rmm::out_of_memory);
  pool.deallocate(ptr, 2 * large, stream);
  clear(pool);
}

TEST_F(ElasticPoolWithFreeChunks, MovesAChunkThatThePlaceCutsAtTheMaximum)
{
  elastic_pool_memory_resource pool{0, most};
  ASSERT_NO_FATAL_FAILURE(fill(pool));
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  void* part{};
  {
    rmm::tag_scope const scope{cache};
    part = pool.allocate(2 * MiB, stream);
  }
  void* const ptr = pool.allocate(2 * large, stream);
  EXPECT_EQ(pool.mapped_bytes(), most);
  EXPECT_THROW(pool.allocate(large, stream), rmm::out_of_memory);
  pool.deallocate(ptr, 2 * large, stream);
  pool.deallocate(part, 2 * MiB, stream);
  clear(pool);
}

TEST_F(ElasticPoolWithFreeChunks, MovesAChunkThatThePlaceCutsAfterAWaitForTheDevice)
{
  elastic_pool_memory_resource pool{0, most};
  ASSERT_NO_FATAL_FAILURE(fill(pool));
  void* const taken = pool.allocate(large, stream);
  void* const other = pool.allocate(large, stream);
  ASSERT_TRUE(cudasim::occupy(0, free_on_device()));
  for (auto const* const record : {"cuEventRecord", "cudaEventRecord"}) {
    cudasim::inject({record, 1, cudaErrorUnknown, 1000});  // so nobody but the host can wait for the frees
  }
  {
    cudaStream_t ends{};
    ASSERT_EQ(cudaStreamCreate(&ends), cudaSuccess);
    pool.deallocate(taken, large, ends);
    pool.deallocate(other, large, ends);
    ASSERT_EQ(cudaStreamDestroy(ends), cudaSuccess);
  }
  void* const ptr = pool.allocate(2 * large, stream);
  EXPECT_EQ(pool.mapped_bytes(), most - 2 * MiB);
  cudasim::clear_faults();
  pool.deallocate(ptr, 2 * large, stream);
  clear(pool);
}

/// The place ends within a unit of the chunk that it cuts. The device has less than the rest of that unit.
TEST_F(ElasticPoolWithFreeChunks, KeepsAChunkThatThePlaceCutsIfTheRequestIsRefused)
{
  elastic_pool_memory_resource pool{0, most};
  ASSERT_NO_FATAL_FAILURE(fill(pool));
  void* const low = pool.allocate(3 * MiB, stream);
  ASSERT_EQ(low, blocks[1]);
  ASSERT_TRUE(cudasim::occupy(0, free_on_device() - 7 * MiB / 4));
  EXPECT_THROW(pool.allocate(13 * MiB / 2, stream), rmm::out_of_memory);
  EXPECT_EQ(pool.mapped_bytes(), most - 2 * MiB);
  pool.deallocate(low, 3 * MiB, stream);
  clear(pool);
}

TEST_F(ElasticPool, SharedMemoryHasChunksOfOneSize)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource pool{options};
  constexpr auto bytes = 256 * MiB;
  void* const ptr      = pool.allocate(bytes, stream);
  auto const exported  = pool.export_descriptors(ptr, bytes);
  EXPECT_EQ(exported.block.chunks(), bytes / pool.chunk_bytes());
  EXPECT_EQ(exported.chunks.size(), bytes / pool.chunk_bytes());
  pool.deallocate(ptr, bytes, stream);
}

// --- without virtual memory

struct ElasticPoolOnAnOldDevice : ElasticPool {
  ElasticPoolOnAnOldDevice()
  {
    cudasim::inject(
      {"cuDeviceGetAttribute", 1, cudaErrorNotSupported, 1000});  // the driver does not report virtual memory
  }
};

struct ElasticPoolOnTwoDevices : Simulated {
  ElasticPoolOnTwoDevices()
  {
    auto machine           = cudasim::environment_options();
    machine.devices        = 2;
    machine.mode           = cudasim::execution::stepped;
    machine.check_ordering = true;
    start(machine);
  }
  void SetUp() override {}
};

TEST_F(ElasticPoolOnTwoDevices, LargeChunksMoveWithAnotherDeviceCurrent)
{
  elastic_pool_options options;
  options.device        = rmm::cuda_device_id{1};
  options.maximum_bytes = 1088 * MiB;
  auto const before     = cudasim::usage(1).physical;
  elastic_pool_memory_resource pool{options};
  pool.retain_host_memory();
  rmm::cuda_stream stream;
  {
    rmm::cuda_set_device_raii const there{rmm::cuda_device_id{1}};
    stream = rmm::cuda_stream{};
  }
  void* const low  = pool.allocate(512 * MiB, stream);
  void* const wall = pool.allocate(520 * MiB, stream);
  pool.deallocate(low, 512 * MiB, stream);
  void* const moved = pool.allocate(540 * MiB, stream);  // uses the chunks of `low`, and new chunks
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  EXPECT_LE(pool.pool_size(), 1088 * MiB);
  pool.pause(rmm::mr::paused_contents::dropped);
  EXPECT_EQ(cudasim::usage(1).physical, before);
  pool.resume();
  pool.deallocate(moved, 540 * MiB, stream);
  pool.deallocate(wall, 520 * MiB, stream);
  pool.release_unused();
  EXPECT_EQ(cudasim::usage(1).physical, before);
}

TEST_F(ElasticPoolOnTwoDevices, PartsUseEachOthersMemoryWithAnotherDeviceCurrent)
{
  elastic_pool_options options;
  options.device        = rmm::cuda_device_id{1};
  options.maximum_bytes = 64 * MiB;
  elastic_pool_memory_resource pool{options};
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  rmm::cuda_stream stream;
  {
    rmm::cuda_set_device_raii const there{rmm::cuda_device_id{1}};
    stream = rmm::cuda_stream{};
  }
  bool done         = false;
  void* const small = pool.allocate(1000, stream);
  {
    rmm::cuda_set_device_raii const there{rmm::cuda_device_id{1}};
    EXPECT_EQ(cudasim::launch(stream.value(), {}, {{small, 1000}}, [&] { done = true; }), cudaSuccess);
  }
  pool.deallocate(small, 1000, stream);
  void* all{};
  {
    rmm::tag_scope const scope{cache};
    all = pool.allocate(64 * MiB, stream);
  }
  EXPECT_TRUE(done);  // its memory went to the other part, so the work must be done
  EXPECT_EQ(cudasim::usage(0).physical, 0U);
  pool.pause(cache);
  pool.deallocate(pool.allocate(1000, stream), 1000, stream);
  pool.resume(cache);
  pool.deallocate(all, 64 * MiB, stream);
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST_F(ElasticPoolOnTwoDevices, WithoutVirtualMemoryUsesTheRequestedDevice)
{
  cudasim::inject({"cuDeviceGetAttribute", 1, cudaErrorNotSupported, 1000});  // there is no virtual memory
  elastic_pool_options options;
  options.device        = rmm::cuda_device_id{1};
  options.initial_bytes = 2 * MiB;
  elastic_pool_memory_resource pool{options};
  EXPECT_FALSE(pool.has_virtual_memory());
  rmm::cuda_stream stream;
  {
    rmm::cuda_set_device_raii const there{rmm::cuda_device_id{1}};
    stream = rmm::cuda_stream{};
  }
  for (auto const bytes : {MiB, 8 * MiB}) {  // from the first block, and from one added by growth
    void* const ptr = pool.allocate(bytes, stream);
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
    EXPECT_EQ(attributes.device, 1);
    pool.deallocate(ptr, bytes, stream);
  }
}

TEST_F(ElasticPoolOnAnOldDevice, GrowsByBlocksAndGivesFreeOnesBack)
{
  elastic_pool_memory_resource pool{0, 64 * MiB};
  EXPECT_FALSE(pool.has_virtual_memory());
  EXPECT_EQ(pool.chunk_bytes(), 0U);
  auto const before  = free_on_device();
  void* const first  = pool.allocate(4 * MiB, stream);
  void* const second = pool.allocate(4 * MiB, stream);
  EXPECT_EQ(pool.pool_size(), 8 * MiB);
  EXPECT_EQ(pool.mapped_bytes(), 8 * MiB);
  EXPECT_EQ(pool.release_unused(), 0U);
  pool.deallocate(second, 4 * MiB, stream);
  EXPECT_EQ(pool.release_unused(), 4 * MiB);
  EXPECT_EQ(before - free_on_device(), 4 * MiB);
  EXPECT_THROW(static_cast<void>(pool.allocate(61 * MiB, stream)), rmm::out_of_memory);
  void* const rest = pool.allocate(60 * MiB, stream);
  pool.deallocate(rest, 60 * MiB, stream);
  pool.deallocate(first, 4 * MiB, stream);
  EXPECT_EQ(pool.release_unused(), 64 * MiB);
  EXPECT_EQ(free_on_device(), before);
}

TEST_F(ElasticPoolOnAnOldDevice, HalvesRequestsUntilTheDeviceServesThem)
{
  elastic_pool_memory_resource pool;
  void* const first = pool.allocate(32 * MiB, stream);
  void* others{};
  ASSERT_EQ(cudaMalloc(&others, free_on_device() - 10 * MiB), cudaSuccess);
  void* const second = pool.allocate(1 * MiB, stream);
  EXPECT_EQ(pool.pool_size(), 40 * MiB);
  EXPECT_THROW(static_cast<void>(pool.allocate(11 * MiB, stream)), rmm::out_of_memory);
  pool.deallocate(second, 1 * MiB, stream);
  pool.deallocate(first, 32 * MiB, stream);
  EXPECT_EQ(cudaFree(others), cudaSuccess);
}

TEST_F(ElasticPoolOnAnOldDevice, ReportsWhatItCannotDo)
{
  elastic_pool_memory_resource pool;
  EXPECT_THROW(pool.pause(), rmm::logic_error);
  EXPECT_THROW(pool.set_pausable(rmm::tag{"any"}), rmm::logic_error);
}

TEST_F(ElasticPoolOnAnOldDevice, NamesTheOptionsThatNeedVirtualMemory)
{
  auto const expect_message = [](elastic_pool_options const& options, std::string const& names) {
    try {
      elastic_pool_memory_resource const made{options};
      ADD_FAILURE() << "nothing was thrown for " << names;
    } catch (rmm::logic_error const& error) {
      EXPECT_NE(std::string{error.what()}.find("Device 0 has no virtual memory, which these options need: " + names),
                std::string::npos)
        << error.what();
    }
  };
  elastic_pool_options options;
  options.share_descriptors = true;
  expect_message(options, "share_descriptors");
  options.peer_access = true;
  expect_message(options, "peer_access, share_descriptors");
  options             = {};
  options.peer_access = true;
  expect_message(options, "peer_access");
  options                 = {};
  options.share_fabric    = true;
  options.gpu_direct_rdma = true;
  expect_message(options, "share_fabric, gpu_direct_rdma");
}

TEST_F(ElasticPoolOnAnOldDevice, HasARecoveryOrderThatCanBeSet)
{
  elastic_pool_memory_resource pool;
  auto const order = pool.get_recovery_order();
  EXPECT_FALSE(order.contains(rmm::recovery_rung::remap));
  EXPECT_EQ(order.size(), 4U);
  EXPECT_NO_THROW(pool.set_recovery_order(order));
}

// --- pausing

void fill(void* ptr, int value, std::size_t bytes)
{
  ASSERT_EQ(cudaMemset(ptr, value, bytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

[[nodiscard]] bool holds(void const* ptr, char value, std::size_t bytes)
{
  std::vector<char> copy(bytes);
  EXPECT_EQ(cudaMemcpy(copy.data(), ptr, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  return std::all_of(copy.begin(), copy.end(), [&](char each) { return each == value; });
}

TEST_F(ElasticPool, APauseGivesAllBackAndKeepsAddressesAndContents)
{
  for (auto const contents : {rmm::mr::paused_contents::kept_pageable, rmm::mr::paused_contents::kept_pinned}) {
    elastic_pool_memory_resource pool;
    auto const before = free_on_device();
    void* const gap   = pool.allocate(3 * MiB, stream);
    void* const first = pool.allocate(5 * MiB, stream);
    void* const other = pool.allocate(100, stream);
    fill(first, 1, 5 * MiB);
    fill(other, 2, 100);
    pool.deallocate(gap, 3 * MiB, stream);
    pool.pause(contents);
    EXPECT_TRUE(pool.is_paused());
    EXPECT_EQ(free_on_device(), before);
    EXPECT_EQ(pool.mapped_bytes(), 0U);
    EXPECT_THROW(static_cast<void>(pool.allocate(1, stream)), rmm::logic_error);
    EXPECT_THROW(pool.pause(), rmm::logic_error);
    pool.resume();
    EXPECT_FALSE(pool.is_paused());
    EXPECT_TRUE(holds(first, 1, 5 * MiB));
    EXPECT_TRUE(holds(other, 2, 100));
    void* const again = pool.allocate(3 * MiB, stream);
    EXPECT_EQ(again, gap);
    pool.deallocate(again, 3 * MiB, stream);
    pool.deallocate(first, 5 * MiB, stream);
    pool.deallocate(other, 100, stream);
    EXPECT_THROW(pool.resume(), rmm::logic_error);
  }
}

TEST_F(ElasticPool, KeptContentsCanBeReadWhileTheyArePaused)
{
  rmm::tag const cache{"cache"};
  for (auto const contents : {rmm::mr::paused_contents::kept_pageable, rmm::mr::paused_contents::kept_pinned}) {
    elastic_pool_memory_resource pool;
    pool.set_pausable(cache);
    rmm::tag_scope const scope{cache};
    void* const gap   = pool.allocate(3 * MiB, stream);
    void* const small = pool.allocate(1024, stream);
    void* const large = pool.allocate(5 * MiB, stream);
    fill(small, 1, 1024);
    fill(large, 2, 5 * MiB);
    auto* const last = static_cast<char*>(large) + 5 * MiB - 1;
    pool.deallocate(gap, 3 * MiB, stream);
    EXPECT_EQ(pool.kept_contents(large, 1), nullptr);
    pool.pause(cache, contents);
    ASSERT_NE(pool.kept_contents(small, 1024), nullptr);
    EXPECT_EQ(*static_cast<char const*>(pool.kept_contents(small, 1024)), 1);
    ASSERT_NE(pool.kept_contents(last, 1), nullptr);
    EXPECT_EQ(*static_cast<char const*>(pool.kept_contents(last, 1)), 2);
    EXPECT_EQ(pool.kept_contents(large, 64 * MiB), nullptr);
    EXPECT_EQ(pool.kept_contents(gap, 1), nullptr);
    EXPECT_EQ(pool.kept_contents(&pool, 1), nullptr);
    pool.resume(cache);
    EXPECT_EQ(pool.kept_contents(large, 1), nullptr);
    pool.pause(cache, rmm::mr::paused_contents::dropped);
    EXPECT_EQ(pool.kept_contents(large, 1), nullptr);
    pool.deallocate(small, 1024, stream);
    pool.deallocate(large, 5 * MiB, stream);
  }
}

TEST_F(ElasticPool, HostMemoryIsRetainedOnRequest)
{
  rmm::tag const cache{"cache"};
  for (bool const before_the_tag : {true, false}) {
    elastic_pool_memory_resource pool;
    if (before_the_tag) { pool.retain_host_memory(); }
    pool.set_pausable(cache);
    if (!before_the_tag) { pool.retain_host_memory(); }
    rmm::tag_scope const scope{cache};
    void* ptr              = pool.allocate(8 * MiB, stream);
    auto const paused_copy = [&](rmm::mr::paused_contents contents) {
      pool.pause(cache, contents);
      auto const* const copy = pool.kept_contents(ptr, 1);
      EXPECT_NE(copy, nullptr);
      pool.resume(cache);
      return copy;
    };
    constexpr auto pinned = rmm::mr::paused_contents::kept_pinned;
    fill(ptr, 1, 8 * MiB);
    auto const* const first = paused_copy(pinned);
    rmm::mr::registered_host_memory_resource others;
    void* const taken = others.allocate(8 * MiB, stream);  // gets the host memory if the pool has freed it
    fill(ptr, 2, 8 * MiB);
    EXPECT_EQ(paused_copy(pinned), first);
    EXPECT_TRUE(holds(ptr, 2, 8 * MiB));
    pool.pause(cache, rmm::mr::paused_contents::dropped);
    pool.resume(cache);
    EXPECT_EQ(paused_copy(pinned), first);
    static_cast<void>(paused_copy(rmm::mr::paused_contents::kept_pageable));  // needs another kind of memory
    void* const more = pool.allocate(64 * MiB, stream);
    fill(more, 3, 64 * MiB);
    static_cast<void>(paused_copy(pinned));  // needs more memory
    EXPECT_TRUE(holds(more, 3, 64 * MiB));
    pool.deallocate(more, 64 * MiB, stream);
    static_cast<void>(pool.trim_to(0));
    fill(ptr, 4, 8 * MiB);
    static_cast<void>(paused_copy(pinned));  // needs much less memory
    EXPECT_TRUE(holds(ptr, 4, 8 * MiB));
    pool.retain_host_memory(false);
    others.deallocate(taken, 8 * MiB, stream);
    pool.deallocate(ptr, 8 * MiB, stream);
  }
}

TEST_F(ElasticPool, DroppedContentsLeaveUsableMemory)
{
  elastic_pool_memory_resource pool;
  void* const ptr = pool.allocate(4 * MiB, stream);
  pool.pause(rmm::mr::paused_contents::dropped);
  pool.resume();
  fill(ptr, 3, 4 * MiB);
  EXPECT_TRUE(holds(ptr, 3, 4 * MiB));
  pool.deallocate(ptr, 4 * MiB, stream);
}

TEST_F(ElasticPool, PausedMemoryCanBeFreedAndThePoolDestroyed)
{
  elastic_pool_memory_resource pool;
  void* const ptr = pool.allocate(4 * MiB, stream);
  pool.pause();
  EXPECT_EQ(pool.release_unused(), 0U);
  pool.deallocate(ptr, 4 * MiB, stream);
}

TEST_F(ElasticPool, StaysPausedIfItsMemoryIsTaken)
{
  elastic_pool_memory_resource pool;
  void* const ptr = pool.allocate(64 * MiB, stream);
  fill(ptr, 4, 64 * MiB);
  pool.pause();
  void* others{};
  auto const most = free_on_device() - 32 * MiB;
  ASSERT_EQ(cudaMalloc(&others, most), cudaSuccess);
  auto const left = free_on_device();
  EXPECT_THROW(pool.resume(), rmm::out_of_memory);
  EXPECT_TRUE(pool.is_paused());
  EXPECT_EQ(free_on_device(), left);
  ASSERT_EQ(cudaFree(others), cudaSuccess);
  pool.resume();
  EXPECT_TRUE(holds(ptr, 4, 64 * MiB));
  pool.deallocate(ptr, 64 * MiB, stream);
}

TEST_F(ElasticPool, ATagIsPausedAlone)
{
  elastic_pool_memory_resource pool;
  rmm::tag const weights{"weights"};
  EXPECT_THROW(pool.pause(weights), rmm::logic_error);
  EXPECT_THROW(pool.set_pausable(rmm::tag{}), rmm::logic_error);
  pool.set_pausable(weights);
  pool.set_pausable(weights);
  auto const before = free_on_device();
  void* const work  = pool.allocate(MiB, stream);
  void* model{};
  {
    rmm::tag_scope const scope{weights};
    model = pool.allocate(40 * MiB, stream);
  }
  fill(work, 5, MiB);
  fill(model, 6, 40 * MiB);
  EXPECT_EQ(pool.mapped_bytes(), before - free_on_device());
  EXPECT_EQ(pool.figures().live_bytes, 41 * MiB);
  pool.pause(weights);
  EXPECT_TRUE(pool.is_paused(weights));
  EXPECT_FALSE(pool.is_paused());
  EXPECT_EQ(before - free_on_device(), pool.chunk_bytes());
  EXPECT_TRUE(holds(work, 5, MiB));
  void* const more = pool.allocate(MiB, stream);  // other allocations go on
  pool.deallocate(more, MiB, stream);
  {
    rmm::tag_scope const scope{weights};
    EXPECT_THROW(static_cast<void>(pool.allocate(MiB, stream)), rmm::logic_error);
  }
  pool.resume(weights);
  EXPECT_TRUE(holds(model, 6, 40 * MiB));
  pool.deallocate(model, 40 * MiB, stream);
  pool.deallocate(work, MiB, stream);
  EXPECT_EQ(pool.release_unused(), 40 * MiB + pool.chunk_bytes());
  EXPECT_EQ(free_on_device(), before);
}

TEST_F(ElasticPool, ReservedMemoryIsPausedToo)
{
  elastic_pool_memory_resource pool;
  auto reservation = pool.reserve(8 * MiB, stream);
  pool.pause(rmm::mr::paused_contents::dropped);
  EXPECT_THROW(static_cast<void>(reservation.resource().allocate(MiB, stream)), rmm::logic_error);
  pool.resume();
  void* const ptr = reservation.resource().allocate(MiB, stream);
  reservation.resource().deallocate(ptr, MiB, stream);
}

TEST_F(ElasticPool, PartsStayWithinTheMaximumOfThePool)
{
  elastic_pool_memory_resource pool{0, 64 * MiB};
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  void* const rest = pool.allocate(40 * MiB, stream);
  rmm::tag_scope const scope{cache};
  EXPECT_THROW(static_cast<void>(pool.allocate(32 * MiB, stream)), rmm::out_of_memory);
  void* const fits = pool.allocate(24 * MiB, stream);
  pool.deallocate(fits, 24 * MiB, stream);
  pool.deallocate(rest, 40 * MiB, stream);
}

TEST_F(ElasticPool, PartsUseTheCurrentOrderAndCallbackOfThePool)
{
  elastic_pool_memory_resource pool{0, 64 * MiB};
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  int calls{};
  pool.set_failure_callback([&](std::size_t, void*) { return ++calls == 1; });
  rmm::tag_scope const scope{cache};
  EXPECT_THROW(static_cast<void>(pool.allocate(GiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(calls, 2);
  pool.set_failure_callback(nullptr);
  EXPECT_THROW(static_cast<void>(pool.allocate(GiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(calls, 2);
  pool.set_recovery_order({rmm::recovery_rung::remap});
  try {
    static_cast<void>(pool.allocate(GiB, stream));
    ADD_FAILURE() << "allocated more than the maximum";
  } catch (rmm::out_of_memory const& e) {
    ASSERT_NE(e.report(), nullptr);
    ASSERT_EQ(e.report()->order.size(), 1U);
    EXPECT_EQ(e.report()->order[0], rmm::recovery_rung::remap);
  }
}

TEST_F(ElasticPool, ReportsTheWholePoolIfAPartFails)
{
  elastic_pool_memory_resource pool{0, 64 * MiB};
  rmm::tag const cache{"cache"};
  rmm::tag const weights{"weights"};
  pool.track_tags();
  pool.set_pausable(cache);
  pool.set_pausable(weights);
  auto const allocate_under = [&](rmm::tag label, std::size_t bytes) {
    rmm::tag_scope const scope{label};
    return pool.allocate(bytes, stream);
  };
  void* const rest   = pool.allocate(8 * MiB, stream);
  void* const cached = allocate_under(cache, 16 * MiB);
  void* const kept   = allocate_under(weights, 4 * MiB);
  for (auto const failing : {cache, rmm::tag{}}) {
    auto const others = rmm::available_device_memory();
    try {
      static_cast<void>(allocate_under(failing, GiB));
      ADD_FAILURE() << "allocated more than the maximum";
    } catch (rmm::out_of_memory const& e) {
      ASSERT_NE(e.report(), nullptr);
      auto const& report = *e.report();
      EXPECT_TRUE(report.tags_tracked);
      ASSERT_EQ(report.holders.size(), 3U);
      EXPECT_EQ(report.holders[0].tag, "cache");
      EXPECT_EQ(report.holders[0].bytes, 16 * MiB);
      EXPECT_EQ(report.pool.live_bytes, 28 * MiB);
      EXPECT_EQ(report.pool.reserved_bytes, pool.mapped_bytes());
      EXPECT_EQ(report.held_by_others(), others.second - others.first - pool.mapped_bytes());
      EXPECT_EQ(report.pool.recovery.failures, pool.figures().recovery.failures);
    }
  }
  EXPECT_EQ(pool.figures().recovery.failures, 2U);
  pool.pause(weights);  // removes its memory from the device
  try {
    static_cast<void>(pool.allocate(GiB, stream));
    ADD_FAILURE() << "allocated more than the maximum";
  } catch (rmm::out_of_memory const& e) {
    ASSERT_NE(e.report(), nullptr);
    EXPECT_EQ(e.report()->pool.reserved_bytes, pool.mapped_bytes());
  }
  pool.resume(weights);
  pool.deallocate(kept, 4 * MiB, stream);
  pool.deallocate(cached, 16 * MiB, stream);
  pool.deallocate(rest, 8 * MiB, stream);
}

TEST_F(ElasticPool, PartsCheckForCapturesWhenThePoolDoes)
{
  elastic_pool_memory_resource pool;
  rmm::tag const cache{"cache"};
  pool.set_check_capture(false);
  pool.set_pausable(cache);
  rmm::tag_scope const scope{cache};
  auto const questions_of_a_pair = [&] {
    pool.deallocate(pool.allocate(256, stream), 256, stream);
    auto const before = cudasim::calls("cudaStreamIsCapturing");
    pool.deallocate(pool.allocate(256, stream), 256, stream);
    return cudasim::calls("cudaStreamIsCapturing") - before;
  };
  EXPECT_EQ(questions_of_a_pair(), 0U);
  pool.set_check_capture(true);
  EXPECT_EQ(questions_of_a_pair(), 2U);
  pool.set_check_capture(false);
  EXPECT_EQ(questions_of_a_pair(), 0U);
}

TEST_F(ElasticPool, PartsAndTheRestGiveEachOtherUnusedMemory)
{
  elastic_pool_memory_resource pool{0, 64 * MiB};
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  for (int i = 0; i < 2; ++i) {
    void* const all = pool.allocate(64 * MiB, stream);
    pool.deallocate(all, 64 * MiB, stream);
    rmm::tag_scope const scope{cache};
    void* const part = pool.allocate(64 * MiB, stream);
    pool.deallocate(part, 64 * MiB, stream);
  }
  EXPECT_EQ(pool.mapped_bytes(), 64 * MiB);
}

TEST_F(ElasticPool, TrimGivesNoMoreBackIfThePoolHasParts)
{
  elastic_pool_memory_resource pool;
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  pool.deallocate(pool.allocate(8 * MiB, stream), 8 * MiB, stream);
  {
    rmm::tag_scope const scope{cache};
    pool.deallocate(pool.allocate(8 * MiB, stream), 8 * MiB, stream);
  }
  EXPECT_EQ(pool.trim_to(64 * MiB), 0U);
  EXPECT_EQ(pool.trim_to(16 * MiB), 0U);
  EXPECT_EQ(pool.mapped_bytes(), 16 * MiB);
  EXPECT_EQ(pool.trim_to(12 * MiB), 4 * MiB);
  EXPECT_EQ(pool.trim_to(4 * MiB), 8 * MiB);
  EXPECT_EQ(pool.mapped_bytes(), 4 * MiB);
  EXPECT_EQ(pool.release_unused(), 4 * MiB);
}

TEST_F(ElasticPool, APartResumesWithUnusedMemoryOfTheRest)
{
  elastic_pool_memory_resource pool{0, 64 * MiB};
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  void* kept{};
  {
    rmm::tag_scope const scope{cache};
    kept = pool.allocate(40 * MiB, stream);
  }
  fill(kept, 1, 40 * MiB);
  pool.pause(cache);
  void* const other = pool.allocate(60 * MiB, stream);
  EXPECT_THROW(pool.resume(cache), rmm::out_of_memory);
  pool.deallocate(other, 60 * MiB, stream);
  pool.resume(cache);
  EXPECT_EQ(pool.mapped_bytes(), 64 * MiB);  // the rest gave the missing memory and kept 24 MiB
  EXPECT_TRUE(holds(kept, 1, 40 * MiB));
  pool.deallocate(kept, 40 * MiB, stream);
}

TEST_F(ElasticPool, APartResumesWithUnfencedMemoryOfTheRest)
{
  elastic_pool_memory_resource pool{0, 64 * MiB};
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  void* kept{};
  {
    rmm::tag_scope const scope{cache};
    kept = pool.allocate(64 * MiB, stream);
  }
  pool.pause(cache);
  pool.deallocate(pool.allocate(1000, stream), 1000, stream);
  ASSERT_EQ(pool.mapped_bytes(), 2 * MiB);
  pool.resume(cache);
  EXPECT_EQ(pool.mapped_bytes(), 64 * MiB);
  pool.deallocate(kept, 64 * MiB, stream);
}

TEST_F(ElasticPool, EachPartServesTheMaximumWhenAllIsFree)
{
  cudaStream_t foreign{};
  ASSERT_EQ(cudaStreamCreate(&foreign), cudaSuccess);
  rmm::tag const cache{"cache"};
  for (bool const cache_is_first : {true, false}) {
    for (rmm::cuda_stream_view const asking :
         {stream.view(), rmm::cuda_stream_view{foreign}, rmm::cuda_stream_legacy}) {
      elastic_pool_memory_resource pool{0, 64 * MiB};
      pool.set_pausable(cache);
      auto const allocate = [&](std::size_t bytes, bool for_cache) {
        rmm::tag_scope const scope{for_cache ? cache : rmm::tag{"rest"}};
        return pool.allocate(bytes, asking);
      };
      pool.deallocate(allocate(1000, cache_is_first), 1000, asking);
      pool.deallocate(allocate(64 * MiB, !cache_is_first), 64 * MiB, asking);
    }
  }
  EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
}

TEST_F(ElasticPool, APartResumesWithUnusedMemoryOfTheRestOnAFullDevice)
{
  elastic_pool_memory_resource pool;
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  void* kept{};
  {
    rmm::tag_scope const scope{cache};
    kept = pool.allocate(40 * MiB, stream);
  }
  fill(kept, 1, 40 * MiB);
  pool.pause(cache);
  ASSERT_TRUE(cudasim::occupy(0, free_on_device() - 64 * MiB));
  void* const other = pool.allocate(60 * MiB, stream);
  EXPECT_THROW(pool.resume(cache), rmm::out_of_memory);
  EXPECT_EQ(pool.mapped_bytes(), 60 * MiB);
  pool.deallocate(other, 60 * MiB, stream);
  pool.resume(cache);
  EXPECT_EQ(pool.mapped_bytes(), 64 * MiB);
  EXPECT_TRUE(holds(kept, 1, 40 * MiB));
  pool.deallocate(kept, 40 * MiB, stream);
}

TEST_F(ElasticPool, APartResumesWithUnusedMemoryOfTheRestNearTheMaximumOnANearlyFullDevice)
{
  elastic_pool_options options;
  options.maximum_bytes = 64 * MiB;
  elastic_pool_memory_resource pool{options};
  rmm::tag const cache{"cache"};
  pool.set_pausable(cache);
  void* kept{};
  {
    rmm::tag_scope const scope{cache};
    kept = pool.allocate(40 * MiB, stream);
  }
  fill(kept, 1, 40 * MiB);
  pool.pause(cache);
  void* const used = pool.allocate(20 * MiB, stream);
  pool.deallocate(pool.allocate(4 * MiB, stream), 4 * MiB, stream);
  stream.synchronize();
  ASSERT_EQ(pool.mapped_bytes(), 24 * MiB);
  ASSERT_TRUE(cudasim::occupy(0, free_on_device() - 38 * MiB));
  pool.resume(cache);
  EXPECT_EQ(pool.mapped_bytes(), 62 * MiB);
  EXPECT_TRUE(holds(kept, 1, 40 * MiB));
  pool.deallocate(kept, 40 * MiB, stream);
  pool.deallocate(used, 20 * MiB, stream);
}

TEST_F(ElasticPool, AResumeBreaksNoCaptureOfAnotherThread)
{
  for (auto const contents : {rmm::mr::paused_contents::kept_pageable, rmm::mr::paused_contents::kept_pinned}) {
    elastic_pool_memory_resource pool;
    void* const kept = pool.allocate(4 * MiB, stream);
    fill(kept, 1, 4 * MiB);
    pool.pause(contents);
    rmm::cuda_stream const capturing;
    ASSERT_EQ(cudaStreamBeginCapture(capturing.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
    std::thread{[&] { EXPECT_NO_THROW(pool.resume()); }}.join();
    cudaGraph_t graph{};
    ASSERT_EQ(cudaStreamEndCapture(capturing.value(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_TRUE(holds(kept, 1, 4 * MiB));
    pool.deallocate(kept, 4 * MiB, stream);
  }
}

TEST_F(ElasticPool, TheEndOfAPausedPoolBreaksNoCapture)
{
  std::optional<elastic_pool_memory_resource> pool{std::in_place};
  void* const kept = pool->allocate(4 * MiB, stream);
  fill(kept, 1, 4 * MiB);
  pool->pause(rmm::mr::paused_contents::kept_pinned);
  pool->deallocate(kept, 4 * MiB, stream);
  rmm::cuda_stream const capturing;
  ASSERT_EQ(cudaStreamBeginCapture(capturing.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread{[&] { pool.reset(); }}.join();
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(capturing.value(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(ElasticPool, ReleasingRetainedHostMemoryBreaksNoCapture)
{
  elastic_pool_memory_resource pool;
  pool.retain_host_memory();
  void* const kept = pool.allocate(256 * 1024, stream);
  fill(kept, 1, 256 * 1024);
  pool.pause(rmm::mr::paused_contents::kept_pinned);
  pool.resume();
  rmm::cuda_stream const capturing;
  ASSERT_EQ(cudaStreamBeginCapture(capturing.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  pool.retain_host_memory(false);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(capturing.value(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  pool.deallocate(kept, 256 * 1024, stream);
}

TEST_F(ElasticPool, APauseWorksAfterOneThatFailedWithRetainedHostMemory)
{
  for (auto const contents : {rmm::mr::paused_contents::kept_pageable, rmm::mr::paused_contents::kept_pinned}) {
    elastic_pool_memory_resource pool;
    pool.retain_host_memory();
    void* const kept = pool.allocate(4 * MiB, stream);
    fill(kept, 7, 4 * MiB);
    pool.pause(contents);
    pool.resume();
    cudasim::inject({"cudaMemcpyAsync", 1, cudaErrorUnknown, 1});
    EXPECT_ANY_THROW(pool.pause(contents));
    cudasim::clear_faults();
    pool.pause(contents);
    ASSERT_NE(pool.kept_contents(kept, 1), nullptr);
    EXPECT_EQ(*static_cast<char const*>(pool.kept_contents(kept, 1)), 7);
    pool.resume();
    pool.deallocate(kept, 4 * MiB, stream);
  }
}

TEST_F(ElasticPool, ARequestBeyondTheDeviceTakesNothing)
{
  elastic_pool_memory_resource pool;
  pool.set_recovery_order(rmm::recovery_order{rmm::recovery_rung::grow});
  auto const before = free_on_device();
  EXPECT_THROW(static_cast<void>(pool.allocate(before + MiB, stream)), rmm::out_of_memory);
  EXPECT_EQ(cudasim::calls("cuMemCreate"), 0U);
  EXPECT_EQ(free_on_device(), before);
  EXPECT_EQ(pool.mapped_bytes(), 0U);
}

TEST_F(ElasticPool, ACallbackThatPausesThePoolEndsTheAllocation)
{
  elastic_pool_memory_resource pool{0, 16 * MiB};
  void* const ptr = pool.allocate(16 * MiB, stream);
  pool.set_failure_callback([&](std::size_t, void*) {
    pool.pause();
    pool.deallocate(ptr, 16 * MiB, stream);
    return true;
  });
  EXPECT_THROW(static_cast<void>(pool.allocate(MiB, stream)), rmm::logic_error);
  pool.resume();
}

// --- several devices

TEST_F(ElasticPoolOnTwoDevices, WaitForThePoolsDeviceWhicheverIsCurrent)
{
  bool ran{};
  {
    elastic_pool_memory_resource pool{0, 16 * MiB};
    rmm::cuda_stream const worker;
    void* const used = pool.allocate(16 * MiB, worker);
    ASSERT_EQ(cudasim::launch(worker.value(), {}, {{used, 16 * MiB}}, [&] { ran = true; }), cudaSuccess);
    rmm::cuda_set_device_raii const elsewhere{rmm::cuda_device_id{1}};
    pool.pause(rmm::mr::paused_contents::dropped);
    EXPECT_TRUE(ran);
    pool.resume();
    pool.deallocate(used, 16 * MiB, worker);
  }
}

TEST_F(ElasticPoolOnTwoDevices, AreWaitedForWherePeersHaveAccess)
{
  elastic_pool_options options;
  options.peer_access = true;
  elastic_pool_memory_resource pool{options};
  void* const used = pool.allocate(MiB, rmm::cuda_stream_legacy);
  bool ran{};
  {
    rmm::cuda_set_device_raii const peer{rmm::cuda_device_id{1}};
    rmm::cuda_stream const worker;
    ASSERT_EQ(cudasim::launch(worker.value(), {}, {{used, MiB}}, [&] { ran = true; }), cudaSuccess);
    pool.pause(rmm::mr::paused_contents::dropped);
    EXPECT_TRUE(ran);
    pool.resume();
  }
  pool.deallocate(used, MiB, rmm::cuda_stream_legacy);
}

// --- sharing

[[nodiscard]] std::vector<int> numbers_of(rmm::mr::exported_descriptors const& exported)
{
  std::vector<int> numbers;
  for (auto const& each : exported.chunks) { numbers.push_back(each.get()); }
  return numbers;
}

TEST_F(ElasticPool, AnExportedBlockIsTheSameMemoryWhereItIsImported)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource pool{options};
  void* const before  = pool.allocate(MiB, stream);
  void* const shared  = pool.allocate(5 * MiB, stream);
  auto const exported = pool.export_descriptors(shared, 5 * MiB);
  EXPECT_EQ(exported.block.offset_bytes, MiB);
  EXPECT_EQ(exported.block.chunks(), exported.chunks.size());
  {
    rmm::mr::imported_memory const imported{pool.get_device(), exported.block, numbers_of(exported)};
    EXPECT_NE(imported.data(), shared);
    EXPECT_EQ(imported.size(), 5 * MiB);
    fill(shared, 7, 5 * MiB);
    EXPECT_TRUE(holds(imported.data(), 7, 5 * MiB));
    fill(imported.data(), 8, 5 * MiB);
    EXPECT_TRUE(holds(shared, 8, 5 * MiB));
  }
  pool.deallocate(shared, 5 * MiB, stream);
  pool.deallocate(before, MiB, stream);
}

TEST_F(ElasticPool, DescriptorsToImportCanBeWrittenOut)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource pool{options};
  void* const shared  = pool.allocate(MiB, stream);
  auto const exported = pool.export_descriptors(shared, MiB);
  ASSERT_EQ(exported.chunks.size(), 1U);
  {
    rmm::mr::imported_memory const imported{pool.get_device(), exported.block, {exported.chunks[0].get()}};
    fill(shared, 3, MiB);
    EXPECT_TRUE(holds(imported.data(), 3, MiB));
  }
  EXPECT_THROW((rmm::mr::imported_memory{pool.get_device(), exported.block, {}}), rmm::logic_error);
  pool.deallocate(shared, MiB, stream);
}

TEST_F(ElasticPool, ImportedMemoryStaysWhenItsPoolHasGone)
{
  std::optional<rmm::mr::imported_memory> imported;
  {
    elastic_pool_options options;
    options.share_descriptors = true;
    elastic_pool_memory_resource pool{options};
    void* const shared = pool.allocate(MiB, stream);
    fill(shared, 9, MiB);
    auto const exported = pool.export_descriptors(shared, MiB);
    imported.emplace(pool.get_device(), exported.block, numbers_of(exported));
    pool.deallocate(shared, MiB, stream);
  }
  EXPECT_TRUE(holds(imported->data(), 9, MiB));
}

TEST(SharedBlock, CountsTheChunksItTouches)
{
  using rmm::mr::shared_block;
  static_assert(shared_block{0, 0, MiB}.chunks() == 0);
  static_assert(shared_block{0, 1, MiB}.chunks() == 1);
  static_assert(shared_block{0, MiB, MiB}.chunks() == 1);
  static_assert(shared_block{1, MiB, MiB}.chunks() == 2);
  static_assert(shared_block{MiB - 1, 1, MiB}.chunks() == 1);
  static_assert(shared_block{MiB - 1, 2 + MiB, MiB}.chunks() == 3);
  static_assert(shared_block{MiB, 1, MiB}.chunks() == 0);  // a block begins in its first chunk, not behind it
  static_assert(shared_block{1, SIZE_MAX, MiB}.chunks() == SIZE_MAX / MiB + 1);
}

/// Expects that an allocation of `pool` fails with a text that begins with `begin`, and not because memory is missing.
void expect_refusal(elastic_pool_memory_resource& pool, std::string const& begin, std::string const& advice)
{
  try {
    static_cast<void>(pool.allocate(MiB));
    FAIL() << "was served";
  } catch (rmm::out_of_memory const& e) {
    FAIL() << e.what();
  } catch (rmm::bad_alloc const& e) {
    std::string const text{e.what()};
    EXPECT_EQ(text.find("std::bad_alloc: The driver refused to create shareable memory (" + begin), 0U) << text;
    EXPECT_NE(text.find("(2097152 bytes): CUDA_ERROR_NOT_PERMITTED"), std::string::npos) << text;
    EXPECT_NE(text.find("Make the pool without " + advice + ", or configure another"), std::string::npos) << text;
  }
}

TEST_F(ElasticPool,
       NamesARefusalOfMemoryForTheFabric)  // the simulator has none, as machines whose administrator grants none
{
  elastic_pool_options options;
  options.share_fabric = true;
  elastic_pool_memory_resource pool{options};
  expect_refusal(pool, "fabric handles): CUDA error in cuMemCreate", "share_fabric");
  options.share_descriptors = true;
  elastic_pool_memory_resource both{options};
  expect_refusal(both, "file descriptors and fabric handles)", "share_fabric");
  options.initial_bytes = 2 * MiB;
  EXPECT_THROW(elastic_pool_memory_resource{options}, rmm::bad_alloc);
}

TEST_F(ElasticPool, NamesARefusalOfMemoryForDescriptors)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource pool{options};
  cudasim::inject({"cuMemCreate", 1, cudaErrorNotPermitted, 1000});
  expect_refusal(pool, "file descriptors)", "share_descriptors");
  cudasim::clear_faults();
  cudasim::inject({"cuMemCreate", 1, cudaErrorMemoryAllocation, 1000});
  EXPECT_THROW(static_cast<void>(pool.allocate(MiB, stream)), rmm::out_of_memory);
  cudasim::clear_faults();
  pool.deallocate(pool.allocate(MiB, stream), MiB, stream);  // nothing was lost
}

TEST_F(ElasticPool, RefusesUnsupportedWaysToShare)
{
  elastic_pool_memory_resource pool;
  void* const ptr = pool.allocate(MiB, stream);
  EXPECT_THROW(static_cast<void>(pool.export_descriptors(ptr, MiB)), rmm::logic_error);  // lacks the option
  EXPECT_THROW(rmm::mr::exported_fabric const made = pool.export_fabric(ptr, MiB), rmm::logic_error);
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource sharing{options};
  EXPECT_THROW(static_cast<void>(sharing.export_descriptors(ptr, MiB)), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(sharing.export_descriptors(nullptr, MiB)), rmm::logic_error);
  void* const own = sharing.allocate(MiB, stream);
  EXPECT_THROW(static_cast<void>(sharing.export_descriptors(own, 0)), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(sharing.export_descriptors(own, 8 * MiB)), rmm::logic_error);
  sharing.pause();  // possible, because nothing was exported yet
  sharing.resume();
  auto const exported = sharing.export_descriptors(own, MiB);
  EXPECT_THROW((rmm::mr::imported_memory{sharing.get_device(), exported.block, std::vector<int>{}}), rmm::logic_error);
  EXPECT_THROW((rmm::mr::imported_memory{sharing.get_device(), {}, numbers_of(exported)}), rmm::logic_error);
  EXPECT_THROW((rmm::mr::imported_memory{sharing.get_device(), exported.block, std::vector<int>{-1}}),
               rmm::logic_error);
  sharing.deallocate(own, MiB, stream);
  pool.deallocate(ptr, MiB, stream);
}

TEST_F(ElasticPool, RefusesToExportMoreThanTheAddressesHave)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource pool{options};
  void* const first = pool.allocate(256, stream);
  void* const ptr   = pool.allocate(MiB, stream);
  ASSERT_NE(reinterpret_cast<std::uintptr_t>(ptr) % pool.chunk_bytes(), 0U);
  EXPECT_THROW(static_cast<void>(pool.export_descriptors(ptr, SIZE_MAX)), rmm::logic_error);
  EXPECT_THROW(static_cast<void>(pool.export_descriptors(ptr, SIZE_MAX - MiB)), rmm::logic_error);
  pool.deallocate(ptr, MiB, stream);
  pool.deallocate(first, 256, stream);
}

TEST_F(ElasticPool, CanBePausedAfterAnExportThatFailed)
{
  elastic_pool_options options;
  options.share_descriptors = true;
  elastic_pool_memory_resource pool{options};
  void* const ptr = pool.allocate(5 * MiB, stream);
  cudasim::inject({"cuMemExportToShareableHandle", 2, cudaErrorOperatingSystem, 1});
  EXPECT_THROW(static_cast<void>(pool.export_descriptors(ptr, 5 * MiB)), rmm::cuda_error);
  cudasim::clear_faults();
  EXPECT_NO_THROW(pool.pause());
  EXPECT_NO_THROW(pool.resume());
  auto const exported = pool.export_descriptors(ptr, 5 * MiB);
  EXPECT_THROW(pool.pause(), rmm::logic_error);
  pool.deallocate(ptr, 5 * MiB, stream);
}

// --- fragmentation

/// Returns the mean and the worst share of a bounded pool that is in use when an allocation fails.
std::pair<double, double> shares(double median, double largest, std::uint64_t seed, int rounds)
{
  constexpr std::size_t size = 16 * GiB;
  rmm::cuda_stream const stream;
  elastic_pool_memory_resource pool{size, size};
  std::mt19937_64 random{seed};
  std::lognormal_distribution<double> sizes{std::log(median), 2};
  std::vector<std::pair<void*, std::size_t>> live;
  std::size_t bytes{};
  double sum{};
  double worst{1};
  for (int round = 0; round != rounds; ++round) {
    try {
      for (;;) {
        auto const next = static_cast<std::size_t>(std::clamp(sizes(random), 1.0, largest));
        live.emplace_back(pool.allocate(next, stream), next);
        bytes += next;
      }
    } catch (rmm::out_of_memory const&) {}
    auto const share = static_cast<double>(bytes) / static_cast<double>(size);
    sum += share;
    worst = std::min(worst, share);
    std::shuffle(live.begin(), live.end(), random);
    for (auto left = live.size() / 2; live.size() > left;) {
      pool.deallocate(live.back().first, live.back().second, stream);
      bytes -= live.back().second;
      live.pop_back();
    }
  }
  for (auto const& [ptr, each] : live) { pool.deallocate(ptr, each, stream); }
  return {sum / rounds, worst};
}

struct ElasticPoolOf16GiB : Simulated {
  ElasticPoolOf16GiB()
  {
    auto machine         = cudasim::environment_options();
    machine.memory_bytes = 20 * GiB;
    start(machine);
  }
  void SetUp() override {}
};

TEST_F(ElasticPoolOf16GiB, FillsNearlyAllOfABoundWithLargeBlocks)
{
  auto const [mean, worst] = shares(4.0 * MiB, 2.0 * GiB, 1, 60);
  RecordProperty("mean", std::to_string(mean));
  RecordProperty("worst", std::to_string(worst));
  EXPECT_GE(mean, 0.96);
  EXPECT_GE(worst, 0.84);
}

TEST_F(ElasticPoolOf16GiB, FillsNearlyAllOfABoundWithSmallBlocks)
{
#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
  GTEST_SKIP() << "the invariants are checked at each step, with tens of thousands of ranges";
#endif
  auto const [mean, worst] = shares(64.0 * KiB, 256.0 * MiB, 1, 10);
  RecordProperty("mean", std::to_string(mean));
  RecordProperty("worst", std::to_string(worst));
  EXPECT_GE(mean, 0.98);
  EXPECT_GE(worst, 0.94);
}

}  // namespace
