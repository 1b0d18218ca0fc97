// SPDX-License-Identifier: Apache-2.0
//
// The front cache under the ordering checker. Blocks go back to upstream, and from there to others, while streams still work.

#include "../../support/random_program.hpp"
#include "../../support/seeds.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::mr::cached_memory_resource;
using rmm::mr::cuda_async_memory_resource;
using rmm::mr::cuda_memory_resource;
using rmm::test::for_each_seed;
using rmm::test::memory_source;
using rmm::test::random_program;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

/// A cache that is trimmed at random, over an upstream that another program uses, too.
template <class Upstream>
class trimmed_cache final : public memory_source {
 public:
  trimmed_cache(std::optional<std::size_t> maximum, std::size_t block) : cache_{&upstream_, 0, maximum, block} {}

  [[nodiscard]] void* allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    try {
      return cache_.allocate(bytes, stream);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  void deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) noexcept override
  {
    cache_.deallocate(ptr, bytes, stream);
  }

  void check(std::size_t live, bool) override
  {
    auto const now = cache_.figures();
    EXPECT_EQ(now.live_bytes, live);
    EXPECT_EQ(now.live_bytes + now.free_bytes, now.reserved_bytes);
    EXPECT_EQ(now.reserved_bytes, cache_.pool_size());
  }

  void check_refusal(std::size_t bytes) override { EXPECT_LT(cache_.figures().largest_free_bytes, bytes); }

  void rearrange(std::mt19937_64& random) override
  {
    auto const before = cache_.pool_size();
    auto const keep   = random() % 3 == 0 ? 0 : before / 2;
    cache_.trim_to(keep);
    given_back_ += before - cache_.pool_size();
  }

  [[nodiscard]] std::size_t given_back() const noexcept { return given_back_; }

 private:
  Upstream upstream_;
  cached_memory_resource<Upstream> cache_;
  std::size_t given_back_{};
};

struct CachedOrdering : Stepped {
  /// Runs random programs. Returns how many bytes went back to upstream before their ends.
  template <class Upstream>
  static std::size_t run(std::uint64_t programs,
                         random_program::options how,
                         std::optional<std::size_t> maximum,
                         std::size_t block,
                         int devices = 1)
  {
    std::size_t given_back{0};
    how.rearranges = true;
    for_each_seed(programs, [&](std::uint64_t seed) {
      begin(seed, devices);
      std::vector<std::unique_ptr<memory_source>> sources;
      for (int device = 0; device < devices; ++device) {
        EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
        sources.push_back(std::make_unique<trimmed_cache<Upstream>>(maximum, block));
      }
      EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
      random_program program{seed, how, std::move(sources)};
      program.run();
      program.for_each_source([&](memory_source& source, std::size_t) {
        given_back += static_cast<trimmed_cache<Upstream>&>(source).given_back();
      });
    });
    return given_back;
  }
};

TEST_F(CachedOrdering, HoldsOverTheDriversPool)
{
  random_program::options how;
  EXPECT_GT(run<cuda_async_memory_resource>(30, how, std::nullopt, 256 * KiB), 0U);
}

TEST_F(CachedOrdering, HoldsForLargeBlocksOverTheDriversPool)
{
  random_program::options how;
  how.threads   = 3;
  how.largest   = 6 * MiB;
  how.most_live = 60;
  EXPECT_GT(run<cuda_async_memory_resource>(20, how, 48 * MiB, MiB), 0U);
}

TEST_F(CachedOrdering, HoldsOverAnUpstreamWithoutStreams)
{
  random_program::options how;
  how.threads = 3;
  EXPECT_GT(run<cuda_memory_resource>(20, how, 3 * MiB, 128 * KiB), 0U);
}

TEST_F(CachedOrdering, HoldsOnSeveralDevices)
{
  random_program::options how;
  how.streams = 2;
  EXPECT_GT(run<cuda_async_memory_resource>(15, how, 4 * MiB, 256 * KiB, 2), 0U);
}

TEST_F(CachedOrdering, HoldsWhenCallsOfTheRuntimeFail)
{
  random_program::options how;
  how.largest = 300 * KiB;
  random_program::let_the_runtime_fail(how);
  EXPECT_GT(run<cuda_memory_resource>(20, how, 8 * MiB, 128 * KiB), 0U);
}

struct CachedMemorySim : Stepped {
  void SetUp() override
  {
    Stepped::SetUp();
    begin(1);
  }
};

TEST_F(CachedMemorySim, BlocksThatOnlyNeedAnEventGoBackForALargerRequest)
{
  rmm::mr::cuda_async_memory_resource upstream;
  cached_memory_resource<rmm::mr::cuda_async_memory_resource> cache{&upstream, 0, 4 * MiB, MiB};
  struct use {
    cudaStream_t ends{};
    void* first{};
    void* rest{};
  };
  std::vector<use> uses(4);
  for (auto& [ends, first, rest] : uses) {  // each pair fills a block
    ASSERT_EQ(cudaStreamCreateWithFlags(&ends, cudaStreamNonBlocking), cudaSuccess);
    rest  = cache.allocate(MiB - KiB, rmm::cuda_stream_view{ends});
    first = cache.allocate(KiB, rmm::cuda_stream_view{ends});
  }
  for (auto const& [ends, first, rest] : uses) {
    cache.deallocate(rest, MiB - KiB, rmm::cuda_stream_view{ends});
    cache.deallocate(first, KiB, rmm::cuda_stream_view{ends});  // the second free gets no event
    ASSERT_EQ(cudaStreamDestroy(ends), cudaSuccess);
  }
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  void* const large = cache.allocate(3 * MiB, stream);
  cache.deallocate(large, 3 * MiB, stream);
}

TEST_F(CachedMemorySim, TrimmedMemoryGoesBackToTheDevice)
{
  cuda_async_memory_resource async;
  cached_memory_resource cache{&async};
  rmm::cuda_stream const stream;
  void* const ptr = cache.allocate(100 * MiB, stream);
  EXPECT_GE(cudasim::usage(0).reserved_by_pools, 100 * MiB);
  ASSERT_EQ(cudasim::launch(stream.value(), {}, {{ptr, 100 * MiB}}), cudaSuccess);
  cache.deallocate(ptr, 100 * MiB, stream);
  EXPECT_GE(cache.trim_to(0), 100 * MiB);
  EXPECT_EQ(cudasim::usage(0).reserved_by_pools, 0U);
}

TEST_F(CachedMemorySim, TrimWaitsForNoOtherWork)
{
  cuda_async_memory_resource async;
  cached_memory_resource cache{&async, 0, std::nullopt, MiB};
  rmm::cuda_stream const done;
  rmm::cuda_stream const busy{rmm::cuda_stream::flags::non_blocking};
  void* const large = cache.allocate(8 * MiB, done);  // too large for the caches, so its free gets an event
  cache.deallocate(large, 8 * MiB, done);
  cudasim::hold(busy.value());
  ASSERT_EQ(cudasim::launch(busy.value(), {}, {}), cudaSuccess);
  EXPECT_GE(cache.trim_to(0), 8 * MiB);
  EXPECT_EQ(cudasim::pending(busy.value()), 1U);
  cudasim::let_go(busy.value());
}

TEST_F(CachedMemorySim, ATrimBreaksNoCapture)
{
  cuda_async_memory_resource async;
  cached_memory_resource cache{&async, 0, std::nullopt, MiB};
  rmm::cuda_stream const stream;
  rmm::cuda_stream const capturing;
  void* const large = cache.allocate(8 * MiB, stream);
  cache.deallocate(cache.allocate(1000, stream), 1000, stream);  // stays unfenced
  cache.deallocate(large, 8 * MiB, stream);
  ASSERT_EQ(cudaStreamBeginCapture(capturing.value(), cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_GE(cache.trim_to(0), 8 * MiB);
  cudaGraph_t graph{};
  ASSERT_EQ(cudaStreamEndCapture(capturing.value(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CachedMemorySim, ABlockThatMakesRoomGoesBackInTheOrderOfTheStream)
{
  cuda_async_memory_resource async;
  cached_memory_resource cache{&async, 0, 10 * MiB, MiB};
  rmm::cuda_stream const first;
  rmm::cuda_stream const second;
  void* const small = cache.allocate(6 * MiB, first);
  ASSERT_EQ(cudasim::launch(first.value(), {}, {{small, 6 * MiB}}), cudaSuccess);
  cache.deallocate(small, 6 * MiB, first);
  auto const syncs  = cudasim::calls("cudaDeviceSynchronize") + cudasim::calls("cudaStreamSynchronize");
  void* const large = cache.allocate(8 * MiB, second);
  ASSERT_EQ(cudasim::launch(second.value(), {}, {{large, 8 * MiB}}), cudaSuccess);
  EXPECT_EQ(cudasim::calls("cudaDeviceSynchronize") + cudasim::calls("cudaStreamSynchronize"), syncs);
  EXPECT_EQ(cache.pool_size(), 8 * MiB);
  cache.deallocate(large, 8 * MiB, second);
}

/// A cache with one large block. The kernel of the stream that freed it still runs, and another stream needs more memory.
struct CachedMiss : CachedMemorySim {
  void SetUp() override
  {
    CachedMemorySim::SetUp();
    busy.emplace(rmm::cuda_stream::flags::non_blocking);
    other.emplace(rmm::cuda_stream::flags::non_blocking);
    async.emplace();
    cache.emplace(&*async, 0, std::nullopt, MiB);
    void* const large = cache->allocate(8 * MiB, *busy);
    cudasim::hold(busy->value());
    ASSERT_EQ(cudasim::launch(busy->value(), {}, {{large, 8 * MiB}}), cudaSuccess);
    cache->deallocate(large, 8 * MiB, *busy);
    waits = cudasim::calls("cudaStreamWaitEvent");
  }

  void TearDown() override
  {
    cudasim::let_go(busy->value());
    cache.reset();
    async.reset();
    busy.reset();
    other.reset();
    CachedMemorySim::TearDown();
  }

  /// Allocates on the other stream and writes to the block.
  [[nodiscard]] void* ask(std::size_t bytes)
  {
    void* const ptr = cache->allocate(bytes, *other);
    EXPECT_EQ(cudasim::launch(other->value(), {}, {{ptr, bytes}}), cudaSuccess);
    return ptr;
  }

  std::optional<rmm::cuda_stream> busy;
  std::optional<rmm::cuda_stream> other;
  std::optional<cuda_async_memory_resource> async;
  std::optional<cached_memory_resource<cuda_async_memory_resource>> cache;
  std::uint64_t waits{};
};

TEST_F(CachedMiss, WaitsForNoOtherStream)
{
  for (std::size_t const bytes : {10 * MiB, 12 * MiB, 20 * MiB}) {
    void* const ptr = ask(bytes);
    cudasim::run_until_idle();
    EXPECT_EQ(cudasim::pending(other->value()), 0U) << bytes << " bytes: waits for a kernel that it does not know";
    EXPECT_EQ(cudasim::calls("cudaStreamWaitEvent"), waits) << bytes << " bytes";
    cache->deallocate(ptr, bytes, *other);
  }
  EXPECT_GT(cudasim::pending(busy->value()), 0U);
}

TEST_F(CachedMiss, GivesUnusedLargeBlocksBack)
{
  void* const first = ask(10 * MiB);
  EXPECT_EQ(cache->pool_size(), 18 * MiB);
  cudasim::let_go(busy->value());
  busy->synchronize();
  void* const second = ask(12 * MiB);
  EXPECT_EQ(cache->pool_size(), 22 * MiB);
  EXPECT_EQ(cudasim::calls("cudaStreamWaitEvent"), waits);
  cache->deallocate(first, 10 * MiB, *other);
  cache->deallocate(second, 12 * MiB, *other);
}

TEST_F(CachedMiss, WaitsIfUpstreamHasNoMoreMemory)
{
  ASSERT_TRUE(cudasim::occupy(0, cudasim::usage(0).free));
  auto const all  = cudasim::usage(0).reserved_by_pools;
  void* const ptr = ask(all - 4 * MiB);  // possible only if the large block goes back
  EXPECT_EQ(cache->pool_size(), all - 4 * MiB);
  EXPECT_GT(cudasim::calls("cudaStreamWaitEvent"), waits);
  cudasim::run_until_idle();
  EXPECT_GT(cudasim::pending(other->value()), 0U);
  cache->deallocate(ptr, all - 4 * MiB, *other);
}

TEST_F(CachedMemorySim, ATrimThatFailsLosesNothing)
{
  rmm::cuda_stream const stream;
  auto const before = cudasim::leak_report();
  for (auto const* const call : {"cudaStreamCreateWithFlags",
                                 "cudaStreamWaitEvent",
                                 "cudaEventQuery",
                                 "cudaMemPoolTrimTo",
                                 "cudaMemPoolGetAttribute",
                                 "cudaDeviceSynchronize"}) {
    cudasim::for_each_fault(
      [&] {
        cuda_async_memory_resource async;
        cached_memory_resource cache{&async};
        cache.deallocate(cache.allocate(MiB, stream), MiB, stream);
        cache.deallocate(cache.allocate(100 * MiB, stream), 100 * MiB, stream);
        cache.trim_to(0);
        cudasim::clear_faults();
        auto const now = cache.figures();
        EXPECT_EQ(now.live_bytes, 0U) << call;
        EXPECT_EQ(now.free_bytes, now.reserved_bytes) << call;
        cache.release_unused();
        EXPECT_EQ(cache.pool_size(), 0U) << call;
      },
      [&](auto n) { EXPECT_EQ(cudasim::leak_report(), before) << call << " " << n; },
      cudaErrorUnknown,
      call);
  }
}

TEST_F(CachedMemorySim, SharesTheDriversPoolWithOthersOfTheProgram)
{
  auto machine         = cudasim::environment_options();
  machine.memory_bytes = 64 * MiB;
  cudasim::reset(machine);
  cuda_async_memory_resource async;
  cached_memory_resource cache{&async};
  rmm::cuda_stream const stream;
  auto const peak = 44 * MiB;  // more than half of the device's memory
  for (int round = 0; round < 3; ++round) {
    void* const ours = cache.allocate(peak, stream);
    cache.deallocate(ours, peak, stream);
    cache.release_unused();
    void* const theirs = async.allocate(peak, stream);
    async.deallocate(theirs, peak, stream);
  }
}

struct CachedThreads : Simulated {};

TEST_F(CachedThreads, TrimsBesideThreadsThatAllocate)
{
  cuda_async_memory_resource async;
  {
    cached_memory_resource cache{&async, 0, std::nullopt, MiB};
    std::atomic<int> working{3};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        rmm::cuda_stream const stream;
        std::mt19937 random{i};
        std::vector<std::pair<void*, std::size_t>> live;
        for (int step = 0; step < 2000; ++step) {
          std::size_t const bytes = random() % 8 == 0 ? random() % (4 * MiB) : random() % 2000;
          live.emplace_back(cache.allocate(bytes + 1, stream), bytes + 1);
          EXPECT_EQ(cudaMemsetAsync(live.back().first, 1, bytes + 1, stream.value()), cudaSuccess);
          if (live.size() > 20 || step == 1999) {
            for (auto const& [ptr, size] : live) { cache.deallocate(ptr, size, stream); }
            live.clear();
          }
        }
        --working;
      });
    }
    std::size_t trims = 0;
    do {  // at least once, because the threads may have ended before this one runs again
      cache.trim_to(trims % 2 == 0 ? 0 : 4 * MiB);
      ++trims;
    } while (working != 0);
    for (auto& thread : threads) { thread.join(); }
    EXPECT_EQ(cache.figures().live_bytes, 0U);
  }
}

}  // namespace
