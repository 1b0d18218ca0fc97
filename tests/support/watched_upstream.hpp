// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <map>
#include <vector>

namespace rmm::test {

/// Device memory from cudaMalloc, with a record of each call. Expects each free to match its allocation, and all memory
/// back in the end.
class watched_upstream final : public mr::device_memory_resource {
 public:
  struct allocation {
    std::size_t bytes{};
    cudaStream_t stream{};
    int device{};
  };

  std::vector<allocation> allocated;                             ///< one for each allocation
  std::vector<allocation> deallocated;                           ///< one for each deallocation
  std::size_t largest{std::numeric_limits<std::size_t>::max()};  ///< what is larger is refused

  watched_upstream() = default;
  ~watched_upstream() override { EXPECT_EQ(live_.size(), 0U) << "memory that did not go back"; }

  [[nodiscard]] std::size_t live_bytes() const
  {
    std::size_t sum{0};
    for (auto const& [ptr, bytes] : live_) { sum += bytes; }
    return sum;
  }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes > largest) { throw rmm::out_of_memory{"refused by the test"}; }
    void* const ptr = cuda_.allocate(bytes, stream);
    live_.emplace(ptr, bytes);
    allocated.push_back({bytes, stream.value(), get_current_cuda_device().value()});
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    auto const found = live_.find(ptr);
    ASSERT_NE(found, live_.end()) << "freed, but not allocated";
    EXPECT_EQ(found->second, bytes) << "freed with another size than allocated";
    live_.erase(found);
    cuda_.deallocate(ptr, bytes, stream);
    deallocated.push_back({bytes, stream.value(), get_current_cuda_device().value()});
  }

  mr::cuda_memory_resource cuda_;
  std::map<void*, std::size_t> live_;
};

/// Has a resource registered for the current device as long as it lives.
class registered_for_current_device {
 public:
  explicit registered_for_current_device(mr::device_memory_resource* resource)
    : previous_{mr::set_current_device_resource(resource)}
  {}
  ~registered_for_current_device() { mr::set_current_device_resource(previous_); }

  registered_for_current_device(registered_for_current_device const&)            = delete;
  registered_for_current_device& operator=(registered_for_current_device const&) = delete;

 private:
  mr::device_memory_resource* previous_;
};

}  // namespace rmm::test
