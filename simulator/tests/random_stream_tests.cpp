// SPDX-License-Identifier: Apache-2.0
//
// A million random operations of several threads on shared streams, mainly for the sanitizers, which detect missing
// locks and races. The work of each stream counts in plain memory, so that lost, repeated or reordered operations show
// without a sanitizer, too.

#include "support.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

namespace cudasim_tests {
namespace {

using RandomStreamTest = Simulated;

TEST_F(RandomStreamTest, AMillionOperationsOfFourThreads)
{
  constexpr std::size_t shared = 6;
  constexpr unsigned threads   = 4;
  constexpr unsigned each      = 250'000;
  std::array<cudaStream_t, shared> stream{};
  std::array<cudaEvent_t, shared> event{};
  std::array<std::uint64_t, shared> ran{};  // written by the work of one stream only
  std::array<std::atomic<std::uint64_t>, shared> asked{};
  for (std::size_t i = 0; i < shared; ++i) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream[i], i % 2 == 0 ? cudaStreamDefault : cudaStreamNonBlocking),
              cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming), cudaSuccess);
  }

  auto const work = [&](unsigned number) {
    std::mt19937 random{number};
    cudaStream_t own{};
    ASSERT_EQ(cudaStreamCreate(&own), cudaSuccess);
    std::atomic<std::uint64_t> own_ran{0};
    std::uint64_t own_asked = 0;
    for (unsigned i = 0; i < each; ++i) {
      auto const s = random() % shared;
      auto const e = random() % shared;
      switch (random() % 16) {
        case 0:
        case 1:
          ++asked[s];
          ASSERT_EQ(cudasim::launch(stream[s], {}, {}, [&ran, s] { ++ran[s]; }), cudaSuccess);
          break;
        case 2:
          ++own_asked;
          ASSERT_EQ(cudasim::launch(own, {}, {}, [&own_ran] { ++own_ran; }), cudaSuccess);
          break;
        case 3:
          ++own_asked;
          ASSERT_EQ(cudaLaunchHostFunc(
                      own, [](void* count) { ++*static_cast<std::atomic<std::uint64_t>*>(count); }, &own_ran),
                    cudaSuccess);
          break;
        case 4:
          if (random() % 64 == 0) {  // its work still runs, and the handle is reused immediately
            ASSERT_EQ(cudaStreamDestroy(own), cudaSuccess);
            ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
          }
          break;
        case 5:
          if (random() % 64 == 0) { ASSERT_EQ(cudaStreamSynchronize(stream[s]), cudaSuccess); }
          break;
        case 6:
          if (random() % 64 == 0) { ASSERT_EQ(cudaEventSynchronize(event[e]), cudaSuccess); }
          break;
        case 7:
          if (random() % 256 == 0) { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess); }
          break;
        case 8:
          ASSERT_EQ(cudaStreamWaitEvent(cudaStreamPerThread, event[e], 0), cudaSuccess);
          break;
        case 9:
          ASSERT_EQ(cudaEventRecord(event[e], nullptr), cudaSuccess);
          break;
        case 10:
        case 11:
          ASSERT_EQ(cudaEventRecord(event[e], stream[s]), cudaSuccess);
          break;
        case 12:
        case 13:
          ASSERT_EQ(cudaStreamWaitEvent(stream[s], event[e], 0), cudaSuccess);
          break;
        case 14: {
          auto const answer = cudaEventQuery(event[e]);
          ASSERT_TRUE(answer == cudaSuccess || answer == cudaErrorNotReady);
          break;
        }
        default: {
          auto const answer = cudaStreamQuery(stream[s]);
          ASSERT_TRUE(answer == cudaSuccess || answer == cudaErrorNotReady);
          break;
        }
      }
    }
    ASSERT_EQ(cudaStreamDestroy(own), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(own_ran.load(), own_asked);
  };

  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; ++t) { all.emplace_back(work, t + 1); }
  for (auto& t : all) { t.join(); }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (std::size_t i = 0; i < shared; ++i) {
    EXPECT_EQ(ran[i], asked[i].load());
    ASSERT_EQ(cudaStreamDestroy(stream[i]), cudaSuccess);
    ASSERT_EQ(cudaEventDestroy(event[i]), cudaSuccess);
  }
  cudaGetLastError();
}

}  // namespace
}  // namespace cudasim_tests
