// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/config.hpp>

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using rmm::detail::mutex;
using rmm::detail::mutex_lock;

static_assert(std::is_nothrow_default_constructible_v<mutex>);
static_assert(!std::is_copy_constructible_v<mutex> && !std::is_copy_constructible_v<mutex_lock>);
static_assert(std::is_nothrow_move_constructible_v<mutex_lock> && std::is_nothrow_move_assignable_v<mutex_lock>);

#if !RMM_DETAIL_THREAD_SANITIZER
static_assert(std::is_trivially_destructible_v<mutex>);
[[maybe_unused]] constexpr mutex is_constant_initialized{};
#endif

/// Returns whether another thread could lock the mutex now.
bool is_free(mutex& asked)
{
  bool locked = false;
  std::thread{[&] {
    locked = asked.try_lock();
    if (locked) { asked.unlock(); }
  }}.join();
  return locked;
}

TEST(Mutex, IsHeldByOneThreadAtATime)
{
  mutex guard;
  long count{};
  std::vector<std::thread> threads;
  for (int i = 0; i != 4; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step != 10'000; ++step) {
        mutex_lock const lock{guard};
        ++count;
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(count, 40'000);
}

TEST(Mutex, IsFreeAfterTheLock)
{
  mutex guard;
  EXPECT_TRUE(is_free(guard));
  {
    mutex_lock const lock{guard};
    EXPECT_FALSE(is_free(guard));
  }
  EXPECT_TRUE(is_free(guard));
}

// ThreadSanitizer tracks the locking order of mutexes by address.
TEST(Mutex, IsNotTakenForAnEarlierOneAtItsAddress)
{
  mutex other;
  std::optional<mutex> reused{std::in_place};
  {
    mutex_lock const first{other};
    mutex_lock const second{*reused};
  }
  reused.emplace();
  mutex_lock const first{*reused};
  mutex_lock const second{other};
  EXPECT_FALSE(is_free(*reused));
}

TEST(MutexLock, IsMovedWithTheMutexHeld)
{
  mutex guard;
  mutex_lock outer;
  {
    mutex_lock inner{guard};
    mutex_lock moved{std::move(inner)};
    outer = std::move(moved);
  }
  EXPECT_FALSE(is_free(guard));
  outer = {};
  EXPECT_TRUE(is_free(guard));
}

TEST(MutexLock, ReleasesItsMutexOnMoveAssignment)
{
  mutex first;
  mutex second;
  mutex_lock lock{first};
  lock = mutex_lock{second};
  EXPECT_TRUE(is_free(first));
  EXPECT_FALSE(is_free(second));
}

}  // namespace
