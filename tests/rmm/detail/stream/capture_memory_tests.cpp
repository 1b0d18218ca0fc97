// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/stream/capture_memory.hpp>
#include <rmm/detail/stream/capture_memory_validation.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/heap/address_range.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::captured_memory;
using rmm::detail::captured_stream;
using rmm::detail::owned_event;

constexpr std::uintptr_t base = std::uintptr_t{1} << 30;
constexpr captured_stream first{1, 10, 0, 0};
constexpr captured_stream second{1, 11, 0, 0};

struct CapturedMemory : ::testing::Test {
  void add_chunk(address_range chunk)
  {
    memory.make_room_for_chunk();
    memory.add_chunk(chunk);
  }

  [[nodiscard]] address_range allocate(std::size_t bytes, captured_stream who = first)
  {
    auto const ptr = reinterpret_cast<std::uintptr_t>(memory.try_allocate(bytes, who, false));
    return ptr != 0 ? address_range{ptr, bytes} : address_range{};
  }

  captured_memory memory{7};
};

TEST_F(CapturedMemory, StartsEmpty)
{
  EXPECT_EQ(memory.number(), 7U);
  EXPECT_TRUE(memory.is_empty());
  EXPECT_EQ(memory.bounds(), std::pair(std::uintptr_t{0}, std::uintptr_t{0}));
  EXPECT_FALSE(memory.owns(base));
  EXPECT_EQ(allocate(256).bytes, 0U);
  EXPECT_TRUE(memory.check_invariants());
}

TEST_F(CapturedMemory, OwnsAddressesInChunksOnly)
{
  add_chunk({base + 8192, 1024});
  add_chunk({base, 4096});
  EXPECT_EQ(memory.bounds(), std::pair(base, base + 9216));
  EXPECT_EQ(memory.chunk_bytes(), 5120U);
  for (std::uintptr_t const offset : std::initializer_list<std::uintptr_t>{0, 4095, 8192, 9215}) {
    EXPECT_TRUE(memory.owns(base + offset)) << offset;
  }
  EXPECT_FALSE(memory.owns(base - 1));
  for (std::uintptr_t const offset : std::initializer_list<std::uintptr_t>{4096, 8191, 9216}) {
    EXPECT_FALSE(memory.owns(base + offset)) << offset;
  }
  EXPECT_TRUE(memory.check_invariants());
}

TEST_F(CapturedMemory, NeverAllocatesAcrossTwoChunks)
{
  add_chunk({base, 1024});
  add_chunk({base + 1024, 1024});
  EXPECT_EQ(allocate(1280).bytes, 0U);
  EXPECT_EQ(allocate(1024).bytes, 1024U);
  EXPECT_TRUE(memory.check_invariants());
}

TEST_F(CapturedMemory, KeepsFreedMemoryForItsStreamWithinACapture)
{
  add_chunk({base, 512});
  memory.free_in_capture(allocate(512), first);
  EXPECT_EQ(allocate(512, second).bytes, 0U);
  EXPECT_EQ(allocate(512).begin, base);
}

TEST_F(CapturedMemory, ReleasesEachChunkWithItsLastBlock)
{
  add_chunk({base, 512});
  add_chunk({base + 4096, 512});
  auto const block = allocate(512);
  memory.set_released();
  std::vector<std::uintptr_t> left;
  auto const note = [&](address_range range, bool) {
    left.push_back(range.begin);
    return true;
  };
  ASSERT_TRUE(memory.forget_free(true, nullptr));
  memory.leave(note);
  EXPECT_EQ(left, std::vector{base + 4096 - (block.begin - base)});
  memory.free_without_event(block);
  EXPECT_FALSE(memory.forget_free(true, nullptr));
  memory.leave(note);
  EXPECT_EQ(left.size(), 2U);
  EXPECT_TRUE(memory.is_empty());
  EXPECT_EQ(memory.bytes(), 0U);
  EXPECT_TRUE(memory.check_invariants());
}

// In builds that check every change, a broken invariant ends the program.
#if defined(RMM_ENABLE_EXPENSIVE_ASSERTIONS)
#define EXPECT_BROKEN_BY(statement) EXPECT_DEATH(statement, "Assertion `")
#else
#define EXPECT_BROKEN_BY(statement) \
  statement;                        \
  EXPECT_FALSE(memory.check_invariants())
#endif

TEST_F(CapturedMemory, CheckFindsMemoryThatIsFreeTwice)
{
  add_chunk({base, 1024});
  auto const block = allocate(256);
  static_cast<void>(allocate(256));
  memory.free_in_capture(block, first);
  EXPECT_TRUE(memory.check_invariants());
  EXPECT_BROKEN_BY(memory.free_in_capture(block, second));
}

TEST_F(CapturedMemory, CheckFindsFreeMemoryOutsideOfChunks)
{
  add_chunk({base, 1024});
  memory.set_released();
  auto const let_go = [](address_range, bool) { return true; };
  EXPECT_BROKEN_BY(memory.leave(let_go));  // leave() does not forget free memory
}

#if RMM_ASSERTIONS_ENABLED
TEST_F(CapturedMemory, AssertsThatAFreeEndsInItsChunk)
{
  add_chunk({base, 512});
  add_chunk({base + 512, 512});
  static_cast<void>(allocate(512));
  static_cast<void>(allocate(512));
  EXPECT_DEATH(memory.free_in_capture({base + 256, 512}, first), "Assertion `");
}
#endif

}  // namespace
