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

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <ostream>
#include <vector>

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

/// Device memory from cudaMalloc, with a record of each call. Expects each deallocation to match its allocation, with
/// the same device current, and no live memory at the end.
class watched_upstream final : public mr::device_memory_resource {
 public:
  std::vector<device_call> calls;                                ///< the calls that succeeded
  std::size_t largest{std::numeric_limits<std::size_t>::max()};  ///< larger requests are refused
  std::size_t allocations_until_failure{~std::size_t{0}};        ///< the request after so many is refused

  watched_upstream() = default;
  ~watched_upstream() override { EXPECT_EQ(live_.size(), 0U) << "memory that did not go back"; }

  [[nodiscard]] std::vector<device_call> allocated() const { return calls_that(device_call::kind::allocate); }
  [[nodiscard]] std::vector<device_call> deallocated() const { return calls_that(device_call::kind::deallocate); }

  [[nodiscard]] std::size_t live() const { return live_.size(); }
  [[nodiscard]] std::size_t live_bytes() const
  {
    std::size_t sum{0};
    for (auto const& [ptr, call] : live_) { sum += call.bytes; }
    return sum;
  }

 private:
  [[nodiscard]] std::vector<device_call> calls_that(device_call::kind what) const
  {
    std::vector<device_call> found;
    std::copy_if(
      calls.begin(), calls.end(), std::back_inserter(found), [&](auto const& call) { return call.what == what; });
    return found;
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes > largest || allocations_until_failure-- == 0) { throw rmm::out_of_memory{"refused by the test"}; }
    void* const ptr = cuda_.allocate(bytes, stream);
    calls.push_back({device_call::kind::allocate, bytes, stream.value(), get_current_cuda_device().value()});
    live_.emplace(ptr, calls.back());
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    device_call const call{device_call::kind::deallocate, bytes, stream.value(), get_current_cuda_device().value()};
    auto const found = live_.find(ptr);
    ASSERT_NE(found, live_.end()) << "freed, but not allocated";
    EXPECT_EQ(found->second.bytes, call.bytes) << "freed with another size than allocated";
    EXPECT_EQ(found->second.device, call.device) << "freed with another device current than allocated";
    live_.erase(found);
    cuda_.deallocate(ptr, bytes, stream);
    calls.push_back(call);
  }

  mr::cuda_memory_resource cuda_;
  std::map<void*, device_call> live_;
};

/// Registers a resource for the current device. The destructor registers the previous one.
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
