// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include "failure.hpp"

#include <rmm/c/rmm.h>
#include <rmm/process_is_exiting.hpp>

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

namespace rmm_c {
namespace {

// Order: relaxed, because generations guard no data. That of the process changes while it has one thread, in which all later threads begin.
// A thread that does not see the first use yet is in the process of that use, so it may use CUDA.
std::atomic<std::uint32_t> generation_of_process{0};

constexpr std::uint32_t never{std::numeric_limits<std::uint32_t>::max()};
std::atomic<std::uint32_t> generation_of_first_use{never};

struct mutexes {
  std::mutex of_default_resources;  // lock this one first
  std::mutex of_lists;

  void lock()
  {
    of_default_resources.lock();
    of_lists.lock();
  }
  void unlock() noexcept
  {
    of_lists.unlock();
    of_default_resources.unlock();
  }
};

/// Never destroyed, because calls may come until the process ends.
mutexes& all_mutexes() noexcept
{
  static auto& all = *new mutexes;
  return all;
}

/// If the registration fails, a child goes on using objects of its parent, which CUDA refuses.
bool const follows_forks{pthread_atfork([] { all_mutexes().lock(); },
                                        [] { all_mutexes().unlock(); },
                                        [] {
                                          all_mutexes().unlock();
                                          generation_of_process.fetch_add(1, std::memory_order_relaxed);
                                        }) == 0};

}  // namespace

std::uint32_t fork_generation() noexcept { return generation_of_process.load(std::memory_order_relaxed); }

bool may_use_cuda(std::uint32_t generation) noexcept
{
  return generation == fork_generation() && !rmm::process_is_exiting();
}

rmm_c_status check_may_use_cuda(std::uint32_t generation) noexcept
{
  if (rmm::process_is_exiting()) { return fail(RMM_C_UNAVAILABLE, "CUDA is not used any more: the process exits"); }
  if (generation != fork_generation()) {
    return fail(RMM_C_UNAVAILABLE, "the process was forked after the resource or graph memory was made");
  }
  return RMM_C_OK;
}

rmm_c_status check_may_begin_to_use_cuda() noexcept
{
  auto const used_in = generation_of_first_use.load(std::memory_order_relaxed);
  if (used_in != never && used_in != fork_generation()) {
    return fail(RMM_C_UNAVAILABLE,
                "the process was forked from one that had used CUDA, which does not work in a child");
  }
  return check_may_use_cuda(fork_generation());
}

void note_that_cuda_is_used() noexcept
{
  static bool const is_registered{[] {
    rmm::detail::register_process_exit_hook();
    generation_of_first_use.store(fork_generation(), std::memory_order_relaxed);
    return true;
  }()};
  static_cast<void>(is_registered);
}

std::mutex& list_mutex() noexcept { return all_mutexes().of_lists; }

std::mutex& default_resource_mutex() noexcept { return all_mutexes().of_default_resources; }

}  // namespace rmm_c
