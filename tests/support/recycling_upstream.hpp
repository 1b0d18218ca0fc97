// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace rmm::test {

/// An upstream with made-up addresses that reuses the last freed one first, so that addresses change threads quickly.
class recycling_upstream final : public mr::device_memory_resource {
 private:
  void* do_allocate(std::size_t, cuda_stream_view) override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (free_.empty()) { return reinterpret_cast<void*>(++made_ * std::uintptr_t{4096}); }
    void* const ptr = free_.back();
    free_.pop_back();
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t, cuda_stream_view) override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    free_.push_back(ptr);
  }

  std::mutex mutex_;
  std::uintptr_t made_{0};
  std::vector<void*> free_;
};

/// Runs `function(number)` on `count` threads at a time.
template <class Function>
void run_on_threads(int count, Function function)
{
  std::vector<std::thread> threads;
  for (int number = 0; number < count; ++number) { threads.emplace_back(function, number); }
  for (auto& thread : threads) { thread.join(); }
}

}  // namespace rmm::test
