// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

namespace rmm::test {

/// An upstream over cudaMalloc that records each request, checks each free, and refuses requests above a limit.
class counting_upstream final : public mr::device_memory_resource {
 public:
  /// The requested sizes in order, refused ones included.
  [[nodiscard]] std::vector<std::size_t> asked() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return asked_;
  }

  /// The number of live allocations.
  [[nodiscard]] std::size_t live_count() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return live_.size();
  }

  /// Makes later requests above `bytes` throw out_of_memory.
  void refuse_above(std::size_t bytes)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    most_ = bytes;
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    asked_.push_back(bytes);
    if (bytes > most_) { throw out_of_memory{"upstream gives no more"}; }
    void* const ptr = cuda_.allocate(bytes, stream);
    live_.emplace(ptr, bytes);
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const found = live_.find(ptr);
    if (found == live_.end() || found->second != bytes) {
      ADD_FAILURE() << ptr << " with " << bytes << " bytes does not come from here";
      return;
    }
    live_.erase(found);
    cuda_.deallocate(ptr, bytes, stream);
  }

  mr::cuda_memory_resource cuda_;
  mutable std::mutex mutex_;
  std::vector<std::size_t> asked_;
  std::map<void*, std::size_t> live_;
  std::size_t most_{std::numeric_limits<std::size_t>::max()};
};

}  // namespace rmm::test
