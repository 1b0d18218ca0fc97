// SPDX-License-Identifier: Apache-2.0
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <set>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using rmm::cuda_stream_pool;

TEST(CudaStreamPool, HasSixteenStreamsByDefault)
{
  static_assert(cuda_stream_pool::default_size == 16);
  EXPECT_EQ(cuda_stream_pool{}.get_pool_size(), 16U);
}

TEST(CudaStreamPool, HasAsManyStreamsAsAskedFor)
{
  for (std::size_t size : {1U, 7U}) {
    cuda_stream_pool const pool{size};
    EXPECT_EQ(pool.get_pool_size(), size);
    std::set<cudaStream_t> streams;
    for (std::size_t i = 0; i < size; ++i) { streams.insert(pool.get_stream(i).value()); }
    EXPECT_EQ(streams.size(), size);
  }
}

TEST(CudaStreamPool, RefusesToBeEmpty) { EXPECT_THROW(cuda_stream_pool{0}, rmm::logic_error); }

TEST(CudaStreamPool, IsNeitherCopiedNorMovedNorMadeImplicitly)
{
  static_assert(!std::is_copy_constructible_v<cuda_stream_pool> && !std::is_move_constructible_v<cuda_stream_pool>);
  static_assert(!std::is_copy_assignable_v<cuda_stream_pool> && !std::is_move_assignable_v<cuda_stream_pool>);
  static_assert(!std::is_convertible_v<std::size_t, cuda_stream_pool>);
}

TEST(CudaStreamPool, HandsStreamsOutInTurnFromTheFirst)
{
  cuda_stream_pool const pool{3};
  for (std::size_t turn = 0; turn < 7; ++turn) { EXPECT_EQ(pool.get_stream(), pool.get_stream(turn % 3)) << turn; }
}

TEST(CudaStreamPool, SuccessiveStreamsDiffer)
{
  cuda_stream_pool const pool{2};
  auto const first  = pool.get_stream();
  auto const second = pool.get_stream();
  EXPECT_NE(first, second);
}

TEST(CudaStreamPool, TakesStreamNumbersModuloItsSize)
{
  cuda_stream_pool const pool{4};
  EXPECT_EQ(pool.get_stream(1), pool.get_stream(5));
  EXPECT_EQ(pool.get_stream(3), pool.get_stream(4003));
  EXPECT_NE(pool.get_stream(0), pool.get_stream(1));
}

TEST(CudaStreamPool, AskingForANumberTakesNoTurn)
{
  cuda_stream_pool const pool{3};
  static_cast<void>(pool.get_stream(2));
  EXPECT_EQ(pool.get_stream(), pool.get_stream(0));
}

TEST(CudaStreamPool, HasNoDefaultStreams)
{
  cuda_stream_pool const pool{};
  for (std::size_t i = 0; i < pool.get_pool_size(); ++i) {
    EXPECT_FALSE(pool.get_stream(i).is_default());
    EXPECT_FALSE(pool.get_stream(i).is_per_thread_default());
  }
}

TEST(CudaStreamPool, AppliesItsFlagsToEveryStream)
{
  cuda_stream_pool const pool{3, rmm::cuda_stream::flags::non_blocking};
  for (std::size_t i = 0; i < 3; ++i) {
    unsigned flags{};
    ASSERT_EQ(cudaStreamGetFlags(pool.get_stream(i), &flags), cudaSuccess);
    EXPECT_EQ(flags, cudaStreamNonBlocking);
  }
  unsigned flags{};
  cuda_stream_pool const blocking{1};
  ASSERT_EQ(cudaStreamGetFlags(blocking.get_stream(), &flags), cudaSuccess);
  EXPECT_EQ(flags, cudaStreamDefault);
}

TEST(CudaStreamPool, StreamsCanBeUsed)
{
  cuda_stream_pool const pool{2};
  auto const stream = pool.get_stream();
  void* memory{};
  ASSERT_EQ(cudaMalloc(&memory, 1024), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 1024, stream), cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST(CudaStreamPool, GivesEveryStreamItsTurnsUnderConcurrentUse)
{
  constexpr std::size_t size{4};
  constexpr std::size_t threads{4};
  constexpr std::size_t turns{1000};
  cuda_stream_pool const pool{size};

  std::vector<std::map<cudaStream_t, std::size_t>> seen(threads);
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&pool, &counts = seen[i]] {
      for (std::size_t turn = 0; turn < turns; ++turn) { ++counts[pool.get_stream().value()]; }
    });
  }
  for (auto& worker : workers) { worker.join(); }

  std::map<cudaStream_t, std::size_t> total;
  for (auto const& counts : seen) {
    for (auto const& [stream, count] : counts) { total[stream] += count; }
  }
  EXPECT_EQ(total.size(), size);
  for (auto const& [stream, count] : total) { EXPECT_EQ(count, threads * turns / size) << stream; }
}

}  // namespace
