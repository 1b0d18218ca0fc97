// SPDX-License-Identifier: Apache-2.0
#include <rmm/aligned.hpp>
#include <rmm/detail/aligned.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

namespace {

// An allocator that counts its calls and remembers the last pointers.
struct recorder {
  int allocations{0};
  int deallocations{0};
  std::size_t requested{0};
  void* allocated{nullptr};
  void* freed{nullptr};

  auto allocate()
  {
    return [this](std::size_t bytes) {
      ++allocations;
      requested        = bytes;
      return allocated = std::malloc(bytes);
    };
  }
  auto deallocate()
  {
    return [this](void* ptr) {
      ++deallocations;
      std::free(freed = ptr);
    };
  }
};

class HostAlignment : public ::testing::TestWithParam<std::size_t> {};

TEST_P(HostAlignment, IsHonouredAndTheMemoryIsInsideTheOriginal)
{
  recorder upstream;
  std::size_t const bytes{1000};
  void* const ptr = rmm::detail::aligned_host_allocate(bytes, GetParam(), upstream.allocate());
  ASSERT_NE(ptr, nullptr);
  EXPECT_TRUE(rmm::is_pointer_aligned(ptr, GetParam()));
  auto const offset = static_cast<char*>(ptr) - static_cast<char*>(upstream.allocated);
  EXPECT_GE(offset, static_cast<std::ptrdiff_t>(sizeof(std::ptrdiff_t)));
  EXPECT_LE(static_cast<std::size_t>(offset) + bytes, upstream.requested);
  std::memset(ptr, 0xff, bytes);  // overwriting all of the memory must not destroy the distance
  rmm::detail::aligned_host_deallocate(ptr, bytes, GetParam(), upstream.deallocate());
  EXPECT_EQ(upstream.freed, upstream.allocated);
}

TEST_P(HostAlignment, TakesOneAllocationWithRoomForTheSlackAndOneDeallocation)
{
  recorder upstream;
  void* const ptr = rmm::detail::aligned_host_allocate(64, GetParam(), upstream.allocate());
  EXPECT_EQ(upstream.allocations, 1);
  EXPECT_EQ(upstream.requested, 64 + GetParam() + sizeof(std::ptrdiff_t));
  rmm::detail::aligned_host_deallocate(ptr, 64, GetParam(), upstream.deallocate());
  EXPECT_EQ(upstream.deallocations, 1);
}

TEST_P(HostAlignment, TheOffsetIsStoredInTheWordBefore)
{
  recorder upstream;
  void* const ptr = rmm::detail::aligned_host_allocate(64, GetParam(), upstream.allocate());
  ASSERT_NE(ptr, nullptr);
  std::ptrdiff_t distance{};
  std::memcpy(&distance, static_cast<char*>(ptr) - sizeof distance, sizeof distance);
  EXPECT_EQ(static_cast<char*>(ptr) - distance, upstream.allocated);
  rmm::detail::aligned_host_deallocate(ptr, 64, GetParam(), upstream.deallocate());
}

INSTANTIATE_TEST_SUITE_P(PowersOfTwo, HostAlignment, ::testing::Values(1, 2, 8, 16, 64, 256, 4096, 65536));

TEST(HostAlignment, ZeroBytesAreAValidPointer)
{
  recorder upstream;
  void* const ptr = rmm::detail::aligned_host_allocate(0, 256, upstream.allocate());
  EXPECT_NE(ptr, nullptr);
  rmm::detail::aligned_host_deallocate(ptr, 0, 256, upstream.deallocate());
  EXPECT_EQ(upstream.freed, upstream.allocated);
}

TEST(HostAlignment, ExceptionsOfTheAllocatorPropagate)
{
  auto const refuse = [](std::size_t) -> void* { throw std::runtime_error{"refused"}; };
  EXPECT_THROW(rmm::detail::aligned_host_allocate(64, 16, refuse), std::runtime_error);
}

TEST(HostAlignment, ANullOfTheAllocatorIsReturned)
{
  auto const nothing = [](std::size_t) -> void* { return nullptr; };
  EXPECT_EQ(rmm::detail::aligned_host_allocate(64, 16, nothing), nullptr);
}

TEST(HostAlignment, SizesThatOverflowWithTheSlackAreRefused)
{
  recorder upstream;
  auto const most = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(rmm::detail::aligned_host_allocate(most, 16, upstream.allocate()), std::bad_alloc);
  EXPECT_THROW(rmm::detail::aligned_host_allocate(most - 16, 16, upstream.allocate()), std::bad_alloc);
  EXPECT_EQ(upstream.allocations, 0);
}

TEST(HostAlignment, DeallocatingNullDoesNothing)
{
  recorder upstream;
  rmm::detail::aligned_host_deallocate(nullptr, 64, 16, upstream.deallocate());
  EXPECT_EQ(upstream.deallocations, 0);
}

}  // namespace
