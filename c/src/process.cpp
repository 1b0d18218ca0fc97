// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <rmm/process_is_exiting.hpp>

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace rmm_c {
namespace {

std::atomic<std::uint32_t> generation_of_process{0};

struct mutexes {
  std::mutex of_default_resources;  // before the other
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

/// Never destroyed: calls may come until the process ends.
mutexes& all_mutexes() noexcept
{
  static auto& all = *new mutexes;
  return all;
}

/// Where this cannot be registered, a child takes what its parent made for its own, and CUDA refuses.
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

void note_that_cuda_is_used() noexcept
{
  static bool const is_registered{(rmm::detail::register_process_exit_hook(), true)};
  static_cast<void>(is_registered);
}

std::mutex& list_mutex() noexcept { return all_mutexes().of_lists; }

std::mutex& default_resource_mutex() noexcept { return all_mutexes().of_default_resources; }

}  // namespace rmm_c
