// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/biased_lock.hpp>

#include <gtest/gtest.h>

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#if RMM_DETAIL_HAS_MEMBARRIER
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <cerrno>
#endif

namespace {

using rmm::detail::biased_lock;
using rmm::detail::process_barrier;

TEST(BiasedLock, TheOwnerEntersAndLeaves)
{
  biased_lock lock;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(lock.try_enter());
    lock.leave();
  }
}

TEST(BiasedLock, AnOwnerThatIsKeptOutHasNotEntered)
{
  biased_lock lock;
  lock.begin_keeping_out();
  EXPECT_FALSE(lock.try_enter());
  lock.wait_until_left();  // returns immediately, because the owner is not inside
  lock.end_keeping_out();
  EXPECT_TRUE(lock.try_enter());
  lock.leave();
}

TEST(BiasedLock, KeepingTheOwnerOutWaitsUntilItHasLeft)
{
  biased_lock lock;
  int guarded{0};
  ASSERT_TRUE(lock.try_enter());
  std::atomic<bool> began{false};
  std::thread other{[&] {
    lock.begin_keeping_out();
    process_barrier::pass_all_threads();
    began = true;
    lock.wait_until_left();
    EXPECT_EQ(guarded, 1);
    lock.end_keeping_out();
  }};
  while (!began) { std::this_thread::yield(); }
  guarded = 1;
  lock.leave();
  other.join();
}

TEST(BiasedLock, OwnerAndOtherAreNeverInsideTogether)
{
  // The owner and another thread count with plain loads and stores, so they would lose counts if both were inside. Before the owner
  // enters, it writes to memory that is in no cache. That delays its later writes on the way to the other thread.
  struct shared {
    biased_lock lock;
    std::int64_t volatile counter{0};
  };
  std::vector<shared> all(4);
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> of_owner{0};
  std::int64_t of_other{0};

  std::thread owner{[&] {
    std::vector<unsigned char> scratch(std::size_t{16} << 20);
    auto* const bytes = static_cast<unsigned char volatile*>(scratch.data());
    std::size_t at    = 0;
    std::size_t which = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      for (int i = 0; i < 24; ++i) {
        at        = (at + 64 * 4099) % scratch.size();
        bytes[at] = 1;
      }
      auto& each = all[which++ % all.size()];
      if (each.lock.try_enter()) {
        each.counter = each.counter + 1;
        each.lock.leave();
      } else {
        std::lock_guard<std::mutex> const kept_out{mutex};
        each.counter = each.counter + 1;
      }
      of_owner.store(of_owner.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }};
  // With fewer processors than threads, each turn can take one time slice of the scheduler.
  auto const enough = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  for (int i = 0; i < 10'000 && (i < 100 || std::chrono::steady_clock::now() < enough); ++i) {
    auto const before = of_owner.load(std::memory_order_relaxed);
    while (of_owner.load(std::memory_order_relaxed) == before) { std::this_thread::yield(); }  // until the owner runs
    std::lock_guard<std::mutex> const guard{mutex};
    for (auto& each : all) { each.lock.begin_keeping_out(); }
    process_barrier::pass_all_threads();
    for (auto& each : all) { each.lock.wait_until_left(); }
    for (auto& each : all) {
      for (int k = 0; k < 20; ++k) { each.counter = each.counter + 1; }
      of_other += 20;
    }
    for (auto& each : all) { each.lock.end_keeping_out(); }
  }
  stop = true;
  owner.join();
  std::int64_t counted{0};
  for (auto const& each : all) { counted += each.counter; }
  EXPECT_EQ(counted, of_owner + of_other);
}

#if defined(__linux__)

/// Pins the calling thread to `core`. Returns 0 or an error number.
int pin_this_thread(int core)
{
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
}

/// Gives the calling thread a real-time priority, above all threads of the default policy. Returns 0 or an error number.
int make_this_thread_real_time()
{
  sched_param priority{};
  priority.sched_priority = sched_get_priority_min(SCHED_FIFO);
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
}

/// Returns the processor time of the calling thread.
std::chrono::nanoseconds processor_time()
{
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

TEST(BiasedLock, ARealTimeThreadLetsAnOwnerOnItsCoreLeave)
{
  // The owner stays inside for 200 us. It shares its core with a thread that never yields to it. Both threads end with this test,
  // so their scheduling has no further effect.
  int const core = sched_getcpu();
  std::atomic<int> error{0};
  std::chrono::nanoseconds spent{0};
  for (int i = 0; i < 5; ++i) {
    biased_lock lock;
    std::atomic<bool> is_inside{false};
    std::atomic<bool> is_kept_out{false};
    std::thread owner{[&] {
      if (int const refused = pin_this_thread(core)) { error = refused; }
      while (!lock.try_enter()) {}
      is_inside = true;
      while (!is_kept_out) {}
      auto const enough = processor_time() + std::chrono::microseconds{200};
      while (processor_time() < enough) {}
      lock.leave();
    }};
    std::thread real_time{[&] {
      if (int const refused = pin_this_thread(core)) { error = refused; }
      if (int const refused = make_this_thread_real_time()) { error = refused; }
      while (!is_inside) { std::this_thread::sleep_for(std::chrono::microseconds{100}); }
      lock.begin_keeping_out();
      process_barrier::pass_all_threads();
      is_kept_out      = true;
      auto const begin = processor_time();
      lock.wait_until_left();
      spent += processor_time() - begin;
      lock.end_keeping_out();
    }};
    owner.join();
    real_time.join();
    if (error != 0) { GTEST_SKIP() << "no real-time thread on a core of its own choice: " << std::strerror(error); }
  }
  // Without a sleep, the wait ends only when the kernel stops the real-time thread: by default, after 950 ms of each second. With
  // the sleep, the five waits take less than 1 ms of processor time. How long they last depends on the other threads of the core.
  EXPECT_LT(std::chrono::duration<double>{spent}.count(), 0.5) << "seconds";
}

#endif

TEST(ProcessBarrier, WorksIfItIsAvailable)
{
  EXPECT_EQ(process_barrier::is_available(), process_barrier::is_available());
  process_barrier::pass_all_threads();
}

#if RMM_DETAIL_HAS_MEMBARRIER && !RMM_DETAIL_THREAD_SANITIZER && defined(__x86_64__)

/// Makes the system call membarrier() fail in this process from now on, as a sandbox may.
[[nodiscard]] bool forbid_barrier()
{
  sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog const program{static_cast<unsigned short>(std::size(rules)), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(ProcessBarrierDeathTest, EndsTheProcessIfTheSystemForbidsItLater)
{
  if (!process_barrier::is_available()) { GTEST_SKIP() << "the system has no barrier for all threads"; }
  auto const pass = [] {
    if (!forbid_barrier()) { std::fputs("membarrier() fails now: no filter can be installed\n", stderr), std::abort(); }
    process_barrier::pass_all_threads();
  };
  EXPECT_DEATH(pass(), "membarrier\\(\\) worked before and fails now");
}

#endif

}  // namespace
