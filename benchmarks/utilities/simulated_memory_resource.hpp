// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace rmm::mr {

/// A simulated device with a given amount of memory. Its addresses must not be accessed.
///
/// It never hands out an address twice, even after a free. Throws bad_alloc once `memory_size_bytes` bytes were handed out.
class simulated_memory_resource final : public device_memory_resource {
 public:
  explicit simulated_memory_resource(std::size_t memory_size_bytes) : left_{memory_size_bytes} {}

  simulated_memory_resource(simulated_memory_resource const&)            = delete;
  simulated_memory_resource(simulated_memory_resource&&)                 = delete;
  simulated_memory_resource& operator=(simulated_memory_resource const&) = delete;
  simulated_memory_resource& operator=(simulated_memory_resource&&)      = delete;
  ~simulated_memory_resource() override                                  = default;

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view) override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    RMM_EXPECTS(bytes <= left_, "Simulated memory size exceeded", rmm::bad_alloc);
    auto* const ptr = reinterpret_cast<void*>(next_);
    next_ += bytes;
    left_ -= bytes;
    return ptr;
  }

  void do_deallocate(void*, std::size_t, cuda_stream_view) noexcept override {}

  std::mutex mutex_;
  std::uintptr_t next_{0x100};
  std::size_t left_;
};

}  // namespace rmm::mr
