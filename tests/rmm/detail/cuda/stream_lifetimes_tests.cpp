// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/cuda/stream_lifetimes.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::detail::known_streams;
using rmm::detail::stream_end_listener;
using rmm::detail::stream_lifetimes;

cudaStream_t handle(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(4096 * number); }

/// A listener that records the streams that end.
struct ear : stream_end_listener {
  ear() { stream_ends = heard; }

  static void heard(stream_end_listener& self, cudaStream_t stream) noexcept
  {
    static_cast<ear&>(self).ended.push_back(stream);
  }

  std::vector<cudaStream_t> ended;
};

TEST(StreamLifetimes, KnowsAStreamFromBeginToEnd)
{
  stream_lifetimes lifetimes;
  EXPECT_FALSE(lifetimes.is_known(handle(1)));
  lifetimes.begin(handle(1));
  lifetimes.begin(handle(2));
  EXPECT_TRUE(lifetimes.is_known(handle(1)));
  lifetimes.end(handle(1));
  EXPECT_FALSE(lifetimes.is_known(handle(1)));
  EXPECT_TRUE(lifetimes.is_known(handle(2)));
}

TEST(StreamLifetimes, CountsEnds)
{
  stream_lifetimes lifetimes;
  auto const& ends  = lifetimes.ends();
  auto const before = ends.load();
  lifetimes.begin(handle(1));
  EXPECT_EQ(ends.load(), before);
  lifetimes.end(handle(1));
  EXPECT_EQ(ends.load(), before + 1);
}

TEST(StreamLifetimes, IgnoresUnknownHandles)
{
  stream_lifetimes lifetimes;
  ear listener;
  lifetimes.add(listener);
  lifetimes.end(handle(1));
  EXPECT_EQ(lifetimes.ends().load(), 0U);
  EXPECT_TRUE(listener.ended.empty());
}

TEST(StreamLifetimes, TellsAllListenersOfAnEnd)
{
  stream_lifetimes lifetimes;
  ear first;
  ear second;
  lifetimes.add(first);
  lifetimes.add(second);
  lifetimes.begin(handle(1));
  lifetimes.begin(handle(2));
  lifetimes.end(handle(2));
  EXPECT_EQ(first.ended, std::vector<cudaStream_t>{handle(2)});
  EXPECT_EQ(second.ended, std::vector<cudaStream_t>{handle(2)});
}

TEST(StreamLifetimes, ListenersHearBeforeTheHandleCanBeRecycled)
{
  stream_lifetimes lifetimes;
  struct checks : stream_end_listener {
    stream_lifetimes* lifetimes{};
    std::uint64_t seen{99};
  } listener;
  listener.lifetimes   = &lifetimes;
  listener.stream_ends = [](stream_end_listener& self, cudaStream_t) noexcept {
    auto& me = static_cast<checks&>(self);
    me.seen  = me.lifetimes->ends().load();
  };
  lifetimes.add(listener);
  lifetimes.begin(handle(1));
  lifetimes.end(handle(1));
  EXPECT_EQ(listener.seen, 0U);
}

TEST(StreamLifetimes, AListenerThatIsRemovedHearsNoMore)
{
  stream_lifetimes lifetimes;
  ear stays;
  ear goes;
  lifetimes.add(stays);
  lifetimes.add(goes);
  lifetimes.remove(goes);
  lifetimes.begin(handle(1));
  lifetimes.end(handle(1));
  EXPECT_TRUE(goes.ended.empty());
  EXPECT_EQ(stays.ended.size(), 1U);
  lifetimes.remove(goes);  // has no effect
}

TEST(StreamLifetimes, ARecycledHandleIsKnownAgain)
{
  stream_lifetimes lifetimes;
  for (std::uint64_t i = 0; i < 10; ++i) {
    lifetimes.begin(handle(1));
    EXPECT_TRUE(lifetimes.is_known(handle(1)));
    lifetimes.end(handle(1));
    EXPECT_EQ(lifetimes.ends().load(), i + 1);
  }
}

TEST(StreamLifetimes, ManyThreadsMayUseIt)
{
  stream_lifetimes lifetimes;
  ear listener;
  lifetimes.add(listener);
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&lifetimes, t] {
      for (int i = 0; i < 500; ++i) {
        lifetimes.begin(handle(t));
        EXPECT_TRUE(lifetimes.is_known(handle(t)));
        lifetimes.end(handle(t));
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(lifetimes.ends().load(), 2000U);
  EXPECT_EQ(listener.ended.size(), 2000U);
}

TEST(StreamLifetimes, AreOneObjectPerProcess)
{
  auto* const here = &known_streams();
  stream_lifetimes* there{};
  std::thread{[&] { there = &known_streams(); }}.join();
  EXPECT_EQ(here, there);
}

TEST(StreamLifetimes, IncludeStreamsOfTheLibrary)
{
  auto const& ends = known_streams().ends();
  std::optional<rmm::cuda_stream> stream{std::in_place};
  auto const made   = stream->value();
  auto const before = ends.load();
  EXPECT_TRUE(known_streams().is_known(made));
  rmm::cuda_stream moved{std::move(*stream)};
  stream.reset();
  EXPECT_EQ(ends.load(), before);
  moved = rmm::cuda_stream{};  // ends the first stream
  EXPECT_EQ(ends.load(), before + 1);
}

TEST(StreamLifetimes, IncludeStreamsOfAPool)
{
  auto const before = known_streams().ends().load();
  {
    rmm::cuda_stream_pool const pool{3};
    for (std::size_t i = 0; i < 3; ++i) { EXPECT_TRUE(known_streams().is_known(pool.get_stream(i).value())); }
  }
  EXPECT_EQ(known_streams().ends().load(), before + 3);
}

TEST(StreamLifetimes, ExcludeStreamsOfTheRuntime)
{
  cudaStream_t stream{};
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  EXPECT_FALSE(known_streams().is_known(stream));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(StreamLifetimes, ListenersCanStillUseTheStream)
{
  struct synchronizes : stream_end_listener {
    cudaError_t status{cudaErrorUnknown};
  } listener;
  listener.stream_ends = [](stream_end_listener& self, cudaStream_t stream) noexcept {
    static_cast<synchronizes&>(self).status = cudaStreamSynchronize(stream);
  };
  known_streams().add(listener);
  {
    rmm::cuda_stream const passing;
  }
  known_streams().remove(listener);
  EXPECT_EQ(listener.status, cudaSuccess);
}

}  // namespace
