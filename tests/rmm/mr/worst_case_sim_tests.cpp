// SPDX-License-Identifier: Apache-2.0

// How long single calls take where a million blocks are live and as many ranges are free. Measured is the processor time of the
// calling thread; the limits are far above what the calls take, and far below what they take if they look at all ranges.

#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "../../support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <string>
#include <vector>

namespace {

using rmm::test::tells_costs;

constexpr std::size_t blocks      = 2'000'000;
constexpr std::size_t block_bytes = 256;
constexpr std::size_t MiB         = std::size_t{1} << 20;

double thread_milliseconds()
{
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

template <class Call>
double time_of(Call&& call)
{
  auto const begin = thread_milliseconds();
  call();
  return thread_milliseconds() - begin;
}

/// Blocks of one size on some streams, a thousand in turn; every second of them is freed.
template <class Pool>
class holes {
 public:
  holes(Pool& pool, std::size_t streams) : pool_{pool}, streams_(streams), live_(streams)
  {
    for (std::size_t i = 0; i != blocks; ++i) {
      auto const on = i / 1000 % streams;
      live_[on].push_back(pool_.allocate(block_bytes, streams_[on]));
    }
    for (std::size_t on = 0; on != streams; ++on) {
      for (std::size_t i = 0; i < live_[on].size(); i += 2) {
        slowest_free =
          std::max(slowest_free, time_of([&] { pool_.deallocate(live_[on][i], block_bytes, streams_[on]); }));
      }
    }
  }
  holes(holes const&)            = delete;
  holes& operator=(holes const&) = delete;
  ~holes()
  {
    for (std::size_t on = 0; on != live_.size(); ++on) {
      for (std::size_t i = 1; i < live_[on].size(); i += 2) {
        pool_.deallocate(live_[on][i], block_bytes, streams_[on]);
      }
    }
  }

  [[nodiscard]] rmm::cuda_stream_view stream() const { return streams_.front(); }

  double slowest_free{};

 private:
  Pool& pool_;
  std::vector<rmm::cuda_stream> streams_;
  std::vector<std::vector<void*>> live_;
};

struct WorstCase : Simulated, ::testing::WithParamInterface<std::size_t> {
  void SetUp() override
  {
    Simulated::SetUp();
    if (!tells_costs) { GTEST_SKIP() << "the time of this build is not that of the program"; }
  }
};

TEST_P(WorstCase, APoolThatCannotServeSaysSoAtOnce)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 600 * MiB, 600 * MiB};
  holes const scattered{pool, GetParam()};
  EXPECT_LT(scattered.slowest_free, 20);
  ASSERT_GT(pool.figures().free_bytes, 300 * MiB);
  ASSERT_LT(pool.figures().largest_free_bytes, 200 * MiB);
  double slowest{};
  double fastest{1e9};
  for (int i = 0; i != 5; ++i) {
    auto const time = time_of(
      [&] { EXPECT_THROW(static_cast<void>(pool.allocate(200 * MiB, scattered.stream())), rmm::out_of_memory); });
    slowest = std::max(slowest, time);
    fastest = std::min(fastest, time);
  }
  EXPECT_LT(slowest, 60);
  EXPECT_LT(fastest, 2);
}

TEST_P(WorstCase, AnElasticPoolGrowsAtOnce)
{
  rmm::mr::elastic_pool_memory_resource pool{0, 2048 * MiB};
  if (!pool.has_virtual_memory()) { GTEST_SKIP() << "no virtual memory"; }
  holes const scattered{pool, GetParam()};
  EXPECT_LT(scattered.slowest_free, 20);
  double slowest{};
  double fastest{1e9};
  std::vector<void*> large;
  for (int i = 0; i != 5; ++i) {
    auto const before = pool.pool_size();
    auto const time   = time_of([&] { large.push_back(pool.allocate(64 * MiB, scattered.stream())); });
    EXPECT_GT(pool.pool_size(), before);
    slowest = std::max(slowest, time);
    fastest = std::min(fastest, time);
  }
  for (void* const each : large) { pool.deallocate(each, 64 * MiB, scattered.stream()); }
  EXPECT_LT(slowest, 60);
  EXPECT_LT(fastest, 5);
}

INSTANTIATE_TEST_SUITE_P(Streams, WorstCase, ::testing::Values(1, 2, 8), [](auto const& streams) {
  return "Streams" + std::to_string(streams.param);
});

}  // namespace
