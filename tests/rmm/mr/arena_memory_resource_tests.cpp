// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/arena_memory_resource.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include "../../support/counting_upstream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using arena = rmm::mr::arena_memory_resource<rmm::mr::device_memory_resource>;

constexpr std::size_t mib = std::size_t{1} << 20;

struct ArenaMemoryResource : ::testing::Test {
  rmm::test::counting_upstream upstream;
  rmm::cuda_stream stream;

  void TearDown() override { EXPECT_EQ(upstream.live_count(), 0U); }
};

TEST_F(ArenaMemoryResource, RefusesANullUpstreamAndLessThan1MiB)
{
  EXPECT_THROW((arena{static_cast<rmm::mr::device_memory_resource*>(nullptr), mib}), rmm::logic_error);
  EXPECT_THROW((arena{&upstream, mib - 1}), rmm::logic_error);
}

TEST_F(ArenaMemoryResource, TakesOneBlockRoundedDownAndNeverMore)
{
  arena mr{&upstream, 4 * mib + 100};
  EXPECT_EQ(upstream.asked(), std::vector<std::size_t>{4 * mib});
  void* const whole = mr.allocate(4 * mib, stream);
  EXPECT_THROW(static_cast<void>(mr.allocate(1, stream)), rmm::out_of_memory);
  mr.deallocate(whole, 4 * mib, stream);
  EXPECT_EQ(upstream.asked().size(), 1U);
}

TEST_F(ArenaMemoryResource, TakesHalfOfTheFreeMemoryByDefault)
{
  rmm::mr::cuda_memory_resource cuda;
  auto const before = rmm::available_device_memory().first;
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> const mr{&cuda};
  auto const after = rmm::available_device_memory().first;
  EXPECT_NEAR(static_cast<double>(before - after), static_cast<double>(before) / 2, 64.0 * mib);
}

TEST_F(ArenaMemoryResource, ReportsWhenNoRoomIsLeft)
{
  arena mr{&upstream, mib};
  try {
    static_cast<void>(mr.allocate(8 * mib, stream));
    FAIL() << "expected out_of_memory";
  } catch (rmm::out_of_memory const& e) {
    std::string const text{e.what()};
    EXPECT_NE(text.find("Maximum pool size exceeded (failed to allocate 8.000000 MiB): No room in arena."),
              std::string::npos)
      << text;
  }
}

TEST_F(ArenaMemoryResource, CoalescesMemoryOfThreadsBeforeItFails)
{
  arena mr{&upstream, mib};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      rmm::cuda_stream mine;
      for (int i = 0; i < 100; ++i) {
        void* const ptr = mr.allocate(32 * 1024, mine);
        mr.deallocate(ptr, 32 * 1024, mine);
      }
    });
  }
  for (auto& t : threads) { t.join(); }
  void* const whole = mr.allocate(mib, stream);
  EXPECT_NE(whole, nullptr);
  mr.deallocate(whole, mib, stream);
}

TEST_F(ArenaMemoryResource, LeavesAReportWhenAskedTo)
{
  std::remove("rmm_arena_memory_dump.log");
  {
    arena mr{&upstream, mib, true};
    EXPECT_TRUE(std::ifstream{"rmm_arena_memory_dump.log"}.good());
    EXPECT_THROW(static_cast<void>(mr.allocate(8 * mib, stream)), rmm::out_of_memory);
    std::stringstream text;
    text << std::ifstream{"rmm_arena_memory_dump.log"}.rdbuf();
    EXPECT_NE(text.str().find("requested: 8.000000 MiB"), std::string::npos) << text.str();
    EXPECT_NE(text.str().find("arena size: 1.000000 MiB"), std::string::npos) << text.str();
    EXPECT_NE(text.str().find("fragmentation: 0 %\n"), std::string::npos) << text.str();
  }
  std::remove("rmm_arena_memory_dump.log");
}

TEST_F(ArenaMemoryResource, LeavesNoReportUnlessAskedTo)
{
  std::remove("rmm_arena_memory_dump.log");
  {
    arena const by_pointer{&upstream, mib};
    arena const by_reference{rmm::device_async_resource_ref{upstream}, mib};
  }
  EXPECT_FALSE(std::ifstream{"rmm_arena_memory_dump.log"}.good());
}

TEST_F(ArenaMemoryResource, ShowsWhatItHas)
{
  arena mr{&upstream, 4 * mib};
  void* const ptr = mr.allocate(mib - 1, stream);
  auto const now  = mr.figures();
  EXPECT_EQ(now.live_bytes, mib);
  EXPECT_EQ(now.free_bytes, 3 * mib);
  EXPECT_EQ(now.reserved_bytes, 4 * mib);
  EXPECT_EQ(now.largest_free_bytes, 3 * mib);
  mr.deallocate(ptr, mib - 1, stream);
  EXPECT_EQ(mr.figures().largest_free_bytes, 4 * mib);
}

TEST_F(ArenaMemoryResource, ServesAllItsMemoryWhicheverStreamFreedIt)
{
  std::vector<rmm::cuda_stream> streams(4);
  arena mr{&upstream, 4 * mib};
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 4096; ++i) { blocks.push_back(mr.allocate(1024, streams[i % 4])); }
  EXPECT_THROW(static_cast<void>(mr.allocate(1, stream)), rmm::out_of_memory);
  for (std::size_t i = 0; i < 4096; ++i) { mr.deallocate(blocks[i], 1024, streams[i % 4]); }
  void* const whole = mr.allocate(4 * mib, stream);
  EXPECT_NE(whole, nullptr);
  mr.deallocate(whole, 4 * mib, stream);
}

TEST_F(ArenaMemoryResource, ReturnsNullForZeroBytes)
{
  arena mr{&upstream, mib};
  EXPECT_EQ(mr.allocate(0, stream), nullptr);
  EXPECT_NO_THROW(mr.deallocate(nullptr, 0, stream));
}

TEST_F(ArenaMemoryResource, RefusesABlockThatBeginsAtItsEnd)
{
  arena mr{&upstream, mib};
  void* const whole = mr.allocate(mib, stream);
  auto const behind = [&] { mr.deallocate(static_cast<char*>(whole) + mib, 256, stream); };
#if defined(RMM_ENABLE_ASSERTIONS)
  EXPECT_DEATH(behind(), "offset < arena_size_");
#else
  behind();
  EXPECT_EQ(mr.figures().live_bytes, mib);
#endif
  mr.deallocate(whole, mib, stream);
}

TEST_F(ArenaMemoryResource, IsEqualToItselfOnlyAndTakesReferences)
{
  arena mr{&upstream, mib};
  arena over_ref{rmm::device_async_resource_ref{upstream}, mib};
  EXPECT_TRUE(mr.is_equal(mr));
  EXPECT_FALSE(mr.is_equal(over_ref));
}

using ArenaMemoryResourceDeathTest = ArenaMemoryResource;

TEST_F(ArenaMemoryResourceDeathTest, SaysThatItDoesNotKnowABlock)
{
  auto const give_it_another = [&] {
    rmm::detail::log_hook.store(
      [](rmm::detail::log_level, char const* message) noexcept { std::fputs(message, stderr); });
    arena mr{&upstream, mib};
    mr.deallocate(upstream.allocate(256), 256);
    std::abort();  // without assertions, ends the program in the expected way
  };
  EXPECT_DEATH(
    give_it_another(),
    "arena_memory_resource: allocation not found: 256 bytes at 0x[0-9a-f]+ were freed, which this resource did "
    "not allocate");
}

}  // namespace

template class rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource>;
