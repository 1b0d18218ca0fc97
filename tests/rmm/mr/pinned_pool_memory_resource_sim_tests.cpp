// SPDX-License-Identifier: Apache-2.0
#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/registered_host_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using rmm::mr::pinned_memory_options;
using rmm::mr::pinned_pool_memory_resource;
using rmm::mr::registered_host_memory_resource;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

pinned_memory_options with_pageable()
{
  pinned_memory_options options;
  options.allow_pageable = true;
  return options;
}

/// Makes the next `count` attempts to lock memory fail, by either way.
void refuse_to_lock(std::uint64_t count = std::numeric_limits<std::uint64_t>::max() / 2)
{
  cudasim::inject({"cudaHostRegister", 1, cudaErrorMemoryAllocation, count});
  cudasim::inject({"cudaHostAlloc", 1, cudaErrorMemoryAllocation, count});
}

std::vector<std::string> warnings;

struct PinnedPoolMemory : Simulated {
  void SetUp() override
  {
    Simulated::SetUp();
    warnings.clear();
    rmm::detail::log_hook.store([](rmm::detail::log_level level, char const* message) noexcept {
      if (level == rmm::detail::log_level::warn) { warnings.emplace_back(message); }
    });
  }
  void TearDown() override
  {
    rmm::detail::log_hook.store(nullptr);
    Simulated::TearDown();
  }
};

TEST_F(PinnedPoolMemory, GivesUnusedBlocksBack)
{
  pinned_pool_memory_resource pool{2 * mebibyte};
  void* const kept = pool.allocate(mebibyte);
  void* const more = pool.allocate(4 * mebibyte);
  pool.deallocate(more, 4 * mebibyte);
  auto const held = pool.pool_size();
  EXPECT_GE(held, 6 * mebibyte);

  rmm::mr::trimmable_resource& trimmable = pool;
  EXPECT_EQ(trimmable.trim_to(held), 0U);
  EXPECT_EQ(trimmable.release_unused(), held - 2 * mebibyte);
  EXPECT_EQ(pool.pool_size(), 2 * mebibyte);
  pool.deallocate(kept, mebibyte);
  EXPECT_EQ(pool.trim_to(0), 2 * mebibyte);
  EXPECT_EQ(cudasim::calls("cudaHostUnregister"), 2U);

  pool.deallocate(pool.allocate(1000), 1000);  // the pool stays usable
}

TEST_F(PinnedPoolMemory, GivesBlocksOfOddSizesBack)
{
  pinned_pool_memory_resource pool{0, 4 * mebibyte + 256};
  pool.deallocate(pool.allocate(1000), 1000);
  ASSERT_EQ(pool.pool_size(), 2 * mebibyte + 128);
  EXPECT_EQ(pool.trim_to(0), 2 * mebibyte + 128);
  EXPECT_EQ(pool.pool_size(), 0U);
}

TEST_F(PinnedPoolMemory, WaitsForTheCopiesOfABlockBeforeItGivesItBack)
{
  pinned_pool_memory_resource pool{2 * mebibyte};
  rmm::cuda_stream const stream;
  auto* const ptr = static_cast<char*>(pool.allocate(mebibyte, stream));
  char seen{};
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {{ptr, mebibyte}}, [=, &seen] { seen = ptr[5] = 7; }), cudaSuccess);
  pool.deallocate(ptr, mebibyte, stream);
  EXPECT_EQ(pool.trim_to(0), 2 * mebibyte);
  EXPECT_EQ(seen, 7);
}

TEST_F(PinnedPoolMemory, TrimsBesideThreadsThatAllocate)
{
  pinned_pool_memory_resource pool{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      rmm::cuda_stream const stream;
      for (int round = 0; round < 30; ++round) {
        void* const ptr = pool.allocate(mebibyte, stream);
        EXPECT_EQ(cudaMemsetAsync(ptr, 1, mebibyte, stream.value()), cudaSuccess);
        pool.deallocate(ptr, mebibyte, stream);
      }
    });
  }
  for (int round = 0; round < 30; ++round) { pool.trim_to(0); }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(pool.figures().live_bytes, 0U);
}

TEST_F(PinnedPoolMemory, FailsIfNothingCanBeLockedByDefault)
{
  pinned_pool_memory_resource pool{0};
  refuse_to_lock();
  EXPECT_THROW(pool.allocate(mebibyte), rmm::out_of_memory);
  EXPECT_THROW(pinned_pool_memory_resource{mebibyte}, rmm::out_of_memory);
  EXPECT_EQ(pool.pageable_bytes(), 0U);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(PinnedPoolMemory, TakesPageableMemoryAndReportsIt)
{
  pinned_pool_memory_resource pool{mebibyte, {}, with_pageable()};
  void* const locked = pool.allocate(mebibyte);
  EXPECT_EQ(pool.pageable_bytes(), 0U);

  refuse_to_lock();
  auto* const ptr = static_cast<char*>(pool.allocate(3 * mebibyte));
  EXPECT_EQ(pool.pageable_bytes(), 3 * mebibyte);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "No more host memory can be locked: a block of 3.000000 MiB is pageable");
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, ptr), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);

  rmm::cuda_stream const stream;
  std::vector<char> const text(3 * mebibyte, 'x');
  void* device{};
  ASSERT_EQ(cudaMalloc(&device, text.size()), cudaSuccess);
  std::memcpy(ptr, text.data(), text.size());
  ASSERT_EQ(cudaMemcpyAsync(device, ptr, text.size(), cudaMemcpyDefault, stream.value()), cudaSuccess);
  std::memset(ptr, 0, text.size());
  ASSERT_EQ(cudaMemcpyAsync(ptr, device, text.size(), cudaMemcpyDefault, stream.value()), cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(std::memcmp(ptr, text.data(), text.size()), 0);
  ASSERT_EQ(cudaFree(device), cudaSuccess);

  pool.deallocate(ptr, text.size(), stream);
  pool.deallocate(locked, mebibyte);
  EXPECT_EQ(pool.trim_to(0), 4 * mebibyte);
  EXPECT_EQ(pool.pageable_bytes(), 0U);
}

TEST_F(PinnedPoolMemory, PrefersASmallLockedBlockToALargePageableOne)
{
  pinned_pool_memory_resource pool{8 * mebibyte, {}, with_pageable()};
  void* const all = pool.allocate(8 * mebibyte);
  refuse_to_lock(2);  // the attempts with 8 MiB and 4 MiB fail
  void* const one = pool.allocate(mebibyte);
  EXPECT_EQ(pool.pageable_bytes(), 0U);
  EXPECT_EQ(pool.pool_size(), 10 * mebibyte);
  pool.deallocate(one, mebibyte);
  pool.deallocate(all, 8 * mebibyte);
}

TEST_F(PinnedPoolMemory, LocksMemoryAgainWhenPossible)
{
  pinned_pool_memory_resource pool{0, {}, with_pageable()};
  refuse_to_lock();
  pool.deallocate(pool.allocate(mebibyte), mebibyte);
  EXPECT_EQ(pool.pageable_bytes(), mebibyte);
  cudasim::clear_faults();
  pool.trim_to(0);
  pool.deallocate(pool.allocate(mebibyte), mebibyte);
  EXPECT_EQ(pool.pageable_bytes(), 0U);
  EXPECT_EQ(warnings.size(), 1U);
}

TEST_F(PinnedPoolMemory, BeginsWithPageableMemoryIfAllowed)
{
  refuse_to_lock();
  for (auto const bytes : {std::size_t{256}, mebibyte}) {
    pinned_pool_memory_resource pool{bytes, bytes, with_pageable()};
    EXPECT_EQ(pool.pageable_bytes(), bytes);
    std::memset(pool.allocate(256), 1, 256);
  }
}

TEST_F(PinnedPoolMemory, KeepsItsMaximumWithPageableMemory)
{
  pinned_pool_memory_resource pool{0, 2 * mebibyte, with_pageable()};
  refuse_to_lock();
  void* const ptr = pool.allocate(2 * mebibyte);
  EXPECT_THROW(pool.allocate(256), rmm::out_of_memory);
  EXPECT_THROW(pool.allocate(3 * mebibyte), rmm::out_of_memory);
  EXPECT_EQ(pool.pageable_bytes(), 2 * mebibyte);
  pool.deallocate(ptr, 2 * mebibyte);
}

TEST_F(PinnedPoolMemory, DoesNotTakeMorePageableMemoryThanTheHostHas)
{
  pinned_pool_memory_resource pool{0, {}, with_pageable()};
  EXPECT_THROW(pool.allocate(std::size_t{1} << 45U), rmm::out_of_memory);
  EXPECT_THROW(pool.allocate(std::numeric_limits<std::size_t>::max()), rmm::out_of_memory);
  EXPECT_EQ(pool.pageable_bytes(), 0U);
}

TEST_F(PinnedPoolMemory, LeavesNothingBehindAfterACallThatFails)
{
  auto const failures = cudasim::for_each_fault(
    [&] {
      try {
        pinned_pool_memory_resource pool{2 * mebibyte, {}, with_pageable()};
        void* const ptr = pool.allocate(3 * mebibyte);
        cudasim::clear_faults();  // calls that free something must not fail
        std::memset(ptr, 1, 3 * mebibyte);
        pool.deallocate(ptr, 3 * mebibyte);
      } catch (std::bad_alloc const&) {}
    },
    [](auto call) {
      EXPECT_EQ(cudasim::leak_report(), "") << call;
      EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << call;
    });
  EXPECT_GE(failures, 3U);
}

TEST_F(PinnedPoolMemory, IsAllowedPageableMemoryByTheConfiguration)
{
  rmm::mr::configured_resource const resource{"pinned_pool,initial=1MiB,pageable"};
  auto* const pool = resource.find<pinned_pool_memory_resource>();
  ASSERT_NE(pool, nullptr);
  refuse_to_lock();
  pool->deallocate(pool->allocate(2 * mebibyte), 2 * mebibyte);
  EXPECT_GE(pool->pageable_bytes(), 2 * mebibyte);
}

TEST_F(PinnedPoolMemory, UpstreamsThatAllowPageableMemoryEqualThemselvesOnly)
{
  registered_host_memory_resource const first{with_pageable()};
  registered_host_memory_resource const second{with_pageable()};
  registered_host_memory_resource const locked;
  EXPECT_TRUE(first == first);
  EXPECT_FALSE(first == second);
  EXPECT_FALSE(first == locked);
  EXPECT_FALSE(locked == first);
}

TEST_F(PinnedPoolMemory, UpstreamDoesNotAllocatePageableMemoryByItself)
{
  registered_host_memory_resource resource{with_pageable()};
  refuse_to_lock();
  EXPECT_THROW(resource.allocate(mebibyte), rmm::out_of_memory);
  void* const ptr = resource.allocate_pageable(1000);
  EXPECT_EQ(resource.pageable_bytes(), 1000U);
  resource.deallocate(ptr, 1000);
  EXPECT_EQ(resource.pageable_bytes(), 0U);
  EXPECT_THROW(static_cast<void>(registered_host_memory_resource{}.allocate_pageable(1000)), rmm::out_of_memory);
  cudasim::clear_faults();
  for (auto const bytes : {std::size_t{1}, mebibyte}) { resource.deallocate(resource.allocate(bytes), bytes); }
}

}  // namespace
