// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <map>
#include <mutex>
#include <ostream>
#include <vector>

/// @file
/// Resources over real device memory that watch how they are used.

namespace rmm::test {

/// A call that reached a resource, and the device that was current.
struct device_call {
  enum class kind { allocate, deallocate };
  kind what;
  std::size_t bytes;
  cudaStream_t stream;
  int device;

  friend bool operator==(device_call const& lhs, device_call const& rhs)
  {
    return lhs.what == rhs.what && lhs.bytes == rhs.bytes && lhs.stream == rhs.stream && lhs.device == rhs.device;
  }

  friend std::ostream& operator<<(std::ostream& out, device_call const& self)
  {
    return out << (self.what == kind::allocate ? "allocate " : "deallocate ") << self.bytes << " on stream "
               << static_cast<void*>(self.stream) << " of device " << self.device;
  }
};

/// Memory from cudaMalloc. Knows what is live, and refuses a wrong size, a wrong device and an unknown address.
class watching_resource final : public mr::device_memory_resource {
 public:
  std::vector<device_call> calls;
  std::size_t allocations_until_failure{~std::size_t{0}};
  bool misused{false};

  [[nodiscard]] std::size_t live() const { return live_.size(); }
  [[nodiscard]] std::size_t live_bytes() const
  {
    std::size_t sum = 0;
    for (auto const& [ptr, held] : live_) { sum += held.bytes; }
    return sum;
  }

 private:
  struct block {
    std::size_t bytes;
    int device;
  };

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (allocations_until_failure-- == 0) { throw rmm::out_of_memory{"as the test asked"}; }
    int const device = get_current_cuda_device().value();
    void* const ptr  = upstream_.allocate(bytes, stream);
    live_.emplace(ptr, block{bytes, device});
    calls.push_back({device_call::kind::allocate, bytes, stream.value(), device});
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    int const device = get_current_cuda_device().value();
    calls.push_back({device_call::kind::deallocate, bytes, stream.value(), device});
    auto const found = live_.find(ptr);
    if (found == live_.end() || found->second.bytes != bytes || found->second.device != device) {
      misused = true;
      return;
    }
    live_.erase(found);
    upstream_.deallocate(ptr, bytes, stream);
  }

  mr::cuda_memory_resource upstream_;
  std::map<void*, block> live_;
};

}  // namespace rmm::test
