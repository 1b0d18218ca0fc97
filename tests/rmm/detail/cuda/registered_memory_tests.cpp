// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/cuda/registered_memory.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::detail::make_in_parallel;
using rmm::detail::registered_memory_alignment;
using rmm::detail::threads_for_pages;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

TEST(RegisteredMemory, SmallBlocksUseOneThread)
{
  EXPECT_EQ(threads_for_pages(1, 0), 1);
  EXPECT_EQ(threads_for_pages(63 * mebibyte, 8), 1);
}

TEST(RegisteredMemory, LargeBlocksUseAllAllowedThreads)
{
  EXPECT_EQ(threads_for_pages(64 * mebibyte, 8), 2);
  EXPECT_EQ(threads_for_pages(1024 * mebibyte, 8), 8);
  EXPECT_GE(threads_for_pages(1024 * mebibyte, 0), 1);
  EXPECT_LE(threads_for_pages(1024 * 1024 * mebibyte, 0), 16);
}

struct MakeInParallel : ::testing::Test {
  /// Makes `bytes` bytes with several threads. The part with the number `failing_part` fails.
  bool make(std::size_t bytes, unsigned threads, int failing_part = -1)
  {
    std::atomic<int> number{0};
    auto* const memory = reinterpret_cast<char*>(registered_memory_alignment);  // an address that no thread writes to
    return make_in_parallel(memory, bytes, threads, [&](char* begin, std::size_t size) {
      std::lock_guard<std::mutex> const lock{mutex};
      parts.insert({static_cast<std::size_t>(begin - memory), size});
      makers.insert(std::this_thread::get_id());
      return number++ != failing_part;
    });
  }

  std::mutex mutex;
  std::set<std::pair<std::size_t, std::size_t>> parts;
  std::set<std::thread::id> makers;
};

TEST_F(MakeInParallel, CoversAllWithPartsOfWholeLargePages)
{
  EXPECT_TRUE(make(100 * mebibyte + 12345, 4));
  std::size_t at = 0;
  for (auto const& [begin, size] : parts) {
    EXPECT_EQ(begin, at);
    EXPECT_EQ(begin % registered_memory_alignment, 0);
    at += size;
  }
  EXPECT_EQ(at, 100 * mebibyte + 12345);
  EXPECT_EQ(parts.size(), 4);
}

TEST_F(MakeInParallel, UsesAThreadForEachPart)
{
  EXPECT_TRUE(make(8 * mebibyte, 4));
  EXPECT_EQ(makers.size(), 4);
  EXPECT_EQ(makers.count(std::this_thread::get_id()), 1);
}

TEST_F(MakeInParallel, FailsIfOnePartDoes)
{
  for (int part = 0; part < 4; ++part) { EXPECT_FALSE(make(8 * mebibyte, 4, part)) << part; }
  EXPECT_TRUE(make(8 * mebibyte, 4, 4));
}

}  // namespace
